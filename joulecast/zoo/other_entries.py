"""Entries of predictors that serve every GPU in both modes, and of those that serve one model of CPU in one mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import damaged_entry
from ..hardware import GPU, find_gpu
from ..hardware.host import find_cpu
from ..operations.operation import MODES, Operation
from ..predictors.contract import INPUT_NAMES, ResidualModel
from ..predictors.cpu import CallModel, CpuPredictor
from ..predictors.fitting.fit import read_residual_model
from ..predictors.formats.numbers import errors_to_text, number, require_features, sorted_errors
from ..predictors.intervals.calibration import Calibration
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.model.learned import OneModel
from ..predictors.model.shared import SharedByAll
from ..predictors.networks.composition import EAGER, HostModel
from ..predictors.networks.on_cpu import CpuNetworkPredictor, SerialModel
from ..predictors.networks.prepared import NetworkPredictor
from ..predictors.regressors.fitted_trees import ONE_GPU_FORMS
from .cards import Content, golden_of, golden_operations, host_of, name_of, smoke_test
from .files import StoredEntry

_MOST_GOLDEN_GPUS = 64


@dataclass(frozen=True, eq=False)
class AnyGpuEntry:
    """A loaded entry, to be used on any GPU."""

    name: str
    learned: ResidualModel
    hosts: Mapping[str, HostModel]
    network_errors: Mapping[str, NetworkCalibration]
    calibration: Calibration | None
    kernels: OneModel | None = None

    @property
    def shared(self) -> SharedByAll:
        """What all GPUs share."""
        return SharedByAll(self.learned, self.calibration, self.kernels)

    def on(self, gpu: GPU, mode: str) -> NetworkPredictor:
        """The predictor of a GPU and mode."""
        half_errors = None  # Of networks in half precision; None where kernels do not predict these.
        if self.kernels is not None and self.kernels.predicts_networks(gpu):
            basis = self.kernels.network_basis(gpu)
            errors = self.kernels.network_errors.get(basis)
            if errors and mode == "training":
                half_errors = NetworkCalibration.of_training_steps(errors["power"])
            elif errors:
                said = f"networks in half precision that were left out, from {basis}"
                half_errors = NetworkCalibration.of_errors(errors, said)
        predictor = NetworkPredictor(
            name=self.name,
            operations=self.shared.on(gpu, mode),
            host=self.hosts[mode],
            network_errors=self.network_errors.get(mode),
            half_errors=half_errors,
            any_gpu=True,
        )
        return predictor.under(EAGER)


def _golden(learned: ResidualModel, golden: Mapping[str, list[Operation]]) -> dict[str, Any]:
    """The golden prediction: GPU -> operations, and what they are predicted to cost on it."""
    by_gpu = {}
    for gpu, operations in golden.items():
        predictions = SharedByAll(learned).on(find_gpu(gpu), operations[0].mode).predict(operations)
        by_gpu[gpu] = golden_of(operations, predictions, "device_time_s", "power_w")
    return by_gpu


def content_of_any_gpu(
    learned: ResidualModel,
    hosts: Mapping[str, HostModel],
    intervals: Mapping[str, Any],
    golden: Mapping[str, list[Operation]],
) -> Content:
    """The content of an entry for any GPU.

    Args:
        hosts: Mode -> what a call costs the host inside a network.
        intervals: Errors on what was left out, as `interval_errors` gives them.
        golden: GPU -> operations of one mode for the golden prediction.
    """
    facts, files = learned.to_files()
    facts |= {"hosts": {mode: host.to_dict() for mode, host in hosts.items()}, "intervals": intervals}
    return Content(facts["predictor"], facts, files, _golden(learned, golden))


def read_any_gpu(stored: StoredEntry) -> tuple[AnyGpuEntry, dict[str, Any]]:
    """An entry for any GPU, and its golden prediction as it comes out now."""
    facts = stored.facts
    learned = read_residual_model(facts, stored)
    errors = facts["intervals"]
    network_errors = {
        mode: NetworkCalibration.of_errors(quantities, "networks of chips of which nothing was known")
        for mode, quantities in errors["networks"].items()
        if quantities
    }
    calibration = Calibration.of_device_errors(errors["time"], errors) if errors["time"] else None
    hosts = {mode: host_of(facts["hosts"][mode]) for mode in MODES}
    if len(stored.golden) > _MOST_GOLDEN_GPUS:
        raise damaged_entry("a golden prediction is of too many GPUs", len(stored.golden), f"up to {_MOST_GOLDEN_GPUS}")
    golden = {gpu: golden_operations(value["operations"]) for gpu, value in stored.golden.items()}
    entry = AnyGpuEntry(name_of(stored.card["name"]), learned, hosts, network_errors, calibration)
    for gpu, operations in golden.items():
        smoke_test(entry.on(find_gpu(gpu), operations[0].mode), operations)
    return entry, _golden(learned, golden)


CPU_PREDICTOR = "cpu"
"""What the manifests of these entries name as their predictor. The recipe stands in the card."""


def content_of_cpu(predictor: CpuNetworkPredictor, recipe: str, golden: Sequence[Operation]) -> Content:
    """The content of an entry of a CPU, with the name of its recipe's predictor, and operations that are predicted."""
    operations = predictor.operations
    facts = {
        **operations.facts(),
        "recipe": recipe,
        "serial": predictor.serial.to_dict(),
        "network_errors": errors_to_text({name: np.array(e) for name, e in predictor.network_errors.items()}),
    }
    files = operations.time.to_files("time")
    if operations.power is not None:
        files |= operations.power.to_files("power")
    return Content(CPU_PREDICTOR, facts, files, _golden_of_cpu(operations, golden))


def _golden_of_cpu(predictor: CpuPredictor, operations: Sequence[Operation]) -> dict[str, Any]:
    columns = ("time_s",) if predictor.power is None else ("time_s", "power_w")
    return golden_of(operations, predictor.predict(operations), *columns)


def read_cpu(stored: StoredEntry) -> tuple[CpuNetworkPredictor, dict[str, Any]]:
    """The predictor of an entry, and its golden prediction as it comes out now."""
    facts = stored.facts
    require_features(facts["inputs"], INPUT_NAMES, stored.where)
    from_files = ONE_GPU_FORMS[facts["recipe"]].from_files
    typical_w = number(facts["typical_power_w"])
    operations = CpuPredictor(
        cpu=find_cpu(name_of(facts["gpu"])),
        mode=facts["mode"],
        threads=int(number(facts["threads"])),
        calls=CallModel.from_dict(facts["calls"]),
        time=from_files(stored, "time"),
        power=from_files(stored, "power") if typical_w else None,
        typical_power_w=typical_w,
        measured=frozenset(facts["measured"]),
    )
    errors = {str(quantity): tuple(sorted_errors(e).tolist()) for quantity, e in facts["network_errors"].items()}
    serial = SerialModel.from_dict(facts["serial"])
    predictor = CpuNetworkPredictor(name_of(stored.card["name"]), operations, serial, errors)
    golden = golden_operations(stored.golden["operations"])
    smoke_test(predictor, golden)
    return predictor, _golden_of_cpu(operations, golden)
