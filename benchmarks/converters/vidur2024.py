"""Rows of layers.parquet from a clone of github.com/microsoft/vidur.

The repository has one CSV file for each GPU and model: data/profiling/compute/GPU/ORGANIZATION/MODEL/mlp.csv. A row is
one run with a number of tokens and of GPUs that share the layers, and has five statistics in milliseconds for each
layer: time_stats.LAYER.median is the one that is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from joulecast.datasets.importers.reading import read_rows
from joulecast.errors import DatasetError

# The repository does not say which A100 it is. Its folder of the A40 is not imported.
_GPUS = {"a100": "A100 (SXM or PCIe 80GB, not said)", "h100": "H100"}
_SIZES = {
    "tokens": "num_tokens",
    "tensor_parallel": "num_tensor_parallel_workers",
    "hidden": "n_embd",
    "intermediate": "n_expanded_embd",
    "heads": "n_head",
    "kv_heads": "n_kv_head",
    "vocabulary": "vocab_size",
}
_MEDIAN = re.compile(r"time_stats\.(\w+)\.median")
_TRUTH = {"True": True, "False": False}


def layers(clone: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of layers.parquet: median time of each layer, by GPU, model, layer and run.

    Raises DatasetError: a file is missing columns, or has a value of another form.
    """
    compute = clone / "data" / "profiling" / "compute"
    for folder, gpu in _GPUS.items():
        for path in sorted((compute / folder).glob("*/*/mlp.csv")):
            rows = read_rows(path, (*_SIZES.values(), "use_gated_mlp"))
            names = sorted(found[1] for name in (rows[0] if rows else ()) if (found := _MEDIAN.fullmatch(name)))
            known = {"gpu": gpu, "model": f"{path.parent.parent.name}/{path.parent.name}"}
            try:
                # A model without a layer, such as one with parallel attention, has no times of it.
                yield from (
                    # Whole or half microseconds, as the profiler rounds them; means of two are not exact in binary.
                    {**known, "layer": layer, **_sizes(row), "time_us": round(1e3 * float(median), 3)}
                    for layer in names
                    for row in rows
                    if (median := row[f"time_stats.{layer}.median"])
                )
            except (KeyError, TypeError, ValueError) as error:
                raise DatasetError(
                    "this file of vidur has another form",
                    given=f"{path}: {type(error).__name__}: {error}"[:300],
                    hint="use a clone of github.com/microsoft/vidur at commit 7d47513",
                ) from error


def _sizes(row: Mapping[str, str]) -> dict[str, Any]:
    return {**{name: int(row[column]) for name, column in _SIZES.items()}, "gated": _TRUTH[row["use_gated_mlp"]]}
