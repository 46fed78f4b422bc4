"""AnyGpuPredictor: networks on any GPU, in both modes, from what all GPUs share and what calls cost the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from ...hardware import GPU
from ...operations.operation import MODES
from ..contract import Files, ResidualModel
from ..intervals.calibration import Calibration
from ..intervals.network_calibration import NetworkCalibration
from ..networks.composition import EAGER, HostModel
from ..networks.predictor import NetworkPredictor
from .learned import OneModel
from .shared import SharedByAll


@dataclass(frozen=True, eq=False)
class AnyGpuPredictor:
    """Predicts networks on any GPU.

    Args:
        name: Name of the zoo entry.
        learned: Ratio of device times to physics, learned from many GPUs.
        hosts: Mode -> what a call costs the host inside a network.
        left_out: Errors on chips that were left out, from which intervals are made: "time", "power", "energy" -> family
            of operations -> sorted absolute log errors; "networks" -> mode -> quantity -> such errors. See
            `interval_errors` (evaluation/any_gpu.py).
        kernels: Device times of kernels in half precision and below; None if there are none.
    """

    name: str
    learned: ResidualModel
    hosts: Mapping[str, HostModel]
    left_out: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kernels: OneModel | None = None

    @cached_property
    def shared(self) -> SharedByAll:
        """What all GPUs share: the same object for each, so that their predictors are asked at once."""
        time = self.left_out.get("time")
        calibration = Calibration.of_device_errors(time, self.left_out) if time else None
        return SharedByAll(self.learned, calibration, self.kernels)

    @cached_property
    def _network_errors(self) -> Mapping[str, NetworkCalibration]:
        """Mode -> errors on networks, of both modes: an entry in which one of them is damaged is refused."""
        said, known = "networks of chips of which nothing was known", self.left_out.get("networks", {})
        return {mode: NetworkCalibration.of_errors(errors, said) for mode, errors in known.items() if errors}

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
            network_errors=self._network_errors.get(mode),
            half_errors=half_errors,
            any_gpu=True,
        )
        return predictor.under(EAGER)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """How it is stored: facts and files of what was learned, with costs of the host and errors."""
        facts, files = self.learned.to_files()
        hosts = {mode: host.to_dict() for mode, host in self.hosts.items()}
        return {**facts, "hosts": hosts, "intervals": dict(self.left_out)}, files

    @classmethod
    def from_files(
        cls,
        name: str,
        facts: Mapping[str, Any],
        files: Files,
        residual_model: Callable[[Mapping[str, Any], Files], ResidualModel],
    ) -> Self:
        """Read what `to_files` wrote; `residual_model` reads what was learned, see `AnyGpuForm.from_files`.

        Raises ZooError, InputError, LookupError, TypeError, ValueError: it is something else.
        """
        hosts = {mode: HostModel.from_dict(facts["hosts"][mode]) for mode in MODES}
        left_out = {name: facts["intervals"][name] for name in ("time", "power", "energy", "networks")}
        return cls(name, residual_model(facts, files), hosts, left_out)
