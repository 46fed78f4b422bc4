"""The importer of vidur's layers: shapes by hand on synthetic rows, and the real table if it is available."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets.importers.vidur2024 import import_vidur2024
from joulecast.errors import DatasetError

# Llama 2 70B over two GPUs: 64 heads of 128, 8 of keys and values, and an MLP of 28672.
LLAMA = {"hidden": 8192, "intermediate": 28672, "heads": 64, "kv_heads": 8, "gated": True, "tensor_parallel": 2}


def row(layer, **changes):
    values = {"gpu": "H100", "model": "llama", "layer": layer, "tokens": 512, "time_us": 100.0, **LLAMA}
    return {**values, **changes}


def imported(tmp_path, listed, **options):
    pq.write_table(pa.Table.from_pylist(listed), tmp_path / "layers.parquet")
    return import_vidur2024(tmp_path, **options)


def linear(features, outputs):
    return Operation("linear", [(512, features)], {"out_features": outputs, "bias": False}, precision="fp16")


@pytest.mark.parametrize(
    ("layer", "changes", "operation"),
    [
        # (64 + 2 x 8) heads of 128, half of them here.
        ("attn_pre_proj", {}, linear(8192, 5120)),
        ("attn_post_proj", {}, linear(4096, 8192)),
        # Gate and up in one: 2 x 28672 / 2.
        ("mlp_up_proj", {}, linear(8192, 28672)),
        ("mlp_up_proj", {"gated": False}, linear(8192, 14336)),
        ("mlp_down_proj", {}, linear(14336, 8192)),
        ("add", {}, Operation("add", [(512, 8192)] * 2, precision="fp16")),
    ],
)
def test_layers_are_operations_of_one_gpu(tmp_path, layer, changes, operation):
    (dataset,) = imported(tmp_path, [row(layer, **changes)])
    (m,) = dataset.measurements
    assert m.operation == operation
    assert m.device_time_s == pytest.approx(100e-6)
    assert dataset.card.gpu == "NVIDIA H100 80GB HBM3"


def test_other_kernels_and_rounded_times_are_left_out(tmp_path):
    (dataset,) = imported(tmp_path, [row("add"), row("add", time_us=9.5), row("input_layernorm"), row("mlp_act")])
    assert [m.line for m in dataset.measurements] == [1]
    assert "1 of 4 rows are here" in dataset.card.limits
    assert any(limit.startswith("2 rows left out: norms") for limit in dataset.card.limits)
    assert any(limit.startswith("1 rows left out: times below 10 us") for limit in dataset.card.limits)


def test_an_unknown_gpu_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="row 2: unknown GPU"):
        imported(tmp_path, [row("add"), row("add", gpu="A40")])


def test_the_real_table(vidur2024):
    datasets = import_vidur2024(vidur2024, rows=2_000)
    assert [dataset.card.gpu for dataset in datasets] == ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"]
    assert sum(len(dataset.measurements) for dataset in datasets) == 2_000
    # No product is faster than 312 (A100) and 989.4 TFLOP/s (H100).
    for dataset, peak in zip(datasets, (312e12, 989.4e12), strict=True):
        assert max(m.operation.flops / m.time_s for m in dataset.measurements) < peak
