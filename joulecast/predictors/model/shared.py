"""What all GPUs share, from which operations and networks are predicted on a GPU of which nothing was measured.

All that it needs of a GPU is its data sheet. Physics gives the least time of an operation (least_times.py), and a
residual model predicts the ratio of device time to it, which was learned over many GPUs. In half precision and below,
kernels were measured one by one, and their model replaces the residual model (learned.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, each_of
from ...operations.operation import MODES, Operation
from ...operations.operation_list import OperationList
from ..chip import ChipPart
from ..contract import Files, ResidualModel
from ..intervals.calibration import Calibration
from ..intervals.network_calibration import NetworkCalibration
from ..intervals.operation_spread import OperationSpread
from ..measured import launch_times_s
from ..networks.composition import EAGER, HostModel
from ..networks.predictor import NetworkPredictor
from ..operation_predictions import OperationPredictions
from ..physics.clock import Work
from ..physics.energy import PRIOR_ENERGY, EnergyConstants, static_power_w
from ..physics.least_times import LeastTimes
from ..physics.operation_numbers import by_kind, numbers_of
from ..physics.variants import as_run, attention_in_half, fp64_in_fp32, tf32_in_fp32
from ..predictor import OperationPredictor
from .basis import is_like_measured
from .learned import OneModel

_LEAST_J = 1e-15  # Instead of a division by zero.


@dataclass(frozen=True, eq=False)
class SharedByAll:
    """What all GPUs share; see `contract.Shared` for what its functions do.

    Args:
        learned: The residual model.
        calibration: Errors on chips that were left out; None where they are not known.
        kernels: Model of the device times of kernels in half precision and below. It replaces the residual model for
            the operations that it covers. None if there is no such model.
    """

    learned: ResidualModel
    calibration: Calibration | None = None
    kernels: OneModel | None = None

    def on(self, gpu: GPU, mode: str) -> OperationPredictor:
        """The predictor of a GPU of which nothing was measured."""
        return OperationPredictor(gpu, mode, lambda: self)

    def coverage(self, gpu: GPU) -> tuple[str, ...]:
        """Every kind, in the precisions of the GPU that were learned."""
        kinds = tuple(f"all kinds in {precision}" for precision in gpu.unquantized)
        return (*kinds, *(() if self.kernels is None else self.kernels.coverage(gpu)))

    def covered(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Quantized products are covered only where they were measured. Other precisions say nothing about them."""
        one = each_of(gpu)[0]  # Of several, all cover the same (`OperationPredictor.alike`).
        has = {"tf32", *one.unquantized}
        covered = by_kind(operations, lambda each: each.precision in has and not each.row.measured_only).astype(bool)
        return covered if self.kernels is None else covered | self.kernels.covers(operations, one)

    def host_s(self, operations: OperationList, mode: str) -> FloatArray:
        """Seconds of launches, as measured on other GPUs."""
        known = self.learned.host_s[mode]
        return by_kind(operations, lambda operation: known.get(operation.kind, known[""]))

    def work(self, operations: OperationList, gpu: GPU, capped: bool) -> Work:
        """Where TF32 is allowed, cuDNN chooses between it and fp32, so the time is the smaller of both."""
        listed = as_run(operations, gpu)
        places, always, plain = listed.derived(tf32_in_fp32)
        work = self._work(listed, gpu, capped)
        if not plain:
            return work
        in_fp32 = self._work(plain, gpu, capped).scatter(places)
        quicker = places & (np.nan_to_num(in_fp32.device_s, nan=np.inf) < work.device_s)
        # Launches decide the time of small operations, and chance which is quicker. Their energies are far apart.
        least_j = np.where(always, in_fp32.dynamic_j, np.fmin(work.dynamic_j, in_fp32.dynamic_j))
        found = work.with_others(in_fp32, quicker | always)
        return found.scaled_by(1.0, least_j / np.maximum(found.dynamic_j, _LEAST_J))

    def _work(self, operations: OperationList, gpu: GPU, capped: bool) -> Work:
        # Nothing was measured in fp64. Its ratio of device time to least time is assumed to be that of fp32.
        seen = operations.derived(fp64_in_fp32)
        ratio = self.learned.factors(seen, gpu, capped=capped)
        works = 1.0 - numbers_of(operations).is_identity
        if self.kernels is not None:
            device_s = self.kernels.device_s(operations, gpu)
            least_s = LeastTimes.of(operations, gpu).time_s
            ratio = np.where(np.isnan(device_s), ratio, device_s / least_s)
            # Attention was never measured in fp32. It has as many blocks as in half precision, and more to compute.
            places, in_half = operations.derived(attention_in_half)
            if len(places):
                half_s = self.kernels.device_s(in_half, gpu)
                ratio[..., places] = np.fmax(ratio[..., places], half_s / least_s[..., places])
        work = Work.of(operations, gpu, 1.0 * gpu.boost_clock_mhz, ratio * works, self.learned.energy)
        work = work.bounded(operations)
        return work if self.kernels is None else self._with_power(work, operations, gpu, self.kernels)

    def _with_power(self, work: Work, operations: OperationList, gpu: GPU, kernels: OneModel) -> Work:
        """The work with dynamic energies that follow from the power of kernels, as far as it is known."""
        known = kernels.costs(operations, gpu)
        demand_w = known.demand_w
        if np.isnan(demand_w).all():
            return work
        clock = 1.0 * gpu.boost_clock_mhz
        device_s, dynamic_j = work.at(clock)
        known_j = (demand_w - static_power_w(gpu, clock)) * device_s
        more = known.power_share * (known_j / np.maximum(dynamic_j, _LEAST_J) - 1.0)
        return work.scaled_by(1.0, np.where(np.isnan(demand_w), 1.0, 1.0 + more))

    def under_cap(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """On a board whose loops were not measured, times of products hold without a cap.

        Others wait for the memory, at any clock that a cap leaves.
        """
        run = as_run(operations, gpu)
        under = self.learned.under_cap(run, gpu)
        if self.kernels is None:
            return under
        by_kernels = ~np.isnan(self.kernels.device_s(run, gpu))
        is_other = numbers_of(operations).is_product == 0
        return np.where(by_kernels, is_other | self.kernels.under_cap(gpu), under)

    def read_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """See `KernelCosts.read_s`; NaN without a model of kernels."""
        if self.kernels is None:
            return np.full(len(operations), np.nan)
        return self.kernels.costs(as_run(operations, gpu), gpu).read_s

    def spread(self, operations: OperationList, gpu: GPU) -> OperationSpread | None:
        """Errors on chips that were left out; for kernels, errors for the measurements that their times rest on."""
        if self.calibration is None:
            return None
        fallback: tuple[OperationSpread, NDArray[np.bool_]] | None = None
        run = as_run(operations, gpu)
        for calibration, places in () if self.kernels is None else self.kernels.calibrations(run, gpu):
            others = places if fallback is None else places | fallback[1]
            fallback = OperationSpread(calibration, frozenset(), None, fallback), others
        return OperationSpread(self.calibration, frozenset(), None, fallback)

    def in_network(self, predictions: OperationPredictions, which: NDArray[np.bool_], gpu: GPU) -> OperationPredictions:
        """What networks teach about some of their operations; the others stay as they are."""
        if self.kernels is None:
            return predictions
        run = as_run(OperationList.of(predictions.operations), gpu)
        longer, cycles = self.kernels.in_network(run, gpu)
        slower = np.where(which, longer, 1.0)
        found = predictions.times(slower, _energy_if_slower(predictions, slower))
        return found.loading(np.where(which, cycles, 0.0))

    def remarks(self, operations: OperationList, gpu: GPU) -> tuple[str, ...]:
        """The measurements behind the device times of kernels."""
        return () if self.kernels is None else self.kernels.remarks(as_run(operations, gpu), gpu)


def _energy_if_slower(predictions: OperationPredictions, slower: FloatArray) -> FloatArray | float:
    """Dynamic energy of operations that take longer for the same work, relative to that without; shape (operations,).

    Multiprocessors are awake for longer. The energy of FLOPs and bytes stays the same.
    """
    work = predictions.work
    if work is None:
        return 1.0
    energy: FloatArray = 1.0 + (slower - 1.0) * work.awake_j / np.maximum(work.dynamic_j, _LEAST_J)
    return energy


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
        if self.kernels is not None and is_like_measured(gpu, "fp16"):
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


@dataclass(frozen=True)
class NoResidual:
    """A residual model without any correction: physics alone, the reference that learned predictors have to beat.

    Energy follows from prior constants, which were not fitted to measurements, and a launch takes as long as on the
    host of the A30. Nothing is learned, so any measurement may be used as a test.
    """

    @property
    def energy(self) -> EnergyConstants:
        """Energy constants before any fit."""
        return PRIOR_ENERGY

    @property
    def host_s(self) -> Mapping[str, Mapping[str, float]]:
        """Mode -> kind -> host seconds of a launch, the same for all kinds."""
        return launch_times_s(())

    def factors(self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True) -> FloatArray:
        """See `ResidualModel.factors`; all factors are 1."""
        return np.ones(len(operations))

    def under_cap(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """See `ResidualModel.under_cap`: the least time of a call is that of its data sheet, whatever the cap."""
        return np.ones(len(operations), dtype=bool)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`; there is nothing to store but its name."""
        return {"predictor": "roofline"}, {}

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote."""
        return cls()


def nothing_shared() -> SharedByAll:
    """Physics alone."""
    return SharedByAll(NoResidual())


def chip_alone(part: ChipPart) -> OperationPredictor:
    """What one mode's loops of a chip say, with nothing but physics for what was not measured."""
    return OperationPredictor(part.gpu, part.mode, nothing_shared, {part.mode: part})
