"""What trees learned of kernels, and the basis of a prediction: how similar the GPUs are that were measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu, gpus, same_boards
from ..contract import Regressor

Basis = Literal["measured", "same generation", "other generations"]
"""Measurements of this GPU, of GPUs of its generation (see `generation_of`), or only of other GPUs."""

BASES: tuple[Basis, ...] = get_args(Basis)

_ALIKE = 0.1
"""Boards of a chip whose numbers of multiprocessors differ by less than this log ratio take after the same board."""

_SAME_KERNELS = {"10.3": "10.0", "12.1": "12.0"}
"""Compute capabilities whose GPUs run the kernels of another one: they are of one family in CUDA (compute_100f and
compute_120f), so libraries compile one kernel for both."""


def generation_of(gpu: GPU) -> str:
    """The compute capability that a GPU's kernels were made for."""
    return _SAME_KERNELS.get(gpu.compute_capability, gpu.compute_capability)


@lru_cache(256)
def boards_of(names: frozenset[str]) -> tuple[GPU, ...]:
    """The GPUs with these names, sorted by name; found once, because each prediction asks for the measured ones."""
    return tuple(map(find_gpu, sorted(names)))


def is_measured(gpu: GPU, names: Collection[str]) -> bool:
    """Whether a GPU is one of the measured boards, under whatever name."""
    return any(each.name in names for each in same_boards(gpu))


def stands_for(gpu: GPU, measured: Iterable[GPU]) -> GPU:
    """The board that stands for all with the chip of a GPU.

    It is the measured one with the most similar number of multiprocessors, otherwise one of the catalogue. Of several
    with about as many it has the slowest memory, and the lowest rate.
    """

    def rank(other: GPU) -> tuple[float, float, float]:
        return max(abs(math.log(other.sms / gpu.sms)), _ALIKE), other.memory_bandwidth, max(other.peak_flops.values())

    known, others = ([each for each in some if each.chip == gpu.chip] for some in (measured, gpus().values()))
    return min(known or others, key=rank, default=gpu)


def basis_of(gpu: GPU, measured: frozenset[str]) -> Basis:
    """The basis of predictions for a GPU."""
    if is_measured(gpu, measured):
        return "measured"
    of_generation = generation_of(gpu) in map(generation_of, boards_of(measured))
    return "same generation" if of_generation else "other generations"


def is_like_measured(gpu: GPU, precision: str) -> bool:
    """Whether a GPU runs kernels in a precision in the same way as the measured GPUs do.

    All GPUs that were measured in half precision and below have tensor cores for it. A Pascal GPU has none, and
    computes fp16 in fp32.
    """
    return precision in gpu.peak_flops and (precision == "fp32" or gpu.on_tensor_cores(precision))


ALL = "all"
"""In place of a generation: what was learned of all of them together."""

Key = tuple[str, str]
"""A generation, or ALL, and a group of kernels."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PartTrees:
    """Trees that predict a quantity of kernels.

    Args:
        trees: Generation, or ALL, and group -> trees.
        measured: Part -> names of the GPUs that it was measured on.
        errors: Part -> basis -> quantity -> sorted absolute log errors on what was left out.
    """

    trees: Mapping[Key, Regressor] = field(default_factory=dict)
    measured: Mapping[str, frozenset[str]] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, Mapping[str, FloatArray]]] = field(default_factory=dict)

    @cached_property
    def gpus(self) -> frozenset[str]:
        """Names of all measured GPUs."""
        return frozenset().union(*self.measured.values())

    def measured_on(self, part: str, *, flash: bool = False) -> frozenset[str]:
        """Names of the GPUs on which the kernels of a part were measured; see `Parts.flash`."""
        return self.measured[part]

    def basis(self, part: str, gpu: GPU, *, flash: bool = False) -> Basis:
        """The basis of predictions of a measured part for a GPU; see `measured_on`."""
        return basis_of(gpu, self.measured_on(part, flash=flash))

    def basis_of_errors(self, part: str, gpu: GPU, *, flash: bool = False) -> Basis | None:
        """The basis, or the next less similar one with known errors of each quantity; None where there is none."""
        if part not in self.measured or part not in self.errors:
            return None
        errors, basis = self.errors[part], self.basis(part, gpu, flash=flash)
        near = (each for each in BASES[BASES.index(basis) :] if each in errors)
        return next((each for each in near if all(map(len, errors[each].values()))), None)

    def ask(self, keys: Sequence[Key], tables: Sequence[NDArray[np.float32]]) -> list[FloatArray]:
        """What the trees with these keys say of the rows of each table; trees are asked once for all of theirs."""
        places: dict[Key, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(key, []).append(place)
        found: dict[int, FloatArray] = {}
        for key, some in places.items():
            values = self.trees[key](np.concatenate([tables[place] for place in some]))
            ends = np.cumsum([len(tables[place]) for place in some])[:-1]
            found.update(zip(some, np.split(values, ends), strict=True))
        return [found[place] for place in range(len(tables))]
