"""What was learned of the device times of kernels, and how an operation on a GPU gets its time from that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu
from ...operations.operation_list import OperationList
from ..batches import in_batches
from ..contract import Regressor
from ..intervals.calibration import Calibration
from ..physics.cached import ON_EACH_GPU, cached
from .basis import Basis, basis_of, known_basis
from .families import FAMILIES
from .family import Family
from .power import Burst, PowerDemand, as_pytorch, power_inputs

_LEAST_S = 1e-6  # No kernel takes less.
ALL = ""
"""Stands for all generations together."""


@dataclass(frozen=True, eq=False)
class Variant:
    """What was learned of a variant of a family.

    Args:
        gpus: Names of the GPUs that it was measured on.
        constants: Compute capability, or ALL -> values of the family's constants.
        generations: Compute capability -> predicts the log ratio of device time to physics there.
        elsewhere: The same for all other GPUs.
        errors: Basis -> sorted absolute log errors on operations, or generations, that were left out.
        power: What was learned of its power; None where that was not measured.
    """

    gpus: frozenset[str]
    constants: Mapping[str, FloatArray]
    generations: Mapping[str, Regressor]
    elsewhere: Regressor
    errors: Mapping[str, FloatArray]
    power: PowerDemand | None = None

    def basis(self, gpu: GPU) -> Basis:
        """What predictions for a GPU rest on."""
        return basis_of(gpu, self.gpus, self.generations)

    def remark(self, gpu: GPU) -> str:
        """What predictions for a GPU rest on, in words."""
        match self.basis(gpu):
            case "measured":
                return f"measured on {gpu.name}"
            case "same generation":
                generation = gpu.compute_capability
                same = [name for name in sorted(self.gpus) if find_gpu(name).compute_capability == generation]
                return f"not measured on {gpu.name}, predicted from {', '.join(same)}, which are of its generation"
            case _:
                return f"not measured on {gpu.name} nor its generation, predicted from {', '.join(sorted(self.gpus))}"

    def calibration(self, gpu: GPU) -> Calibration | None:
        """Errors of predictions for a GPU; where those of its basis are not known, of a basis that says less."""
        basis = known_basis(self.basis(gpu), self.errors)
        of_power = None if self.power is None else known_basis(self.power.basis(gpu), self.power.errors)
        return None if basis is None else self._calibration(basis, of_power)

    @cached_property
    def _calibrations(self) -> dict[tuple[Basis, Basis | None], Calibration]:
        return {}

    def _calibration(self, basis: Basis, of_power: Basis | None) -> Calibration:
        # (intervals remember what they found in a calibration, so it has to be the same one every time)
        if (basis, of_power) not in self._calibrations:
            power = {} if self.power is None or of_power is None else self.power.errors[of_power]
            self._calibrations[basis, of_power] = Calibration.of_device_errors(
                {"": self.errors[basis].tolist()},
                {quantity: {"": errors.tolist()} for quantity, errors in power.items()},
            )
        return self._calibrations[basis, of_power]

    def physics_s(self, family: Family, operations: OperationList, gpu: GPU) -> FloatArray:
        """What physics says of operations of this variant, with the constants of the GPU's generation."""
        return family.physics_s(operations, gpu, self.constants.get(gpu.compute_capability, self.constants[ALL]))

    def device_s(self, family: Family, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device times at the default clock, of operations of this variant; shape (operations,)."""
        return self.burst(family, operations, gpu).device_s

    def burst(self, family: Family, operations: OperationList, gpu: GPU) -> Burst:
        """Operations of this variant in a short loop at the default clock, with what their device times follow from."""
        generation, physics_s = gpu.compute_capability, self.physics_s(family, operations, gpu)
        rows = family.features(operations, gpu, physics_s)
        regressor = self.generations.get(generation, self.elsewhere)
        (log_ratio,) = in_batches(lambda some: (np.asarray(regressor(some)),), rows, [rows[:, 0]])
        trusted = 1.0 if generation in self.generations else family.shrinkage
        device_s: FloatArray = np.maximum(physics_s * np.exp(trusted * log_ratio), _LEAST_S)
        return Burst(physics_s, rows, device_s)

    def demand_w(self, family: Family, operations: OperationList, gpu: GPU, burst: Burst) -> FloatArray | None:
        """Board power without a cap at the default clock, of operations of this variant; None where it is not known.

        Args:
            family: The family of the variant.
            operations: The operations.
            gpu: The GPU that they run on.
            burst: The same operations as `burst` has them.
        """
        if self.power is None or not self.power.covers(gpu):
            return None
        plain = as_pytorch(operations)
        of_pytorch = burst if plain is operations else self.burst(family, plain, gpu)
        return self.power.demand_w(power_inputs(of_pytorch, gpu), gpu)


class Part(NamedTuple):
    """The operations of a list that belong to one variant.

    Args:
        family, variant: Names.
        places: Where they stand in the list.
        operations: The operations themselves.
    """

    family: str
    variant: str
    places: NDArray[np.int64]
    operations: OperationList


def variant_parts(operations: OperationList) -> tuple[Part, ...]:
    """The operations that belong to a family, by variant; the others are in no part."""
    return operations.derived(_parts)


def _parts(operations: OperationList) -> tuple[Part, ...]:
    places: dict[tuple[str, str], list[int]] = {}
    for place, operation in enumerate(operations):
        for name, family in FAMILIES.items():
            variant = family.variant(operation)
            if variant is not None:
                places.setdefault((name, variant), []).append(place)
                break
    return tuple(
        Part(*names, np.array(some), OperationList(operations[place] for place in some))
        for names, some in places.items()
    )


@dataclass(frozen=True, eq=False)
class Kernels:
    """What was learned of all families.

    Args:
        variants: Family and variant -> what was learned of it.
        network_factors: Chip -> how much longer these kernels take inside measured networks than in loops; 1 for all
            other chips.
    """

    variants: Mapping[tuple[str, str], Variant]
    network_factors: Mapping[str, float] = field(default_factory=dict)

    def parts(self, operations: OperationList, gpu: GPU) -> list[tuple[Part, Variant]]:
        """The operations that this knows on a GPU, with what it knows of them."""
        return [
            (part, self.variants[part[:2]])
            for part in variant_parts(operations)
            if part[:2] in self.variants
            and _is_like_measured(gpu, part.operations[0].precision)
            and FAMILIES[part.family].covers(gpu)
        ]

    def device_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device times at the default clock, shape (operations,); NaN where nothing is known. To be read only."""
        device_s, _ = _costs(operations, self, gpu)
        return device_s

    def demand_w(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Board power without a cap at the default clock, shape (operations,); NaN where nothing is known.

        To be read only. Where a kernel waits for its launch, the board draws less.
        """
        _, demand_w = _costs(operations, self, gpu)
        return demand_w

    def in_network(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """How much longer each operation takes inside a network than in a loop, shape (operations,)."""
        known = ~np.isnan(self.device_s(operations, gpu))
        return np.where(known, self.network_factors.get(gpu.chip, 1.0), 1.0)

    def calibrations(self, operations: OperationList, gpu: GPU) -> list[tuple[Calibration, NDArray[np.bool_]]]:
        """Errors of what device times rest on, each with a mask of the operations that they are of."""
        found = []
        for part, variant in self.parts(operations, gpu):
            calibration = variant.calibration(gpu)
            if calibration is not None:
                mask = np.zeros(len(operations), dtype=bool)
                mask[part.places] = True
                found.append((calibration, mask))
        return found

    def remarks(self, operations: OperationList, gpu: GPU) -> tuple[str, ...]:
        """What device times rest on, in words, one remark for each variant."""
        return tuple(
            f"{part.family} in {part.variant}: {variant.remark(gpu)}" for part, variant in self.parts(operations, gpu)
        )

    def coverage(self, gpu: GPU) -> tuple[str, ...]:
        """The variants that this knows on a GPU, in words."""
        return tuple(
            f"{family} in {variant}"
            for family, variant in self.variants
            if _is_like_measured(gpu, FAMILIES[family].variant_precisions[variant]) and FAMILIES[family].covers(gpu)
        )


def _is_like_measured(gpu: GPU, precision: str) -> bool:
    """Whether a GPU runs a precision as those that were measured did.

    All that were measured below fp32 have tensor cores for it. A Pascal GPU, which has none, computes fp16 in fp32.
    """
    return precision in gpu.peak_flops and (precision == "fp32" or gpu.on_tensor_cores(precision))


# Both at once, because they follow from the same physics, features and trees.
@cached(ON_EACH_GPU)
def _costs(operations: OperationList, kernels: Kernels, gpu: GPU) -> tuple[FloatArray, FloatArray]:
    """Device times and demands; see `Kernels.device_s` and `Kernels.demand_w`."""
    device_s, demand_w = np.full((2, len(operations)), np.nan)
    for part, variant in kernels.parts(operations, gpu):
        family = FAMILIES[part.family]
        burst = variant.burst(family, part.operations, gpu)
        known_w = variant.demand_w(family, part.operations, gpu, burst)
        device_s[part.places] = burst.device_s
        if known_w is not None:
            demand_w[part.places] = known_w
    device_s.flags.writeable = demand_w.flags.writeable = False
    return device_s, demand_w
