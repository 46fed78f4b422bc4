"""The importer: its rules on a small synthetic export, and on the real one where it is at hand."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets.importers.neusight2025 import _SOURCES, import_neusight2025, throttled_kinds
from joulecast.errors import DatasetError

GPU = "Made-up GPU"
PEAK, BANDWIDTH = 10e12, 500e9
SIZES = ("B", "H", "M", "N", "K", "in_channels", "out_channels", "kernel_size", "input_size", "stride", "padding")


def row(name, time_s, **sizes):
    values = {"operation": name, "gpu": GPU, "latency_ms": 1e3 * time_s, "torch": "2.1", "cudnn": "8", "cuda": "12"}
    return {**values, **dict.fromkeys(SIZES), **sizes}


SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("operation", "gpu", "torch", "cudnn", "cuda")),
        *((name, pa.float64()) for name in ("latency_ms", *SIZES)),
    ]
)


def written(folder, rows):
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "operations.parquet")
    (folder / "device_specs.json").write_text(json.dumps({GPU: {"SingleFLOPs": PEAK / 1e9, "Mem_Bw": BANDWIDTH / 1e9}}))
    return folder


BEFORE_S, AFTER_S, EFFICIENCY = 15e-6, 10e-6, 0.8


def additions():
    """Times that events measure of additions at 80 % of the bandwidth: 15 us + max(kernel, 10 us)."""
    for rows in (*range(1, 200), *range(300, 12000, 50)):
        kernel_s = 3 * 4 * rows * 1000 / BANDWIDTH / EFFICIENCY
        yield row("add", BEFORE_S + max(kernel_s, AFTER_S), B=rows, H=1000), kernel_s


def test_the_launch_is_found_and_taken_off(tmp_path):
    rows, kernels_s = zip(*additions(), strict=True)
    (dataset,) = import_neusight2025(written(tmp_path, list(rows)))
    seen = [(m.device_time_s, kernel_s) for m, kernel_s in zip(dataset.measurements, kernels_s, strict=True)]
    known = [(device_s, kernel_s) for device_s, kernel_s in seen if device_s is not None]
    assert len(known) > 200
    for device_s, kernel_s in known:
        assert device_s == pytest.approx(kernel_s, rel=1e-3)
    # A kernel that the launch hides is missing. It never gets the time of the launch.
    assert all(kernel_s < AFTER_S * 2 for device_s, kernel_s in seen if device_s is None)
    assert all(m.remark and m.usable for m in dataset.measurements if m.device_time_s is None)
    assert "10.0 us behind it" in dataset.card.method["events"]
    assert "add 15.0" in dataset.card.method["events"]


CONV = {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "input_size": 6, "stride": 1, "padding": 1}
FILTERS = {"out_channels": 4, "kernel_size": 3, "padding": 1, "bias": False}
# Name: sizes, the operation, FLOPs and floats that are read or written.
CASES = {
    "bmm": (
        {"B": 3, "M": 5, "N": 7, "K": 11}, Operation("matmul", [(3, 5, 7), (3, 7, 11)]),
        2 * 3 * 5 * 7 * 11, 3 * (5 * 7 + 7 * 11 + 5 * 11),
    ),
    # Weight 7 x 11 and bias 11.
    "linear": (
        {"B": 1, "M": 5, "N": 7, "K": 11}, Operation("linear", [(1, 5, 7)], {"out_features": 11}),
        2 * 5 * 7 * 11, 5 * 7 + 7 * 11 + 11 + 5 * 11,
    ),
    # 2 images of 3 x 6 x 6 through 4 filters of 3 x 3 x 3 at 6 x 6 places.
    "conv": (
        {"B": 2, **CONV}, Operation("conv2d", [(2, 3, 6, 6)], FILTERS),
        2 * 2 * 4 * 36 * 27, 2 * 3 * 36 + 4 * 27 + 2 * 4 * 36,
    ),
}  # fmt: skip
KINDS = {"softmax": 5, "gelu": 8, "relu": 1, "tanh": 6}  # FLOPs for each of 6 x 8 elements.
CASES |= {kind: ({"B": 6, "H": 8}, Operation(kind, [(6, 8)]), each * 48, 96) for kind, each in KINDS.items()}
CASES["ln"] = ({"B": 6, "H": 8}, Operation("layer_norm", [(6, 8)]), 6 * 48, 48 + 16 + 48)
for _kind in ("add", "mul", "div", "pow"):
    CASES[_kind] = ({"B": 6, "H": 8}, Operation(_kind, [(6, 8)] * 2), 48, 144)
    CASES[f"{_kind}u"] = ({"B": 6, "H": 8}, Operation(_kind, [(6, 8)]), 48, 96)


@pytest.mark.parametrize("name", _SOURCES)
def test_operations_are_built_from_their_sizes(tmp_path, name):
    sizes, operation, flops, floats = CASES[name]
    (dataset,) = import_neusight2025(written(tmp_path, [row(name, 1e-3, **sizes)]))
    (measurement,) = dataset.measurements
    assert measurement.operation == operation
    assert (operation.flops, operation.bytes_read + operation.bytes_written) == (flops, 4 * floats)
    assert (measurement.time_s, measurement.power_w, measurement.energy_j, measurement.line) == (1e-3, None, None, 1)


def test_what_beats_the_data_sheet_is_unusable(tmp_path):
    # 2 x 1000^3 FLOPs take 200 us at 10 TFLOP/s; 3 x 3 convolutions may take 1 / 2.25 of their time, products not.
    size = {"B": 1, "M": 1000, "N": 1000, "K": 1000}
    conv = {"in_channels": 100, "out_channels": 100, "kernel_size": 3, "stride": 1, "padding": 1}
    # 2 x 10 x 100 x 100 x 9 x 32 x 32 = 1.84 GFLOP: 184 us, 82 us with Winograd.
    rows = [
        row("bmm", 195e-6, **size),
        row("bmm", 150e-6, **size),
        row("conv", 90e-6, B=10, input_size=32, **conv),
        row("conv", 70e-6, B=10, input_size=32, **conv),
    ]
    (dataset,) = import_neusight2025(written(tmp_path, rows))
    assert [m.usable for m in dataset.measurements] == [True, False, True, False]
    assert "data sheet" in dataset.measurements[1].remark


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("swish", {}, r"row 2: unknown operation or GPU \(swish"),
        ("relu", {"gpu": "Tesla T5"}, "row 2: unknown operation or GPU"),
        ("relu", {"B": 0}, "row 2: a shape"),
        ("relu", {"latency_ms": 0.0}, r"line 2: time 0\.0 s is not positive"),
    ],
)
def test_unknown_operations_gpus_and_impossible_sizes_are_refused_with_their_rows(tmp_path, name, changes, says):
    rows = [row("relu", 1e-3, B=1, H=1), row(name, 1e-3, B=1, H=1) | changes]
    with pytest.raises(DatasetError, match=says):
        import_neusight2025(written(tmp_path, rows))


# Throttled boards, found in tables of times


def times(share, count=60, least_s=1e-3):
    """A number of rows that reach a share of the peak of the data sheet."""
    return np.full(count, least_s / share), np.full(count, least_s)


@pytest.mark.parametrize(
    ("linear", "batched", "throttled"),
    [
        (times(0.22), times(0.43), {"linear"}),  # P4
        (times(0.57), times(0.61), set()),  # P100
        (times(0.74), times(0.62), set()),  # A100
        (times(0.37), times(0.31), set()),  # T4: its cap holds for both
        (times(0.5), times(0.2), {"batched"}),
        # A board counts as throttled from 0.7 of the other's share downwards.
        (times(0.34), times(0.5), {"linear"}),
        (times(0.36), times(0.5), set()),
        # Short products, or only a few of them, are not enough to tell.
        (times(0.1, least_s=0.4e-3), times(0.5), set()),
        (times(0.1, count=49), times(0.5), set()),
    ],
)
def test_long_products_of_one_gpu_reach_about_the_same(linear, batched, throttled):
    assert throttled_kinds({"linear": linear, "batched": batched}) == throttled
    assert throttled_kinds({"linear": linear}) == throttled_kinds({}) == set()  # One kind alone cannot be compared.


def test_the_real_export_is_complete(neusight2025):
    real = {dataset.card.gpu: dataset for dataset in import_neusight2025(neusight2025)}
    assert {gpu: len(dataset.measurements) for gpu, dataset in real.items()} == {
        "AMD Instinct MI100": 2251,
        "AMD Instinct MI210": 2251,
        "NVIDIA A100 80GB PCIe": 4787,
        "NVIDIA A100-PCIE-40GB": 45521,
        "Tesla P100-PCIE-16GB": 51567,
        "Tesla P4": 51598,
        "Tesla T4": 51524,
        "Tesla V100-PCIE-32GB": 51512,
    }
    assert all(m.operation.precision == "fp32" for dataset in real.values() for m in dataset.measurements)
    # Only the P4 was throttled, in linear layers of more than 0.5 ms at 5.7 TFLOP/s.
    unusable = {gpu: [m for m in dataset.measurements if not m.usable] for gpu, dataset in real.items()}
    assert {gpu: len(rows) for gpu, rows in unusable.items() if rows} == {"Tesla P4": 4402}
    assert {m.operation.kind for m in unusable["Tesla P4"]} == {"linear"}
    assert min(m.operation.flops for m in unusable["Tesla P4"]) < 0.51e-3 * 5.7e12
    assert sum(m.device_time_s is None for dataset in real.values() for m in dataset.measurements) == 73077
    # Row 161,395 by hand: linear, B 1, M 499, N 38,909, K 2785, 7.760363 ms on the A100.
    (hand,) = [m for m in real["NVIDIA A100-PCIE-40GB"].measurements if m.line == 161395]
    assert hand.operation == Operation("linear", [(1, 499, 38909)], {"out_features": 2785})
    assert hand.time_s == pytest.approx(7.760363e-3, rel=1e-6)
    # 2 x 499 x 38,909 x 2785 = 108.1 GFLOP in 7.76 ms: 13.9 of 19.5 TFLOP/s.
    assert hand.operation.flops / hand.time_s == pytest.approx(13.93e12, rel=1e-3)
