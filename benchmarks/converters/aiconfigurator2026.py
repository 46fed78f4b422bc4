"""Rows of the four tables of aiconfigurator2026 from a clone of github.com/ai-dynamo/aiconfigurator.

The repository has a file for each GPU, engine, version and kind of kernel below a folder systems/data, such as
h200_sxm/sglang/0.5.14/gemm_perf.parquet; older ones are .txt, which are CSV. All begin with framework, version, device,
op_name and kernel_source; `latency` is in milliseconds. The files are in Git LFS: run `git lfs pull` in the clone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from joulecast.datasets.importers.reading import read_rows
from joulecast.datasets.store import read_limited
from joulecast.errors import DatasetError

_MOST_VALUES = 30_000_000
_POINTER = b"version https://git-lfs"
_GPUS = ("A100-SXM4-80GB", "H100 80GB HBM3", "H200", "B200", "GB200", "L40S")
_ENGINES = ("sglang", "trtllm", "vllm")
_PRECISIONS = ("bfloat16", "fp8", "fp8_block", "nvfp4")


class _Files(NamedTuple):
    """Files of one kind of kernel, and how their rows become those of a table.

    Sizes and words map columns of the table to those of the file, and to the value where the file has no such column.
    Precisions and engines are those that are imported.
    """

    stem: str
    precision: str
    sizes: Mapping[str, tuple[str, int | str]]
    words: Mapping[str, tuple[str, str]] = {}
    has_power: bool = True
    precisions: tuple[str, ...] = _PRECISIONS
    engines: tuple[str, ...] = _ENGINES


def _attention(phase: str) -> _Files:
    sizes: dict[str, tuple[str, int | str]] = {
        "batch": ("batch_size", 1),
        "tokens": ("isl", 1),
        "cached": ("step", 0),
        "heads": ("num_heads", 1),
        "kv_heads": ("num_key_value_heads", "num_heads"),  # the same number, where the file does not say it
        "head_size": ("head_dim", 128),
        "window": ("window_size", 0),
    }
    words = {"phase": ("", phase), "cache_precision": ("kv_cache_dtype", "")}
    return _Files(f"{phase}_attention_perf", "attn_dtype", sizes, words)


_EXPERTS: dict[str, tuple[str, int | str]] = {
    "tokens": ("num_tokens", 1),
    "hidden": ("hidden_size", 1),
    "intermediate": ("inter_size", 1),
    "top_k": ("topk", 1),
    "experts": ("num_experts", 1),
    "tensor_parallel": ("moe_tp_size", 1),
    "expert_parallel": ("moe_ep_size", 1),
}
_SENT: dict[str, tuple[str, int | str]] = {"gpus": ("num_gpus", 1), "message_size": ("message_size", 1)}
_TYPES = ("half", "int8", "bfloat16")
_TABLES: Mapping[str, tuple[_Files, ...]] = {
    "linear.parquet": (_Files("gemm_perf", "gemm_dtype", {name: (name, 1) for name in "mnk"}),),
    "attention.parquet": tuple(map(_attention, ("context", "generation", "encoder"))),
    # Other engines time their experts with other distributions of tokens.
    "experts.parquet": (
        _Files("moe_perf", "moe_dtype", _EXPERTS, {"distribution": ("distribution", "")}, False, engines=("sglang",)),
    ),
    "collectives.parquet": (
        _Files("nccl_perf", "nccl_dtype", _SENT, {"collective": ("op_name", "")}, False, _TYPES),
        _Files("custom_allreduce_perf", "allreduce_dtype", _SENT, {"collective": ("", "all_reduce")}, False, _TYPES),
    ),
}


def _rows(table: str, clone: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a table, of the GPUs, engines and precisions that are imported.

    Raises DatasetError: a file is a pointer of Git LFS, is damaged, or lacks a column.
    """
    for files in _TABLES[table]:
        for path in sorted(clone.glob(f"**/systems/data/**/{files.stem}.*")):
            for row in _read(path, (files.precision, "latency", "framework", "version", "device", "kernel_source")):
                gpu, engine = str(row["device"]).removeprefix("NVIDIA "), str(row["framework"]).lower()
                if gpu in _GPUS and engine in files.engines and row[files.precision] in files.precisions:
                    yield _row(files, row, gpu, engine)


def _row(files: _Files, row: Mapping[str, Any], gpu: str, engine: str) -> Mapping[str, Any]:
    def size(column: str, otherwise: int | str) -> int:
        value = row.get(column)
        return int(
            float((row[otherwise] if isinstance(otherwise, str) else otherwise) if value in (None, "") else value)
        )

    power = {}
    if files.has_power:
        power = {f"{name}_w": float(value) if (value := row.get(name)) else None for name in ("power", "power_limit")}
    return {
        "gpu": f"NVIDIA {gpu}",
        "stack": f"{engine} {row['version']}",
        "kernel": row["kernel_source"],
        "precision": row[files.precision],
        **{name: str(row.get(column) or otherwise) for name, (column, otherwise) in files.words.items()},
        **{name: size(*column) for name, column in files.sizes.items()},
        "time_us": float(np.float32(1e3 * float(row["latency"]))),
        **power,
    }


def _read(path: Path, needed: tuple[str, ...]) -> Iterable[Mapping[str, Any]]:
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise DatasetError(
                "a file of the clone is a pointer of Git LFS",
                given=str(path),
                allowed="the file itself",
                hint="git lfs install, and git lfs pull in the clone",
            )
    if path.suffix == ".txt":
        return read_rows(path, needed)
    table = read_limited(path, _MOST_VALUES)
    if missing := set(needed) - set(table.column_names):
        raise DatasetError("columns are missing", given=str(path), hint=f"add {', '.join(sorted(missing))}")
    rows: list[Mapping[str, Any]] = table.to_pylist()
    return rows


TABLES = {table: partial(_rows, table) for table in _TABLES}
"""Table -> function that makes its rows from a clone."""
