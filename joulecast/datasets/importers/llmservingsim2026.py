"""Importer for the layers of github.com/casys-kaist/LLMServingSim: products and attention in bf16 on an RTX 4090.

Reads `layers.parquet`: times of the layers of a language model as vLLM runs them, by tokens, and of its attention by
the number of new and of cached tokens. Projections are PyTorch's linear layers. Batches that both start prompts and
continue others are one kernel for several operations, and are left out; so are vLLM's own norms, rotary embeddings,
activations and embeddings, which PyTorch does not call.
"""

from __future__ import annotations

from ...operations.operation import Operation
from .kernel_tables import KernelTable, Row

# Hidden size, size of the MLP, heads of queries and of keys, and size of a head, by the models' config.json.
_MODELS = {"meta-llama/Llama-3.1-8B": (4096, 14336, 32, 8, 128)}
_PRODUCTS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


def _operation(row: Row) -> Operation | str:
    """The operation of a row; empty for those that are left out."""
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
        return ""
    if row["n_decode"] > 0:
        batch, tokens, keys = row["n_decode"], 1, row["kv_decode"]
    else:
        batch, tokens, keys = 1, row["prefill_chunk"], row["kv_prefill"] + row["prefill_chunk"]
    cache = (int(batch), kept, int(keys), head)
    attributes = {"causal": bool(tokens > 1), "implementation": "vllm"}
    return Operation("attention", [(int(batch), heads, int(tokens), head), cache, cache], attributes, precision="bf16")


import_llmservingsim2026 = KernelTable(
    campaign="llmservingsim2026",
    columns=("model", "tp", "table", "layer", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "tokens"),
    gpus={"RTX4090": "NVIDIA GeForce RTX 4090"},
    known={"model": _MODELS},
    even=("gpu",),
    operation=_operation,
    kernel=lambda row: f"{row['layer'] or 'attention'} of {row['model']}",
    limits=lambda gpu: ("the clock was not recorded",),
    rest=": batches of prompts and decoding together, and vLLM's own norms, rotary embeddings, activations and "
    "embeddings are left out",
).read
