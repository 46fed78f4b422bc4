"""The importer of LLMServingSim's layers: shapes by hand on synthetic rows, and the real table if it is available."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets.importers.llmservingsim2026 import import_llmservingsim2026
from joulecast.errors import DatasetError

MODEL = {"gpu": "RTX4090", "model": "meta-llama/Llama-3.1-8B", "tp": 1, "time_us": 100.0}
NONE = dict.fromkeys(("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "tokens"), float("nan"))


def dense(layer, **changes):
    return {**MODEL, **NONE, "table": "dense", "layer": layer, "tokens": 48.0, **changes}


def attention(chunk, cached, sequences, keys):
    sizes = {"prefill_chunk": chunk, "kv_prefill": cached, "n_decode": sequences, "kv_decode": keys}
    return {**MODEL, **NONE, "table": "attention", "layer": "", **{k: float(v) for k, v in sizes.items()}}


def imported(tmp_path, rows):
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "layers.parquet")
    (dataset,) = import_llmservingsim2026(tmp_path)
    return dataset


# Llama 3.1 8B: 32 heads of 128 with 8 of keys and values, hidden size 4096, MLP of 14336.
@pytest.mark.parametrize(
    ("row", "operation"),
    [
        (dense("qkv_proj"), Operation("linear", [(48, 4096)], {"out_features": 6144, "bias": False}, precision="bf16")),
        (dense("o_proj"), Operation("linear", [(48, 4096)], {"out_features": 4096, "bias": False}, precision="bf16")),
        (
            dense("gate_up_proj"),
            Operation("linear", [(48, 4096)], {"out_features": 28672, "bias": False}, precision="bf16"),
        ),
        (
            dense("down_proj"),
            Operation("linear", [(48, 14336)], {"out_features": 4096, "bias": False}, precision="bf16"),
        ),
        (
            attention(64, 512, 0, 0),
            Operation(
                "attention",
                [(1, 32, 64, 128), (1, 8, 576, 128), (1, 8, 576, 128)],
                {"causal": True, "implementation": "vllm"},
                precision="bf16",
            ),
        ),
        (
            attention(0, 0, 16, 1024),
            Operation(
                "attention",
                [(16, 32, 1, 128), (16, 8, 1024, 128), (16, 8, 1024, 128)],
                {"causal": False, "implementation": "vllm"},
                precision="bf16",
            ),
        ),
    ],
    ids=["qkv", "o", "gate and up", "down", "prompt after a cache", "decoding"],
)
def test_layers_are_operations(tmp_path, row, operation):
    dataset = imported(tmp_path, [row])
    (m,) = dataset.measurements
    assert m.operation == operation
    assert m.device_time_s == pytest.approx(100e-6)
    assert dataset.card.gpu == "NVIDIA GeForce RTX 4090"


def test_mixed_batches_and_other_kernels_are_left_out(tmp_path):
    dataset = imported(tmp_path, [dense("o_proj"), dense("layernorm"), dense("act_fn"), attention(64, 0, 16, 1024)])
    assert [m.line for m in dataset.measurements] == [1]
    assert any(limit.startswith("1 of 4 rows are here") for limit in dataset.card.limits)


@pytest.mark.parametrize("changes", [{"gpu": "RTX3090"}, {"model": "gpt2"}])
def test_what_is_unknown_is_refused(tmp_path, changes):
    with pytest.raises(DatasetError, match="row 2: unknown GPU or model"):
        imported(tmp_path, [dense("o_proj"), dense("o_proj", **changes)])
