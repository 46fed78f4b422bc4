"""Importer for the kernels of github.com/ROCm/aiter: products in fp8 and layers of experts on an MI300X.

Reads `gemm.parquet` and `experts.parquet`. A row is the quickest kernel that AITER's tuner found for these sizes: what
a stack calls that was not tuned takes longer. Products in int8 are left out, because nothing predicts them, and so is
the MI308X, 80 of 304 compute units: AMD published no data sheet, and a limit in its firmware holds fp8 at 400 TFLOP/s.

Half of the products are held back to judge predictions. The sides of a weight, each rounded down to a power of two,
form a checkerboard: all rows of a size, for any number of tokens, are on one side of it, with most of its neighbours.
Layers of experts are held back altogether. They have six sizes, too few to say that the board was measured, and are
their two products alone, without sorting the tokens.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...operations.operation import Operation
from ..measurement import Dataset
from .kernel_tables import Found, KernelTable, Row
from .reading import Columns, Folder, card_of, importer

_SHORT_OF_SHEET = "AMD Instinct MI308X"
_BLOCKS = ("1x128 and 128x128", "per_1x128")  # A scale for 128 elements of a row, or for 128 x 128 weights.


def _operation(row: Row) -> Operation:
    blocks = {"block_scaled": row["quantisation"] in _BLOCKS}
    if "m" in row:
        attributes = {"out_features": row["n"], "bias": False}
        return Operation("linear", [(row["m"], row["k"])], attributes | blocks, precision=row["precision"])
    attributes = {name: row[name] for name in ("intermediate", "experts", "top_k")}
    return Operation("experts", [(row["tokens"], row["hidden"])], attributes | blocks, precision=row["precision"])


def _is_held_back(columns: Columns) -> npt.NDArray[np.bool_]:
    if "m" not in columns:
        return np.ones(len(columns["gpu"]), dtype=bool)
    n, k = (np.floor(np.log2(columns[side])).astype(np.int64) for side in ("n", "k"))
    held: npt.NDArray[np.bool_] = (n + k) % 2 == 0
    return held


_SIZES = {"gemm": ("m", "n", "k"), "experts": ("tokens", "hidden", "intermediate", "experts", "top_k")}


@importer
def import_aiter2026(folder: Folder, *, held_back: bool = False) -> list[Dataset]:
    """Read the tables in a folder: the measurements to learn from, or those that are held back.

    Raises DatasetError: a table is missing or damaged, or has unknown GPUs or precisions.
    """
    found: dict[str, Found] = defaultdict(Found)
    for name, sizes in _SIZES.items():
        KernelTable(
            words=("precision", "quantisation", "kernel"),
            sizes=sizes,
            operation=_operation,
            engine=lambda row: "AITER",
            known={"precision": ("bf16", "fp8")},
            skip={
                "of a board without a data sheet": lambda columns: columns["gpu"] == _SHORT_OF_SHEET,
                "in int8, which nothing predicts": lambda columns: columns["precision"] == "int8",
                "to learn from" if held_back else "held back to judge predictions": lambda columns: (
                    _is_held_back(columns) != held_back
                ),
            },
        ).read(Path(folder) / f"{name}.parquet", "aiter2026", found, None, name)
    return [
        Dataset(card_of("aiter2026", gpu, sensor="none", limits=("no power", *mine.limits())), tuple(mine.measurements))
        for gpu, mine in sorted(found.items())
        if mine.measurements
    ]
