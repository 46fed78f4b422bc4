"""The parts of a profile: which operations, and which part of their cost, each factor multiplies.

A board differs from its data sheet and from its siblings by a few causes: the rate of a unit (clock, voltage, library),
the bandwidth of its memory, the driver's kernels of a family, the host, the watts of a waiting board. Each is a factor
with one name here. Factors of units act on the part of the device time that the unit takes (`LeastTimes`), those of
families on the whole. The voltage has no factor but an exponent: that of its catalogue's curve.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import MODES
from ...operations.operation_list import OperationList
from ..physics.clock import Work
from ..physics.operation_numbers import FAMILIES, KIND_PLACES, numbers_of
from ..physics.roofline import on_tensor_cores

UNITS = ("DRAM", "products on tensor cores", "products on other units", "cycles of other operations")
DRAM, *CYCLES = UNITS
LAUNCHES, STATIC, DYNAMIC = tuple(f"launches in {mode}" for mode in MODES), "static power", "dynamic energy"
VOLTAGE = "voltage"

CLASSES: Mapping[str, tuple[str, ...]] = {
    "units": UNITS,
    "families": tuple(f"{family} in {mode}" for mode in MODES for family in FAMILIES),
    "kinds": tuple(f"kind {kind}" for kind in KIND_PLACES),
    "sizes": tuple(f"tenfold bytes of {family}" for family in FAMILIES),
    **{name: (name,) for name in (*LAUNCHES, STATIC, DYNAMIC, VOLTAGE)},
    "joules": tuple(f"joules of {family}" for family in FAMILIES),
}
"""Factors that are drawn towards 1 together: their variance is estimated once for all of them."""

WHOLE = (*CLASSES["families"], *CLASSES["kinds"], *CLASSES["sizes"])
JOULES = (DYNAMIC, *CLASSES["joules"])
TIME_PARTS = (*UNITS, *WHOLE, *LAUNCHES)
ENERGY_PARTS = (STATIC, VOLTAGE, *JOULES)
PARTS = (*TIME_PARTS, *ENERGY_PARTS)
"""Names of all factors that a profile may have."""

ACTING = {"memory": (DRAM,), "cycles": CYCLES, "whole": WHOLE, "launches": LAUNCHES}
ACTING |= {"static": (STATIC,), "dynamic": JOULES, "voltage": (VOLTAGE,)}
"""Factors that a cost follows by the same share of it."""

_PLACES = {name: place for place, name in enumerate(PARTS)}
_MOST_VOLTAGE_POWER = 6.0  # Where `logic_energy` is still above 0, at the lowest voltage of the catalogue.
_MIDDLE_BYTES, _DECADES = 1e7, 2.0  # Where factors of sizes are 1, and how far from there they grow: no farther.

Factors = Mapping[str, float]
"""Name of a part -> its factor; one that is not named is 1."""


def members(operations: OperationList, gpu: GPU) -> FloatArray:
    """How much each operation is a part of each of PARTS: 1 or 0, or decades of bytes; shape (operations, parts)."""
    n = numbers_of(operations)
    trained, product = np.asarray(n.is_training) > 0, np.asarray(n.is_product) > 0
    tensor = product & np.asarray(on_tensor_cores(n, gpu))
    size = np.clip(np.log10(np.maximum(n.bytes_read + n.bytes_written, 1.0) / _MIDDLE_BYTES), -_DECADES, _DECADES)
    family = np.asarray(n.family)[:, None] == np.arange(len(FAMILIES))
    kind = np.asarray(n.kind)[:, None] == np.array([*KIND_PLACES.values()])
    mode, every = np.column_stack([~trained, trained]), np.ones((len(operations), 1))
    units = np.column_stack([every, tensor, product & ~tensor, ~product])
    whole = family & mode[:, :1], family & mode[:, 1:], kind, family * size[:, None]
    return np.hstack([units, *whole, mode, every, every, every, family]).astype(float)


def places_of(names: Collection[str]) -> list[int]:
    """Places of some names in PARTS."""
    return [_PLACES[name] for name in names]


def launches_in(mode: str) -> str:
    """Name of the factor of launches in a mode."""
    return LAUNCHES[MODES.index(mode)]


def factor_of(names: Collection[str], factors: Factors, of: FloatArray) -> FloatArray:
    """The product of some factors for each operation, shape (operations,); `of` is what `members` gives."""
    acting = [name for name in names if name in factors]
    product: FloatArray = np.exp(of[:, places_of(acting)] @ np.log([factors[name] for name in acting]))
    return product


def calibrated_work(work: Work, factors: Factors, of: FloatArray) -> Work:
    """The work of operations on the board, from that on any board of its GPU; `of` is what `members` gives."""
    whole, cycles, memory, energy = (factor_of(names, factors, of) for names in (WHOLE, CYCLES, (DRAM,), JOULES))
    parts = replace(
        work.parts,
        compute_s=work.parts.compute_s * whole * cycles,
        memory_s=work.parts.memory_s * whole * memory,
        cache_s=work.parts.cache_s * whole * cycles,
    )
    # A voltage that is the catalogue's to some power is as good as energies that follow another power of it.
    voltage_power = np.minimum(work.voltage_power * factors.get(VOLTAGE, 1.0), _MOST_VOLTAGE_POWER)
    # The clocks that this board holds under its cap were not measured one by one.
    return replace(work.scaled_by(1.0, energy), parts=parts, cap_w=np.inf, voltage_power=voltage_power)
