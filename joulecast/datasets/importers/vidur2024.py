"""Importer for the layers of github.com/microsoft/vidur (Agrawal et al., MLSys 2024): products of LLMs in fp16.

Reads `layers.parquet`: medians of kernel times of the layers of seven language models on A100 and H100, by tokens and
by the number of GPUs that a layer is divided over. Projections are PyTorch's linear layers, and the residual connection
is PyTorch's addition. Other layers are left out: vidur's norms, rotary embeddings and activations are kernels that
PyTorch does not call, and its embedding masks the rows that belong to other GPUs.

The source does not state which A100 it is. It is taken for an A100 SXM4 80GB, because its products take as long as
those of aiconfigurator2026 on that board: for 8192 x 8192 the median ratio over 35 numbers of tokens is 1.07, and 1.03
beyond 8192 tokens.

Large products are left out: they ran for long, and the power cap held their clock down. On the A100 they take 1.04 to
1.10 times as long as in bursts (aiconfigurator2026) from 0.2 ms on, where shorter ones take 0.96 times as long.

Times are rounded to whole or half microseconds. Additions that take 1 to 10 us are kept nonetheless: of many, the
rounding averages out, and without the quick ones the others would say that all are slow.
"""

from __future__ import annotations

import numpy as np

from ...operations.operation import Operation
from .kernel_tables import KernelTable, Row

_MOST_FLOPS = 5e10  # 0.16 ms at the peak of an A100.
_THROTTLED = f"products of over {_MOST_FLOPS:g} FLOPs, which the power cap slowed down"
_SIZES = ("tokens", "tensor_parallel", "hidden", "intermediate", "heads", "kv_heads")


def _linear(tokens: int, features: int, outputs: int) -> Operation:
    return Operation("linear", [(tokens, features)], {"out_features": outputs, "bias": False}, precision="fp16")


def _operation(row: Row) -> Operation | str:
    """The operation of a layer on one of the GPUs that share it, or why it is left out."""
    operation = _whole_operation(row)
    return _THROTTLED if operation.flops > _MOST_FLOPS else operation


def _whole_operation(row: Row) -> Operation:
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


import_vidur2024 = KernelTable(
    campaign="vidur2024",
    columns=("model", "layer", *_SIZES, "gated"),
    gpus={"A100 (SXM or PCIe 80GB, not said)": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"},
    even=("gpu", "layer"),
    operation=_operation,
    kernel=lambda row: f"{row['layer']} of {row['model']}",
    limits=lambda gpu: (f"which {gpu.split()[0]} is not said; taken for the SXM board by its rates",),
    skip={
        "norms, rotary embeddings, activations and embeddings, whose kernels are not PyTorch's": lambda columns: (
            ~np.isin(columns["layer"], _LAYERS)
        ),
    },
).read
