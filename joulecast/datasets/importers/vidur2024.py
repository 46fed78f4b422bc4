"""Importer for the layers of github.com/microsoft/vidur (Agrawal et al., MLSys 2024): products of LLMs in fp16.

Reads `layers.parquet`: medians of kernel times of the layers of seven language models on A100 and H100, by tokens and
by the number of GPUs that a layer is divided over. Projections are PyTorch's linear layers, and the residual connection
is PyTorch's addition. Other layers are left out: vidur's norms, rotary embeddings and activations are kernels that
PyTorch does not call, and its embedding masks the rows that belong to other GPUs.

The source does not state which A100 it is. It is taken for an A100 SXM4 80GB, because its products take as long as
those of aiconfigurator2026 on that board: for 8192 x 8192 the median ratio over 35 numbers of tokens is 1.07, and 1.03
beyond 8192 tokens.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ...operations.operation import Operation
from ..measurement import Card, Dataset, Measurement
from .reading import importer, read_columns, refuse_unknown, rows_of, sampled

ROWS = 60_000
"""Rows that are read by default."""

_SOURCE = (
    "github.com/microsoft/vidur, commit 7d47513; A. Agrawal et al., Vidur: A Large-Scale Simulation Framework for LLM "
    "Inference, MLSys 2024"
)
_METHOD = "profiled_kernel"
_GPUS = {"A100 (SXM or PCIe 80GB, not said)": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"}
_SIZES = ("tokens", "tensor_parallel", "hidden", "intermediate", "heads", "kv_heads")
_LEAST_US = 10.0  # Times are rounded to whole or half microseconds, which is 5 % of this.
_SHORT = f"times below {_LEAST_US:g} us, which are rounded"
_OTHER = "norms, rotary embeddings, activations and embeddings, whose kernels are not PyTorch's"


def _linear(tokens: int, features: int, outputs: int) -> Operation:
    return Operation("linear", [(tokens, features)], {"out_features": outputs, "bias": False}, precision="fp16")


def _operation(row: dict[str, Any]) -> Operation:
    """The operation of a layer on one of the GPUs that share it."""
    tokens, hidden, parallel = row["tokens"], row["hidden"], row["tensor_parallel"]
    inner = row["intermediate"] // parallel
    match row["layer"]:
        case "attn_pre_proj":
            head = hidden // row["heads"]
            return _linear(tokens, hidden, head * (row["heads"] + 2 * row["kv_heads"]) // parallel)
        case "attn_post_proj":
            return _linear(tokens, hidden // parallel, hidden)
        case "mlp_up_proj":
            # A gated layer computes its gate in the same product.
            return _linear(tokens, hidden, inner * (2 if row["gated"] else 1))
        case "mlp_down_proj":
            return _linear(tokens, inner, hidden)
        case _:
            return Operation("add", [(tokens, hidden)] * 2, precision="fp16")


_LAYERS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "add")


@importer
def import_vidur2024(folder: str | Path, *, rows: int | None = ROWS) -> list[Dataset]:
    """Read the source as one Dataset per GPU, at its default clock.

    Args:
        folder: The folder that holds layers.parquet.
        rows: Most rows to read, sampled evenly from GPUs and layers; None for all.

    Raises:
        DatasetError: The file is missing or damaged, or has rows of unknown GPUs.
        MissingDependencyError: pyarrow is not installed.
    """
    path = Path(folder) / "layers.parquet"
    columns = read_columns(path, ("gpu", "model", "layer", *_SIZES, "gated", "time_us"))
    refuse_unknown(columns, path, "GPU", gpu=_GPUS)
    ours, long = np.isin(columns["layer"], _LAYERS), columns["time_us"] >= _LEAST_US
    measurements: dict[str, list[Measurement]] = defaultdict(list)
    for row in rows_of(columns, sampled(columns, ours & long, ("gpu", "layer"), rows)):
        measurements[row["gpu"]].append(_measurement(row))
    left_out = {_OTHER: Counter(columns["gpu"][~ours]), _SHORT: Counter(columns["gpu"][ours & ~long])}
    totals = Counter(columns["gpu"])
    return [
        _dataset(gpu, found, totals[gpu], {reason: counts[gpu] for reason, counts in left_out.items()})
        for gpu, found in sorted(measurements.items())
    ]


def _measurement(row: dict[str, Any]) -> Measurement:
    time_s = row["time_us"] / 1e6
    return Measurement(
        _operation(row),
        time_s,
        None,
        None,
        device_time_s=time_s,
        kernel=f"{row['layer']} of {row['model']}",
        campaign="vidur2024",
        method=_METHOD,
        line=row["line"],
    )


def _dataset(gpu: str, measurements: list[Measurement], total: int, left_out: dict[str, int]) -> Dataset:
    card = Card(
        gpu=_GPUS[gpu],
        clock_mhz=None,
        source=_SOURCE,
        licence="MIT",
        method={_METHOD: "median of kernel times in a profiler's trace: no launch in it"},
        without_host=(_METHOD,),
        sensor="none",
        software={"torch": "unknown", "driver": "unknown"},
        limits=(
            "no power",
            f"which {gpu.split()[0]} is not said; taken for the SXM board by its rates",
            f"{len(measurements)} of {total} rows are here",
            *(f"{count} rows left out: {reason}" for reason, count in left_out.items() if count),
        ),
    )
    return Dataset(card, tuple(measurements))
