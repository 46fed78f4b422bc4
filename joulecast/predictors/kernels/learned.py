"""The learned model of kernels, and how it predicts the device time and power of an operation on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..batches import asked_together
from ..contract import Regressor
from ..intervals.calibration import Calibration
from ..physics.cached import cached
from .basis import Basis, basis_of, generation_of, is_like_measured, known_basis
from .families import FAMILIES, PREDICTED
from .family import Family
from .gradients import kernels_of
from .in_networks import NetworkFactors, loaded_elements, slower
from .power import Burst, PowerDemand, as_pytorch, demand_of_same_die_w, power_inputs
from .products import ENERGY

_LEAST_S = 1e-6  # No kernel takes less than a microsecond.
NetworkBasis = Literal["networks of the chip", "networks of other chips"]
"""The basis of predictions of networks in half precision: measured networks of this chip, or of others."""

NETWORK_BASES: tuple[NetworkBasis, ...] = get_args(NetworkBasis)

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


class Part(NamedTuple):
    """The operations of a list in one precision that belong to one variant, or whose kernels do (gradients.py).

    Args:
        family, variant: Names of the family and of the variant.
        places: Index of each of the operations in the list; the same for all kernels of one operation.
        operations: These operations.
        backward: Whether the backward pass of each of them is meant as well.
    """

    family: str
    variant: str
    places: NDArray[np.int64]
    operations: OperationList
    backward: NDArray[np.bool_]

    @property
    def learned_names(self) -> tuple[str, str]:
        """Names of the family and of the variant whose learned model predicts them."""
        return PREDICTED[self.family].learned_as or self.family, self.variant


def variant_parts(operations: OperationList) -> tuple[Part, ...]:
    """The operations that belong to a family, by variant; the others are in no part."""
    return operations.derived(_parts)


def _parts(operations: OperationList) -> tuple[Part, ...]:
    # By precision as well: fp16 and bf16 are learned together, but not every GPU multiplies them at the same rate.
    found: dict[tuple[str, str, str], list[tuple[int, Operation, bool]]] = {}
    for place, operation in enumerate(operations):
        for kernel in kernels_of(operation):
            for name, family in PREDICTED.items():
                variant = family.variant(kernel)
                if variant is not None:
                    backward = family.backward_s is not None and operation.has_backward
                    found.setdefault((name, variant, kernel.precision), []).append((place, kernel, backward))
                    break
    columns = ((names, zip(*some, strict=True)) for names, some in found.items())
    return tuple(
        Part(family, variant, np.array(places), OperationList(kernels), np.array(backward))
        for (family, variant, _), (places, kernels, backward) in columns
    )


class _Costs(NamedTuple):
    """What is known of operations; arrays of shape (operations,).

    Args:
        device_s: Device seconds at the default clock.
        demand_w: Board power in watts without a cap, at the default clock.
        uncapped_s: Device seconds at the default clock if no cap lowered it.
    """

    device_s: FloatArray
    demand_w: FloatArray
    uncapped_s: FloatArray


@dataclass(frozen=True, eq=False)
class Kernels:
    """The learned models of all families.

    Args:
        variants: Names of a family and of its variant -> learned model.
        network_factors: How much longer operations in half precision take inside measured networks.
        network_errors: Basis -> quantity -> sorted absolute log errors on networks in half precision that were left
            out.
    """

    variants: Mapping[tuple[str, str], Variant]
    network_factors: NetworkFactors = NetworkFactors()
    network_errors: Mapping[NetworkBasis, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    def knows(self, part: Part, gpu: GPU) -> bool:
        """Whether this can predict the operations of a variant on a GPU."""
        return (
            self.learned(part) is not None
            and is_like_measured(gpu, part.family, part.operations[0].precision)
            and PREDICTED[part.family].covers(gpu)
        )

    def learned(self, part: Part) -> Variant | None:
        """The learned model for the operations of a part; None if there is none."""
        if part.learned_names not in self.variants:
            return None
        variant, generation = self.variants[part.learned_names], PREDICTED[part.family].generation
        return variant if generation is None else variant.of_generation(generation)

    def parts(self, operations: OperationList, gpu: GPU) -> tuple[tuple[Part, Variant], ...]:
        """The operations that this can predict on a GPU, by variant, each with its learned model."""
        return _known_parts(operations, self, gpu)

    def device_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device seconds at the default clock, shape (operations,), read-only; NaN for operations it does not know."""
        return _costs(operations, self, gpu).device_s

    def demand_w(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Board power in watts without a cap at the default clock, shape (operations,); NaN where it is not known.

        The array is read-only. The power is that of a working GPU; while it waits for a launch, the board draws less.
        """
        return _costs(operations, self, gpu).demand_w

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `SharedModel.prefetch`."""
        asked = [gpu for gpu in gpus if not _costs.knows(operations, self, gpu)]
        for gpu, costs in _costs_on_each(operations, self, asked).items():
            _costs.put(costs, operations, self, gpu)

    def in_network(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Time of each operation inside a network over what is predicted without networks, shape (operations,).

        Long loops meet the power cap. The clock law applies the cap to the whole network, so it is not applied here.
        """
        costs = _costs(operations, self, gpu)
        known = ~np.isnan(costs.device_s)
        uncapped = np.where(known, costs.uncapped_s / costs.device_s, 1.0)
        found: FloatArray = uncapped * slower(operations, gpu, known, self.factors_in_networks(gpu))
        return found

    def load_cycles(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Cycles in which all multiprocessors load the elements of each operation inside a network, (operations,)."""
        known = ~np.isnan(self.device_s(operations, gpu))
        return self.factors_in_networks(gpu).cycles * loaded_elements(operations, known) / gpu.sms

    def factors_in_networks(self, gpu: GPU) -> NetworkFactors:
        """How much longer operations take inside networks on a GPU.

        If kernels predict neither linear layers nor attention on a GPU, nothing is known about the others: no longer.
        """
        return self.network_factors if self.predicts_networks(gpu) else NetworkFactors()

    def predicts_networks(self, gpu: GPU) -> bool:
        """Whether kernels predict the products of networks in half precision on a GPU, as in the measured networks."""
        return is_like_measured(gpu, "linear", "fp16")

    def network_basis(self, gpu: GPU) -> NetworkBasis:
        """The basis of predictions of networks in half precision on a GPU."""
        return "networks of the chip" if gpu.chip in self.network_factors.chips else "networks of other chips"

    def calibrations(self, operations: OperationList, gpu: GPU) -> tuple[tuple[Calibration, NDArray[np.bool_]], ...]:
        """Calibrations of the variants on a GPU, each with a mask of its operations, shape (operations,)."""
        return _calibrations(operations, self, gpu)

    def remarks(self, operations: OperationList, gpu: GPU) -> tuple[str, ...]:
        """Sentences that name the measurements behind the device times, one for each variant."""
        return _remarks(operations, self, gpu)

    def coverage(self, gpu: GPU) -> tuple[str, ...]:
        """The variants that this can predict on a GPU, in words."""
        return tuple(
            f"{family} in {variant}"
            for family, variant in self.variants
            if is_like_measured(gpu, family, FAMILIES[family].variant_precisions[variant])
            and FAMILIES[family].covers(gpu)
        )


@cached
def _known_parts(operations: OperationList, kernels: Kernels, gpu: GPU) -> tuple[tuple[Part, Variant], ...]:
    learned = [(part, kernels.learned(part)) for part in variant_parts(operations) if kernels.knows(part, gpu)]
    return tuple((part, variant) for part, variant in learned if variant is not None)


@cached
def _remarks(operations: OperationList, kernels: Kernels, gpu: GPU) -> tuple[str, ...]:
    known = _known_parts(operations, kernels, gpu)
    sentences = (f"{part.family} in {part.variant}: {variant.remark(gpu)}" for part, variant in known)
    return tuple(dict.fromkeys(sentences))


@cached
def _calibrations(
    operations: OperationList, kernels: Kernels, gpu: GPU
) -> tuple[tuple[Calibration, NDArray[np.bool_]], ...]:
    found = []
    for part, variant in _known_parts(operations, kernels, gpu):
        calibration = variant.calibration(gpu)
        if calibration is not None:
            mask = np.zeros(len(operations), dtype=bool)
            mask[part.places] = True
            mask.flags.writeable = False
            found.append((calibration, mask))
    return tuple(found)


@cached
def _costs(operations: OperationList, kernels: Kernels, gpu: GPU) -> _Costs:
    return _costs_on_each(operations, kernels, [gpu])[gpu]


def _costs_on_each(operations: OperationList, kernels: Kernels, gpus: Sequence[GPU]) -> dict[GPU, _Costs]:
    """Device times and power demands together, because both follow from the same physics and features."""
    found = {gpu: np.full((3, len(operations)), np.nan) for gpu in gpus}
    for part in variant_parts(operations):
        some, variant = [gpu for gpu in found if kernels.knows(part, gpu)], kernels.learned(part)
        if not some or variant is None:
            continue
        family = PREDICTED[part.family]
        bursts = dict(zip(some, variant.bursts(family, part.operations, some), strict=True))
        demands_w = variant.demands_w(family, part.operations, bursts)
        for gpu, burst in bursts.items():
            found[gpu][[[0], [2]], part.places] = 0.0
            passes = variant.passes(family, part, gpu)
            np.add.at(found[gpu][0], part.places, passes * burst.device_s)
            np.add.at(found[gpu][2], part.places, passes * variant.uncapped_s(family, part.operations, gpu, burst))
        for gpu, demand_w in demands_w.items():
            energy_j = np.zeros(len(operations))
            np.add.at(energy_j, part.places, demand_w * bursts[gpu].device_s * variant.passes(family, part, gpu))
            found[gpu][1, part.places] = (energy_j / found[gpu][0])[part.places]
    for costs in found.values():
        costs.flags.writeable = False
    return {gpu: _Costs(*costs) for gpu, costs in found.items()}
