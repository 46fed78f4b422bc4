"""The learned model of one variant of a family of kernels: its device times and its power on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu
from ...operations.operation_list import OperationList
from ..batches import asked_together
from ..contract import Regressor
from ..intervals.calibration import Calibration
from .basis import Basis, basis_of, generation_of, known_basis
from .family import Family
from .parts import Part
from .power import Burst, PowerDemand, as_pytorch, demand_of_same_die_w, power_inputs
from .products import ENERGY

_LEAST_S = 1e-6  # No kernel takes less than a microsecond.
ALL = ""
"""Key of the constants that were fitted to all generations together."""


@dataclass(frozen=True, eq=False)
class Variant:
    """The learned model of a variant of a family.

    Args:
        gpus: Names of the GPUs that it was measured on.
        constants: Generation, or ALL -> values of the family's constants, shape (libraries, constants).
        generations: Generation -> regressor of the log ratio of device time to physics.
        other_generations: Regressor of the same ratio for all other generations.
        errors: Basis -> sorted absolute log errors on operations, or generations, that were left out.
        power: Model of its power demand; None where power was not measured.
    """

    gpus: frozenset[str]
    constants: Mapping[str, FloatArray]
    generations: Mapping[str, Regressor]
    other_generations: Regressor
    errors: Mapping[str, FloatArray]
    power: PowerDemand | None = None

    def basis(self, gpu: GPU) -> Basis:
        """The basis of predictions for a GPU."""
        return basis_of(gpu, self.gpus, self.generations)

    def remark(self, gpu: GPU) -> str:
        """A sentence that names the measurements behind predictions for a GPU."""
        match self.basis(gpu):
            case "measured":
                return f"measured on {gpu.name}"
            case "same generation":
                generation = generation_of(gpu)
                same = [name for name in sorted(self.gpus) if generation_of(find_gpu(name)) == generation]
                return f"not measured on {gpu.name}, predicted from {', '.join(same)}, which are of its generation"
            case _:
                return f"not measured on {gpu.name} nor its generation, predicted from {', '.join(sorted(self.gpus))}"

    def calibration(self, gpu: GPU) -> Calibration | None:
        """Errors of predictions for a GPU, or those of the next less similar basis whose errors are known."""
        basis = known_basis(self.basis(gpu), self.errors)
        of_power = None if self.power is None else known_basis(self.power.basis(gpu), self.power.errors)
        return None if basis is None else self._calibration(basis, of_power)

    @cached_property
    def _calibrations(self) -> dict[tuple[Basis, Basis | None], Calibration]:
        return {}

    def _calibration(self, basis: Basis, of_power: Basis | None) -> Calibration:
        # Intervals cache results for each calibration object, so the same object is returned every time.
        if (basis, of_power) not in self._calibrations:
            power = {} if self.power is None or of_power is None else self.power.errors[of_power]
            self._calibrations[basis, of_power] = Calibration.of_device_errors(
                {"": self.errors[basis].tolist()},
                {quantity: {"": errors.tolist()} for quantity, errors in power.items()},
            )
        return self._calibrations[basis, of_power]

    def physics_s(self, family: Family, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device seconds by physics, with the constants of the GPU's generation; shape (operations,)."""
        return family.by_library_s(operations, gpu, self.constants.get(generation_of(gpu), self.constants[ALL]))

    def passes(self, family: Family, part: Part, gpu: GPU) -> FloatArray:
        """Time of the passes that are meant over that of the forward pass, at least one; shape (operations,)."""
        if not part.backward.any():
            return np.ones(len(part.operations))
        constants = self.constants.get(generation_of(gpu), self.constants[ALL])
        return np.where(part.backward, family.with_backward(part.operations, gpu, constants), 1.0)

    def of_generation(self, generation: str) -> Variant:
        """What was learned of one generation, for a library that runs its kernels on all GPUs.

        All that was learned if this generation was not measured.
        """
        if generation not in self.generations:
            return self
        if generation not in self._generations:
            constants, trees = self.constants[generation], self.generations[generation]
            self._generations[generation] = Variant(
                frozenset(name for name in self.gpus if generation_of(find_gpu(name)) == generation),
                {generation: constants, ALL: constants},
                {generation: trees},
                trees,
                self.errors,
                self.power,
            )
        return self._generations[generation]

    @cached_property
    def _generations(self) -> dict[str, Variant]:
        return {}

    def uncapped_s(self, family: Family, operations: OperationList, gpu: GPU, burst: Burst) -> FloatArray:
        """Device seconds of a burst as it would be without a power cap, shape (operations,).

        Where the power is learned, it is relative to the burst, and both are kept as they are.

        Args:
            family: The family of the variant.
            operations: Operations of this variant.
            gpu: The GPU that they run on.
            burst: Result of `burst` for them.
        """
        names = [constant.name for constant in family.constants]
        if ENERGY not in names or (self.power is not None and self.power.covers(gpu)):
            return burst.device_s
        constants = self.constants.get(generation_of(gpu), self.constants[ALL]).copy()
        constants[:, names.index(ENERGY)] = 0.0
        uncapped = family.by_library_s(operations, gpu, constants) / burst.physics_s
        return np.maximum(burst.device_s * uncapped, _LEAST_S)

    def device_s(self, family: Family, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device seconds of operations of this variant at the default clock, shape (operations,)."""
        return self.burst(family, operations, gpu).device_s

    def burst(self, family: Family, operations: OperationList, gpu: GPU) -> Burst:
        """Device times of operations of this variant in a short loop at the default clock, with their features."""
        (found,) = self.bursts(family, operations, [gpu])
        return found

    def bursts(self, family: Family, operations: OperationList, gpus: Sequence[GPU]) -> list[Burst]:
        """See `burst`; on several GPUs, with one answer for each GPU."""
        physics_s = [self.physics_s(family, operations, gpu) for gpu in gpus]
        rows = [family.features(operations, gpu, seconds) for gpu, seconds in zip(gpus, physics_s, strict=True)]
        generations = [generation_of(gpu) for gpu in gpus]
        log_ratios = asked_together([self.generations.get(name, self.other_generations) for name in generations], rows)
        trusted = [1.0 if name in self.generations else family.shrinkage for name in generations]
        return [
            Burst(seconds, table, np.maximum(seconds * np.exp(share * log_ratio), _LEAST_S))
            for seconds, table, share, log_ratio in zip(physics_s, rows, trusted, log_ratios, strict=True)
        ]

    def demands_w(
        self, family: Family, operations: OperationList, bursts: Mapping[GPU, Burst]
    ) -> Mapping[GPU, FloatArray]:
        """Board power in watts without a cap at the default clock, on those of the GPUs where it can be predicted.

        Args:
            family: The family of the variant.
            operations: Operations of this variant.
            bursts: GPU -> result of `burst` for the same operations.

        Returns:
            GPU -> watts, shape (operations,).
        """
        power = self.power
        if power is None:
            return {}
        measured_like = {gpu: power.measured_like(gpu) for gpu in bursts if power.covers(gpu)}
        plain = as_pytorch(operations)
        known = bursts if plain is operations else {}
        more = [gpu for gpu in dict.fromkeys((*measured_like, *measured_like.values())) if gpu not in known]
        known = {**known, **dict(zip(more, self.bursts(family, plain, more), strict=True))}
        asked = [*dict.fromkeys(measured_like.values())]
        demands_w = dict(zip(asked, power.demands_w([power_inputs(known[g], g) for g in asked], asked), strict=True))
        return {
            gpu: demands_w[gpu]
            if other == gpu
            else demand_of_same_die_w(gpu, other, demands_w[other], known[other].device_s / known[gpu].device_s)
            for gpu, other in measured_like.items()
        }
