"""Rows of layers.parquet from a clone of github.com/casys-kaist/LLMServingSim.

The repository has a folder for each GPU, model and number of GPUs: profiler/perf/GPU/ORGANIZATION/MODEL/bf16/tpNUMBER,
with attention.csv (prefill_chunk, kv_prefill, n_decode, kv_decode, time_us) and dense.csv (layer, tokens, time_us).
Only those of the RTX 4090 are imported, which have not changed since they were added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from joulecast.datasets.importers.reading import read_rows
from joulecast.errors import DatasetError

_TABLES = {"attention": ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"), "dense": ("tokens",)}
_SIZES = tuple(name for names in _TABLES.values() for name in names)


def layers(clone: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of layers.parquet: time of each layer and each batch of attention, in the order of the files.

    Raises DatasetError: a file is missing columns, or has a value of another form.
    """
    for folder in sorted((clone / "profiler" / "perf" / "RTX4090").glob("*/*/bf16/tp*")):
        model, parallel = "/".join(folder.parts[-4:-2]), folder.name.removeprefix("tp")
        for table, sizes in _TABLES.items():
            path = folder / f"{table}.csv"
            words = ("layer",) if table == "dense" else ()
            for row in read_rows(path, (*words, *sizes, "time_us")):
                try:
                    yield {
                        "gpu": "RTX4090",
                        "model": model,
                        "tp": int(parallel),
                        "table": table,
                        **{name: float(row[name]) if name in sizes else None for name in _SIZES},
                        "time_us": float(row["time_us"]),
                        "layer": row.get("layer"),
                    }
                except (TypeError, ValueError) as error:
                    raise DatasetError(
                        "this file of LLMServingSim has another form",
                        given=f"{path}: {error}"[:300],
                        hint="use a clone of github.com/casys-kaist/LLMServingSim",
                    ) from error
