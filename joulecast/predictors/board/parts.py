"""The parts of a profile: which operations, and which part of their cost, each factor multiplies.

A board differs from its data sheet and from its siblings by a few causes: the rate of a unit (clock, voltage, library),
the bandwidth of its memory, the driver's kernels of a family, the host, the watts of a waiting board. Each is a factor
with one name here. Factors of units act on the part of the device time that the unit takes (`LeastTimes`), those of
families on the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import MODES
from ...operations.operation_list import OperationList
from ..physics.cached import cached
from ..physics.clock import Work
from ..physics.operation_numbers import FAMILIES, KIND_PLACES, numbers_of
from ..physics.roofline import on_tensor_cores

DRAM, TENSOR_PRODUCTS, OTHER_PRODUCTS, CYCLES = (
    "DRAM",
    "products on tensor cores",
    "products on other units",
    "cycles of other operations",
)
UNITS = (DRAM, TENSOR_PRODUCTS, OTHER_PRODUCTS, CYCLES)
LAUNCHES, STATIC, DYNAMIC = tuple(f"launches in {mode}" for mode in MODES), "static power", "dynamic energy"
FAMILIES_IN = tuple(f"{family} in {mode}" for family in FAMILIES for mode in MODES)
KINDS_OF = {place: f"kind {kind}" for kind, place in KIND_PLACES.items()}
SIZES = tuple(f"tenfold bytes of {family}" for family in FAMILIES)
WHOLE = (*FAMILIES_IN, *KINDS_OF.values(), *SIZES)
JOULES = tuple(f"joules of {family}" for family in FAMILIES)

TIME_PARTS = (*UNITS, *WHOLE, *LAUNCHES)
ENERGY_PARTS = (STATIC, DYNAMIC, *JOULES)
PARTS = (*TIME_PARTS, *ENERGY_PARTS)
"""Names of all factors that a profile may have."""

CLASSES: Mapping[str, str] = {
    **dict.fromkeys(UNITS, "units"),
    **dict.fromkeys(FAMILIES_IN, "families"),
    **dict.fromkeys(KINDS_OF.values(), "kinds"),
    **dict.fromkeys(SIZES, "sizes"),
    **dict.fromkeys(JOULES, "joules"),
    **{name: name for name in (*LAUNCHES, STATIC, DYNAMIC)},
}
"""Name of a factor -> factors that are drawn towards 1 together: their variance is estimated once for all of them."""

_MIDDLE_BYTES, _DECADES = 1e7, 2.0  # Where factors of sizes are 1, and how far from there they grow: no farther.

Factors = Mapping[str, float]
"""Name of a part -> its factor; one that is not named is 1."""


@cached
def members(operations: OperationList, gpu: GPU) -> dict[str, FloatArray]:
    """Name of a part -> 1 for the operations that it is a part of and 0 for others, shape (operations,).

    Parts of kinds that none of the operations has are left out.
    """
    n = numbers_of(operations)
    family = np.asarray(n.family)
    trained = np.asarray(n.is_training) > 0
    product = np.asarray(n.is_product) > 0
    tensor = product & np.asarray(on_tensor_cores(n, gpu))
    masks = {DRAM: np.ones(len(operations)), TENSOR_PRODUCTS: tensor, OTHER_PRODUCTS: product & ~tensor}
    masks[CYCLES] = ~product
    size = np.clip(np.log10(np.maximum(n.bytes_read + n.bytes_written, 1.0) / _MIDDLE_BYTES), -_DECADES, _DECADES)
    for place, name in enumerate(FAMILIES):
        mine = family == place
        masks |= {f"{name} in inference": mine & ~trained, f"{name} in training": mine & trained}
        masks[f"joules of {name}"] = mine
        masks[f"tenfold bytes of {name}"] = mine * size
    kinds = np.asarray(n.kind)
    masks |= {KINDS_OF[int(place)]: kinds == place for place in np.unique(kinds)}
    masks |= dict(zip(LAUNCHES, (~trained, trained), strict=True))
    masks |= dict.fromkeys((STATIC, DYNAMIC), np.ones(len(operations)))
    return {name: np.asarray(mask, dtype=float) for name, mask in masks.items()}


def launches_in(mode: str) -> str:
    """Name of the factor of launches in a mode."""
    return LAUNCHES[MODES.index(mode)]


def factor_of(names: Collection[str], factors: Factors, masks: Mapping[str, FloatArray]) -> FloatArray:
    """The product of some factors for each operation, shape (operations,)."""
    logs = [np.log(factor) * masks[name] for name, factor in factors.items() if name in names and name in masks]
    return np.exp(sum(logs, start=np.zeros(len(masks[DRAM]))))


def calibrated_work(work: Work, factors: Factors, masks: Mapping[str, FloatArray], most_mhz: float) -> Work:
    """The work of operations on the board, from that on any board of its GPU: parts, energies and highest clock.

    The masks are what `members` gives; the highest clock is infinite where the board holds all of them.
    """
    whole, cycles = factor_of(WHOLE, factors, masks), factor_of(UNITS[1:], factors, masks)
    parts = replace(
        work.parts,
        compute_s=work.parts.compute_s * whole * cycles,
        memory_s=work.parts.memory_s * whole * factor_of((DRAM,), factors, masks),
        cache_s=work.parts.cache_s * whole * cycles,
    )
    energy = factor_of((DYNAMIC, *JOULES), factors, masks)
    return replace(
        work,
        parts=parts,
        switching_j=work.switching_j * energy,
        awake_j=work.awake_j * energy,
        memory_j=work.memory_j * energy,
        most_mhz=np.minimum(work.most_mhz, most_mhz),
        cap_w=np.inf,  # The clocks that this board holds under its cap were not measured one by one.
    )
