"""The learned model of kernels, and how it predicts the device time and power of an operation on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..intervals.calibration import Calibration
from ..physics.bounds import kernel_floor_s
from ..physics.cached import cached
from .basis import is_like_measured
from .families import FAMILIES, PREDICTED
from .in_networks import NetworkFactors, loaded_elements, slower
from .parts import Part, variant_parts
from .variant import Variant

NetworkBasis = Literal["networks of the chip", "networks of other chips"]
"""The basis of predictions of networks in half precision: measured networks of this chip, or of others."""

NETWORK_BASES: tuple[NetworkBasis, ...] = get_args(NetworkBasis)


class _Costs(NamedTuple):
    """What is known of operations; arrays of shape (operations,).

    Args:
        device_s: Device seconds at the default clock.
        demand_w: Board power in watts without a cap, at the default clock.
        uncapped_s: Device seconds at the default clock if no cap lowered it.
        power_share: Share of the dynamic power that is learned, from 0 to 1, as `Kernels.power_share` gives it.
    """

    device_s: FloatArray
    demand_w: FloatArray
    uncapped_s: FloatArray
    power_share: FloatArray


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

    def power_share(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """How far `demand_w` applies, from 0 to 1, shape (operations,), read-only; NaN for operations it does not know.

        Power was read of kernels of 60 us and more. One that takes hardly longer than its launch keeps the board from
        drawing as much: the share falls from 1 at twice the time of the shortest kernels to 0.
        """
        return _costs(operations, self, gpu).power_share

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
    found = {gpu: np.full((4, len(operations)), np.nan) for gpu in gpus}
    for part in variant_parts(operations):
        some, variant = [gpu for gpu in found if kernels.knows(part, gpu)], kernels.learned(part)
        if not some or variant is None:
            continue
        family = PREDICTED[part.family]
        bursts = dict(zip(some, variant.bursts(family, part.operations, some), strict=True))
        demands_w = variant.demands_w(family, part.operations, bursts)
        for gpu, burst in bursts.items():
            found[gpu][[[0], [2], [3]], part.places] = 0.0
            passes, floor_s = variant.passes(family, part, gpu), kernel_floor_s(gpu)
            np.add.at(found[gpu][0], part.places, passes * burst.device_s)
            share = np.clip(burst.device_s / floor_s - 1.0, 0.0, 1.0)
            np.add.at(found[gpu][3], part.places, passes * burst.device_s * share)
            np.add.at(found[gpu][2], part.places, passes * variant.uncapped_s(family, part.operations, gpu, burst))
        for gpu, demand_w in demands_w.items():
            energy_j = np.zeros(len(operations))
            np.add.at(energy_j, part.places, demand_w * bursts[gpu].device_s * variant.passes(family, part, gpu))
            found[gpu][1, part.places] = (energy_j / found[gpu][0])[part.places]
    for costs in found.values():
        costs[3] /= costs[0]
        costs.flags.writeable = False
    return {gpu: _Costs(*costs) for gpu, costs in found.items()}
