"""Importer for the layers of github.com/casys-kaist/LLMServingSim: products and attention in bf16 on an RTX 4090.

Reads `layers.parquet`: times of the layers of a language model as vLLM runs them, by tokens, and of its attention by
the number of new and of cached tokens. Projections are PyTorch's linear layers. Batches that both start prompts and
continue others are one kernel for several operations, and are left out; so are vLLM's own norms, rotary embeddings,
activations and embeddings, which PyTorch does not call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...operations.operation import Operation
from ..measurement import Card, Dataset, Measurement
from .reading import importer, read_columns, refuse_unknown, rows_of

_SOURCE = "github.com/casys-kaist/LLMServingSim: layers of served models, profiled in vLLM"
_METHOD = "profiled_kernel"
_GPUS = {"RTX4090": "NVIDIA GeForce RTX 4090"}
# Hidden size, size of the MLP, heads of queries and of keys, and size of a head, by the models' config.json.
_MODELS = {"meta-llama/Llama-3.1-8B": (4096, 14336, 32, 8, 128)}
_PRODUCTS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
_COLUMNS = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "tokens", "time_us")


def _operation(row: dict[str, Any]) -> Operation | None:
    """The operation of a row; None for those that are left out."""
    hidden, inner, heads, kept, head = _MODELS[row["model"]]
    inner, heads, kept = inner // row["tp"], heads // row["tp"], kept // row["tp"]
    if row["layer"] in _PRODUCTS:
        sizes = {
            "qkv_proj": (hidden, (heads + 2 * kept) * head),
            "o_proj": (heads * head, hidden),
            "gate_up_proj": (hidden, 2 * inner),
            "down_proj": (inner, hidden),
        }
        features, outputs = sizes[row["layer"]]
        shape = (int(row["tokens"]), features)
        return Operation("linear", [shape], {"out_features": outputs, "bias": False}, precision="bf16")
    if row["table"] != "attention" or (row["n_decode"] > 0) == (row["prefill_chunk"] > 0):
        return None
    if row["n_decode"] > 0:
        batch, tokens, keys = row["n_decode"], 1, row["kv_decode"]
    else:
        batch, tokens, keys = 1, row["prefill_chunk"], row["kv_prefill"] + row["prefill_chunk"]
    cache = (int(batch), kept, int(keys), head)
    attributes = {"causal": bool(tokens > 1), "implementation": "vllm"}
    return Operation("attention", [(int(batch), heads, int(tokens), head), cache, cache], attributes, precision="bf16")


@importer
def import_llmservingsim2026(folder: str | Path) -> list[Dataset]:
    """Read the source as one Dataset per GPU, at its default clock.

    Args:
        folder: The folder that holds layers.parquet.

    Raises:
        DatasetError: The file is missing or damaged, or has rows of unknown GPUs or models.
        MissingDependencyError: pyarrow is not installed.
    """
    path = Path(folder) / "layers.parquet"
    columns = read_columns(path, ("gpu", "model", "tp", "table", "layer", *_COLUMNS))
    refuse_unknown(columns, path, "GPU or model", gpu=_GPUS, model=_MODELS)
    found: dict[str, list[Measurement]] = {}
    for row in rows_of(columns, np.arange(len(columns["gpu"]))):
        operation, time_s = _operation(row), row["time_us"] / 1e6
        mine = found.setdefault(row["gpu"], [])
        if operation is not None:
            mine.append(
                Measurement(
                    operation,
                    time_s,
                    None,
                    None,
                    device_time_s=time_s,
                    kernel=f"{row['layer'] or 'attention'} of {row['model']}",
                    campaign="llmservingsim2026",
                    method=_METHOD,
                    line=row["line"],
                )
            )
    return [_dataset(gpu, mine, int((columns["gpu"] == gpu).sum())) for gpu, mine in sorted(found.items())]


def _dataset(gpu: str, measurements: list[Measurement], total: int) -> Dataset:
    card = Card(
        gpu=_GPUS[gpu],
        clock_mhz=None,
        source=_SOURCE,
        licence="MIT",
        method={_METHOD: "kernel times of vLLM's layers in a profiler's trace: no launch in it"},
        without_host=(_METHOD,),
        sensor="none",
        software={"vllm": "unknown", "driver": "unknown"},
        limits=(
            "no power",
            "the clock was not recorded",
            f"{len(measurements)} of {total} rows are here: batches of prompts and decoding together, and vLLM's own "
            "norms, rotary embeddings, activations and embeddings are left out",
        ),
    )
    return Dataset(card, tuple(measurements))
