"""Importers of tables of kernel times: shapes by hand on made-up rows, and the real tables where they are at hand."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets import PUBLISHED, load, save
from joulecast.errors import DatasetError, InputError
from joulecast.predictors.measured import variants

# Llama 2 70B over two GPUs: 64 heads of 128, 8 of keys and values, and an MLP of 28672.
LLAMA = {"hidden": 8192, "intermediate": 28672, "heads": 64, "kv_heads": 8, "gated": True, "tensor_parallel": 2}
VIDUR = {"gpu": "H100", "model": "llama", "layer": "add", "tokens": 48, "time_us": 100.0, **LLAMA}
# Llama 3.1 8B: 32 heads of 128 with 8 of keys and values, hidden size 4096, MLP of 14336.
SERVED = {"gpu": "RTX4090", "model": "meta-llama/Llama-3.1-8B", "tp": 1, "time_us": 100.0, "table": "dense"}
SERVED |= dict.fromkeys(("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"), float("nan"))
SERVED |= {"layer": "o_proj", "tokens": 48.0}


def attention(chunk, cached, sequences, keys):
    sizes = {"prefill_chunk": chunk, "kv_prefill": cached, "n_decode": sequences, "kv_decode": keys}
    return {"table": "attention", "layer": "", "tokens": float("nan"), **{k: float(v) for k, v in sizes.items()}}


def convolution(direction="F", **changes):
    """3 x 3, stride 2, padding 1: 16 x 56 x 56 becomes 32 x 28 x 28."""
    sides = {"c": 16, "h": 56, "w": 56, "k": 32, "out_h": 28, "out_w": 28}
    if direction != "F":
        sides = {"c": 32, "h": 28, "w": 28, "k": 16, "out_h": 56, "out_w": 56}
    row = {"gpu": "AMD Instinct MI210", "precision": "fp16", "direction": direction, "solver": "ConvAsm", **sides}
    row |= {"r": 3, "s": 3, "n": 4, "groups": 1, "time_us": 50.0, "stride_h": 2, "stride_w": 2}
    return row | dict.fromkeys(("pad_h", "pad_w", "dilation_h", "dilation_w"), 1) | changes


def imported(folder, source, *rows):
    table = PUBLISHED[source]
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / table.tables[0])
    (dataset,) = table.importer(folder)
    return dataset


def linear(rows, features, outputs, precision):
    return Operation("linear", [(rows, features)], {"out_features": outputs, "bias": False}, precision=precision)


def attended(batch, queries, keys, causal):
    cache = [(batch, 8, keys, 128)] * 2
    attributes = {"causal": causal, "implementation": "vllm"}
    return Operation("attention", [(batch, 32, queries, 128), *cache], attributes, precision="bf16")


LAYERS = {
    # (64 + 2 x 8) heads of 128, half of them here.
    "attn_pre_proj": ("vidur2024", {}, linear(48, 8192, 5120, "fp16")),
    "attn_post_proj": ("vidur2024", {}, linear(48, 4096, 8192, "fp16")),
    # Gate and up in one: 2 x 28672 / 2.
    "mlp_up_proj": ("vidur2024", {}, linear(48, 8192, 28672, "fp16")),
    "mlp_up_proj without a gate": ("vidur2024", {"gated": False}, linear(48, 8192, 14336, "fp16")),
    "mlp_down_proj": ("vidur2024", {}, linear(48, 14336, 8192, "fp16")),
    "add": ("vidur2024", {}, Operation("add", [(48, 8192)] * 2, precision="fp16")),
    "qkv_proj": ("llmservingsim2026", {}, linear(48, 4096, 6144, "bf16")),
    "o_proj": ("llmservingsim2026", {}, linear(48, 4096, 4096, "bf16")),
    "gate_up_proj": ("llmservingsim2026", {}, linear(48, 4096, 28672, "bf16")),
    "down_proj": ("llmservingsim2026", {}, linear(48, 14336, 4096, "bf16")),
    "a prompt after a cache": ("llmservingsim2026", attention(64, 512, 0, 0), attended(1, 64, 576, True)),
    "decoding": ("llmservingsim2026", attention(0, 0, 16, 1024), attended(16, 1, 1024, False)),
}
BOARDS = {"vidur2024": "NVIDIA H100 80GB HBM3", "llmservingsim2026": "NVIDIA GeForce RTX 4090"}
ROWS = {"vidur2024": VIDUR, "llmservingsim2026": SERVED, "miopen2024": convolution()}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_operations_of_one_gpu(tmp_path, name):
    source, changes, operation = LAYERS[name]
    dataset = imported(tmp_path, source, {**ROWS[source], "layer": name.split()[0], **changes})
    (m,) = dataset.measurements
    assert m.operation == operation
    assert m.device_time_s == pytest.approx(100e-6)
    assert dataset.card.gpu == BOARDS[source]


X, W, Y = 4 * 16 * 56 * 56, 32 * 16 * 9, 4 * 32 * 28 * 28
DIRECTION = {"out_channels": 32, "kernel_size": 3, "stride": 2, "padding": 1, "bias": False}


@pytest.mark.parametrize(
    ("letter", "direction", "read", "written"),
    [("F", "forward", X + W, Y), ("B", "input_gradient", Y + W, X), ("W", "weight_gradient", X + Y, W)],
)
def test_directions_have_their_sides(tmp_path, letter, direction, read, written):
    dataset = imported(tmp_path, "miopen2024", convolution(letter))
    (m,) = dataset.measurements
    attributes = {**DIRECTION, "direction": direction}
    assert m.operation == Operation("conv2d", [(4, 16, 56, 56)], attributes, precision="fp16")
    assert m.operation.flops == 2 * Y * 16 * 9
    assert (m.operation.bytes_read, m.operation.bytes_written) == (2 * read, 2 * written)
    assert (m.device_time_s, m.kernel, m.engine) == (pytest.approx(50e-6), "ConvAsm", "MIOpen")
    assert dataset.card.gpu == "AMD Instinct MI210"
    assert load(save(dataset, tmp_path / "saved")) == dataset


def test_a_gradient_is_held_out_with_its_other_precisions_and_is_no_training_operation():
    attributes = {**DIRECTION, "direction": "weight_gradient"}
    gradient = Operation("conv2d", [(4, 16, 56, 56)], attributes, precision="bf16")
    precisions = ("fp64", "fp32", "tf32", "fp16", "bf16")
    assert variants([gradient]) == {gradient.replace(precision=each) for each in precisions}
    with pytest.raises(InputError, match="forward and backward together"):
        gradient.replace(mode="training")


# 2 x 4 x 32 x 28 x 28 x 144 = 28.9 MFLOP at 181 TFLOP/s: 0.16 us, and 0.07 with Winograd's fewer multiplications.
LEFT_OUT = {
    "vidur2024": (
        # A row that is skipped may have unknown words.
        [
            {},
            {"tokens": 512, "layer": "mlp_up_proj"},
            {"layer": "input_layernorm"},
            {"layer": "mlp_act"},
            {"layer": "mlp_act", "gpu": "A40"},
        ],
        ["2 rows left out: norms", "1 rows left out: products of over 5e+10 FLOPs"],
    ),
    "llmservingsim2026": ([{}, {"layer": "layernorm"}, {"layer": "act_fn"}, attention(64, 0, 16, 1024)], []),
    "miopen2024": (
        [{"time_us": 0.1}, {"time_us": 0.0}, {"out_h": 27}, {"time_us": 0.06}],
        [
            "1 rows left out: sizes that do not fit each other",
            "1 rows left out: times of 0, too short for the clock",
            "1 rows left out: times that the data sheet does not allow",
        ],
    ),
}


@pytest.mark.parametrize("source", LEFT_OUT)
def test_what_is_left_out_is_counted(tmp_path, source):
    changes, reasons = LEFT_OUT[source]
    dataset = imported(tmp_path, source, *({**ROWS[source], **each} for each in changes))
    assert [m.line for m in dataset.measurements] == [1]
    assert any(limit.startswith("1 of 4 rows are here") for limit in dataset.card.limits)
    counted = [limit for limit in dataset.card.limits if "rows left out" in limit]
    assert len(counted) == len(reasons)
    assert all(any(limit.startswith(reason) for limit in counted) for reason in reasons)


@pytest.mark.parametrize(
    ("source", "word", "what"),
    [
        ("vidur2024", "gpu", "GPU"),
        *(("llmservingsim2026", word, "GPU or model") for word in ("gpu", "model")),
        *(("miopen2024", word, "GPU, precision or direction") for word in ("gpu", "direction", "precision")),
    ],
)
def test_unknown_words_are_refused(tmp_path, source, word, what):
    with pytest.raises(DatasetError, match=f"row 2: unknown {what} "):
        imported(tmp_path, source, ROWS[source], {**ROWS[source], word: "MI50"})


def test_the_real_tables(vidur2024, miopen2024):
    datasets = PUBLISHED["vidur2024"].importer(vidur2024, rows=2_000)
    # No product is faster than 312 (A100) and 989.4 TFLOP/s (H100).
    peaks = {"NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA H100 80GB HBM3": 989.4e12}
    assert [dataset.card.gpu for dataset in datasets] == [*peaks]
    kept = [m.operation.flops for dataset in datasets for m in dataset.measurements]
    assert 1_000 < len(kept) < 2_000
    assert max(kept) <= 5e10
    for dataset in datasets:
        assert max(m.operation.flops / m.time_s for m in dataset.measurements) < peaks[dataset.card.gpu]
    datasets = PUBLISHED["miopen2024"].importer(miopen2024, rows=2_000)
    assert [dataset.card.gpu for dataset in datasets] == ["AMD Instinct MI210", "AMD Instinct MI250X"]
    operations = [m.operation for dataset in datasets for m in dataset.measurements]
    assert 1_950 < len(operations) <= 2_000
    assert Counter(o.attributes["direction"] for o in operations).most_common()[-1][1] > 600
    assert {o.precision for o in operations} == {"fp32", "fp16", "bf16"}
