"""Importer for the kernels of github.com/ROCm/aiter: products in fp8 and layers of experts on an MI300X.

Reads `gemm.parquet` and `experts.parquet`. A row is the quickest kernel that AITER's tuner found for these sizes: what
a stack calls that was not tuned takes longer. Products in int8 are left out, because nothing predicts them, and so is
the MI308X, 80 of 304 compute units: AMD published no data sheet, and a limit in its firmware holds fp8 at 400 TFLOP/s.
Layers of experts are their two products, without sorting the tokens.

Half of the sizes are held back to judge predictions. The sides of a weight, each rounded down to a power of two, form a
checkerboard: all rows of a size, for any number of tokens, are on one side of it, with most of its neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...operations.operation import Operation
from ..measurement import Dataset
from .kernel_tables import Found, KernelTable, Row
from .reading import Columns, Folder, card_of, importer

_SHORT_OF_SHEET = "AMD Instinct MI308X"
_BLOCKS = ("1x128 and 128x128", "per_1x128")  # A scale for 128 elements of a row, or for 128 x 128 weights.
_HELD_BACK = "held back to judge predictions"


def _product(row: Row) -> Operation:
    attributes = {"out_features": row["n"], "bias": False, "block_scaled": row["quantisation"] in _BLOCKS}
    return Operation("linear", [(row["m"], row["k"])], attributes, precision=row["precision"])


def _experts(row: Row) -> Operation:
    attributes = {name: row[name] for name in ("intermediate", "experts", "top_k")}
    attributes |= {"block_scaled": row["quantisation"] in _BLOCKS}
    return Operation("experts", [(row["tokens"], row["hidden"])], attributes, precision=row["precision"])


def _octaves(sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    return np.floor(np.log2(sizes)).astype(np.int64)


def _table(
    operation: Callable[[Row], Operation], sizes: tuple[str, ...], weight: tuple[str, str], held_back: bool
) -> KernelTable:
    """A table of the source, with the half of its sizes that is held back or with the other one."""

    def other_half(columns: Columns) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (sum(_octaves(columns[side]) for side in weight) % 2 > 0) == held_back
        return found

    return KernelTable(
        words=("precision", "quantisation", "kernel"),
        sizes=sizes,
        operation=operation,
        engine=lambda row: "AITER",
        known={"precision": ("bf16", "fp8")},
        skip={
            "a board without a data sheet": lambda columns: columns["gpu"] == _SHORT_OF_SHEET,
            "int8, which nothing predicts": lambda columns: columns["precision"] == "int8",
            "of the other half" if held_back else _HELD_BACK: other_half,
        },
    )


_TABLES: Mapping[str, tuple[Callable[[Row], Operation], tuple[str, ...], tuple[str, str]]] = {
    "gemm": (_product, ("m", "n", "k"), ("n", "k")),
    "experts": (_experts, ("tokens", "hidden", "intermediate", "experts", "top_k"), ("hidden", "intermediate")),
}


@importer
def import_aiter2026(folder: Folder, *, held_back: bool = False) -> list[Dataset]:
    """Read the tables in a folder: the half of the sizes to learn from, or the half that is held back.

    Raises:
        DatasetError: A table is missing or damaged, or has unknown GPUs or precisions.
    """
    found: dict[str, Found] = defaultdict(Found)
    for name, table in _TABLES.items():
        path = Path(folder) / f"{name}.parquet"
        _table(*table, held_back).read(path, "aiter2026", found, None, name)
    return [
        Dataset(card_of("aiter2026", gpu, sensor="none", limits=("no power", *mine.limits())), tuple(mine.measurements))
        for gpu, mine in sorted(found.items())
        if mine.measurements
    ]
