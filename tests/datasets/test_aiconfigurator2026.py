"""The importer of engines' kernels: its rules on a small synthetic export, and on the real one if it is available."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets import load, save
from joulecast.datasets.importers import aiconfigurator2026
from joulecast.datasets.importers.aiconfigurator2026 import import_aiconfigurator2026
from joulecast.datasets.importers.reading import thinned
from joulecast.errors import DatasetError

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
NAN = float("nan")


def linear(m, time_us, *, n=4096, k=4096, gpu=H100, stack="sglang 0.5.14", precision="bfloat16", power_w=NAN):
    device = {"gpu": gpu, "stack": stack, "kernel": "some_kernel", "precision": precision}
    return {**device, "m": m, "n": n, "k": k, "time_us": time_us, "power_w": power_w, "power_limit_w": 700.0}


def attention(phase, tokens, cached, **changes):
    row = {**linear(1, 10.0), "phase": phase, "cache_precision": "bfloat16", "batch": 2, "tokens": tokens}
    row |= {"cached": cached, "heads": 8, "kv_heads": 2, "head_size": 64, "window": 0, **changes}
    return {name: value for name, value in row.items() if name not in ("m", "n", "k")}


def imported(tmp_path, listed, table="linear", **options):
    pq.write_table(pa.Table.from_pylist(listed), tmp_path / f"{table}.parquet")
    return import_aiconfigurator2026(tmp_path, **options)


@pytest.mark.parametrize(
    ("stack", "precision", "expected"),
    [
        ("sglang 0.5.14", "bfloat16", ("bf16", False, "pytorch")),
        ("trtllm 1.3.0rc20", "bfloat16", ("bf16", False, "tensorrt_llm")),
        ("vllm 0.22.0", "fp8", ("fp8", False, "vllm")),
        ("sglang 0.5.14", "fp8_block", ("fp8", True, "sglang")),
    ],
)
def test_a_product_is_m_k_times_k_n(tmp_path, stack, precision, expected):
    (dataset,) = imported(tmp_path, [linear(64, 8.0, n=128, k=256, stack=stack, precision=precision)])
    (m,) = dataset.measurements
    assert m.operation.input_shapes == ((64, 256),)
    assert m.operation.output_shape == (64, 128)
    assert m.operation.flops == 2 * 64 * 128 * 256
    attributes = m.operation.attributes
    assert (m.operation.precision, attributes["block_scaled"], attributes["implementation"]) == expected
    assert not attributes["bias"]
    assert m.device_time_s == m.time_s == pytest.approx(8e-6)
    assert (m.engine, m.kernel, m.line, m.power_w) == (stack, "some_kernel", 1, None)


def test_phases_of_attention_are_ordinary_attention(tmp_path):
    rows = [
        attention("context", 128, 0),
        attention("generation", 1, 127, cache_precision="fp8", window=32),
        attention("encoder", 100, 0, cache_precision="", kv_heads=8, window=0),
        attention("context", 16, 0, window=128),
        attention("generation", 1, 31, precision="fp8", cache_precision="fp8"),
    ]
    (dataset,) = imported(tmp_path, rows, "attention")
    engine = {"implementation": "sglang"}
    cache = [(2, 2, 128, 64)] * 2
    few = [(2, 2, 32, 64)] * 2
    assert [m.operation for m in dataset.measurements] == [
        Operation("attention", [(2, 8, 128, 64), *cache], {"causal": True, **engine}, precision="bf16"),
        Operation(
            "attention", [(2, 8, 1, 64), *cache], {"window": 32, "cache_precision": "fp8", **engine}, precision="bf16"
        ),
        Operation("attention", [(2, 8, 100, 64)] * 3, engine, precision="bf16"),
        # A window that is wider than all keys has no effect, so it is left out.
        Operation("attention", [(2, 8, 16, 64), *[(2, 2, 16, 64)] * 2], {"causal": True, **engine}, precision="bf16"),
        Operation("attention", [(2, 8, 1, 64), *few], engine, precision="fp8"),
    ]


def test_experts_and_collectives(tmp_path):
    base = {"gpu": H100, "stack": "sglang 0.5.14", "precision": "bfloat16"}
    sizes = {"tokens": 64, "hidden": 1024, "intermediate": 512, "top_k": 2, "experts": 8, "tensor_parallel": 2}
    layer = {**base, **sizes, "expert_parallel": 4, "distribution": "balanced", "time_us": 40.0}
    layers = [{**layer, "kernel": "fused_moe_triton"}, {**layer, "kernel": "flashinfer_moe", "precision": "nvfp4"}]
    layers[1]["gpu"] = "NVIDIA B200"
    h100, b200 = sorted(imported(tmp_path, layers, "experts"), key=lambda dataset: dataset.card.gpu, reverse=True)
    attributes = {"intermediate": 512, "top_k": 2, "experts": 8, "tensor_parallel": 2, "expert_parallel": 4}
    expected = Operation("experts", [(64, 1024)], {**attributes, "implementation": "sglang"}, precision="bf16")
    assert [m.operation for m in h100.measurements] == [expected]
    flashinfer = Operation("experts", [(64, 1024)], {**attributes, "implementation": "flashinfer"}, precision="nvfp4")
    assert [m.operation for m in b200.measurements] == [flashinfer]

    (tmp_path / "experts.parquet").unlink()
    message = {**base, "kernel": "NCCL", "precision": "half", "gpus": 8, "message_size": 1 << 20, "time_us": 20.0}
    messages = [
        {**message, "collective": "all_gather"},
        {**message, "collective": "alltoall", "gpu": "NVIDIA L40S", "time_us": 200.0},
        {**message, "collective": "all_reduce", "kernel": "vLLM_custom_graph", "stack": "vllm 0.14.0"},
        {**message, "collective": "all_reduce", "kernel": "vLLM_custom_eager", "stack": "vllm 0.14.0"},
        {**message, "collective": "all_reduce", "precision": "int8"},
        # 2 MiB take 4.7 us at 450 GB/s.
        {**message, "collective": "all_reduce", "time_us": 4.0},
    ]
    datasets = {dataset.card.gpu: dataset for dataset in imported(tmp_path, messages, "collectives")}
    gather = Operation("all_gather", [(1 << 17,)], {"gpus": 8}, precision="fp16")
    reduce = Operation("all_reduce", [(1 << 20,)], {"gpus": 8, "implementation": "vllm"}, precision="fp16")
    assert [m.operation for m in datasets[H100].measurements] == [gather, reduce]
    assert gather.output_shape == (1 << 20,)
    assert sum("1 rows left out" in limit for limit in datasets[H100].card.limits) == 3
    (m,) = datasets["NVIDIA L40S"].measurements
    assert m.operation == Operation("all_to_all", [(1 << 20,)], {"gpus": 8, "link": "pcie"}, precision="fp16")


def test_rows_that_four_neighbours_contradict_are_left_out(tmp_path):
    times = [10.0, 10.1, 10.2, 16.0, 10.4, 10.5, 10.6, 6.0, 10.8, 10.9]
    (dataset,) = imported(tmp_path, [linear(64 + m, t) for m, t in enumerate(times)])
    assert [m.line for m in dataset.measurements] == [1, 2, 3, 5, 6, 7, 9, 10]
    assert any("linear: 2 rows left out: times that all four" in limit for limit in dataset.card.limits)
    assert "linear: 8 of 10 rows are here" in dataset.card.limits


def test_kernels_that_alternate_between_two_speeds_stay():
    times = np.array([10.0, 17.0] * 5)
    assert not aiconfigurator2026.spikes(times, np.zeros(10, dtype=int), np.arange(10)).any()
    times[5] = 60.0
    assert np.flatnonzero(aiconfigurator2026.spikes(times, np.zeros(10, dtype=int), np.arange(10))).tolist() == [5]
    # Neighbours of another group do not count.
    assert not aiconfigurator2026.spikes(times, np.arange(10), np.arange(10)).any()


def test_what_waits_for_the_host_and_what_the_data_sheet_does_not_allow_are_left_out(tmp_path):
    # 2 x 4096^3 FLOPs at 989.4 TFLOP/s, which holds at 1830 MHz of 1980: 128 us at best.
    rows = [linear(4096, 120.0), linear(4096, 130.0, n=4097), *(linear(8, 5.0, n=n) for n in range(100, 130))]
    (dataset,) = imported(tmp_path, rows)
    assert [m.line for m in dataset.measurements] == [*range(2, 33)]
    assert any("1 rows left out: times that the data sheet" in limit for limit in dataset.card.limits)
    in_blocks = {"stack": "vllm 0.22.0", "precision": "fp8_block"}
    rows = [linear(m, 50.0, n=n, **in_blocks) for m, n in ((1, 128), (2, 256))]
    rows += [linear(4096, 500.0, n=65536, **in_blocks), linear(1, 3.0)]
    (dataset,) = imported(tmp_path, rows)
    assert [m.line for m in dataset.measurements] == [3, 4]


def test_stacks_whose_large_rows_beat_the_data_sheet_are_unusable(tmp_path):
    # 4.3 GB of keys and values take 1.28 ms at 3.35 TB/s.
    long = {"batch": 64, "heads": 32, "kv_heads": 32, "head_size": 128}
    rows = [attention("generation", 1, 4095 + n, time_us=700.0, **long) for n in range(5)]
    rows += [attention("generation", 1, 4095 + n, time_us=1500.0, stack="vllm 0.22.0", **long) for n in range(5)]
    (dataset,) = imported(tmp_path, rows, "attention")
    assert [m.usable for m in dataset.measurements] == [False] * 5 + [True] * 5
    assert "not what they say" in dataset.measurements[0].remark


def test_power_of_short_calls_and_below_that_of_neighbours_is_not_used(tmp_path):
    rows = [linear(2048 + m, 100.0 + m, gpu=H200, stack="vllm 0.22.0", power_w=600.0) for m in range(8)]
    rows[4]["power_w"] = 450.0
    rows += [linear(64, 15.0, gpu=H200, stack="vllm 0.22.0", power_w=500.0), linear(64, 15.0, gpu=H200)]
    (dataset,) = imported(tmp_path, rows)
    by_line = {m.line: m for m in dataset.measurements}
    assert [line for line, m in by_line.items() if not m.power_usable] == [5, 9]
    assert by_line[1].energy_j == pytest.approx(600.0 * 100e-6)
    assert dataset.card.power_limit_w == 700.0


def test_runs_of_vllm_that_the_cap_did_not_hold_are_bursts(tmp_path):
    rows = [attention("context", 4096 + n, 0, heads=32, gpu=H200, time_us=900.0 + n) for n in range(4)]
    stacks = (("vllm 0.22.0", 480.0), ("vllm 0.22.0", 500.0), ("trtllm 1.3.0", 480.0), ("sglang 0.5.14", NAN))
    for row, (stack, power_w) in zip(rows, stacks, strict=True):
        row |= {"stack": stack, "power_w": power_w}  # with a cap of 700 W
    (dataset,) = imported(tmp_path, rows, "attention")
    assert [m.sustained for m in dataset.measurements] == [False, True, True, False]
    # A reading far below that of its neighbours missed a part of the run, and says nothing about the cap.
    missed = [row | {"stack": "vllm 0.22.0", "power_w": 680.0} for row in rows]
    missed[2]["power_w"] = 480.0
    (dataset,) = imported(tmp_path, missed, "attention")
    assert [m.sustained for m in dataset.measurements] == [True] * 4
    (tmp_path / "attention.parquet").unlink()
    (dataset,) = imported(tmp_path, [linear(2048, 100.0, gpu=H200, stack="vllm 0.22.0", power_w=480.0)])
    assert [m.sustained for m in dataset.measurements] == [True]


def test_thinning_is_even_and_repeats_itself(tmp_path):
    stratum = np.array([0] * 1000 + [1] * 10 + [2] * 500)
    places = thinned(stratum, 210)
    assert Counter(stratum[places].tolist()) == {0: 100, 1: 10, 2: 100}
    assert (places == thinned(stratum, 210)).all()
    assert sorted(set(places.tolist())) == places.tolist()
    assert len(thinned(stratum, None)) == len(thinned(stratum, 5000)) == 1510
    rows = [linear(64 + m, 15.0 + m / 10, n=n) for m in range(50) for n in (256, 512)]
    (dataset,) = imported(tmp_path, rows, rows=30)
    assert len(dataset.measurements) == 30
    assert "linear: 30 of 100 rows are here" in dataset.card.limits
    assert len(imported(tmp_path, rows, rows=None)[0].measurements) == 100
    assert load(save(dataset, tmp_path / "saved")) == dataset


@pytest.mark.parametrize(
    "changes", [{"gpu": "NVIDIA H1000"}, {"stack": "llama.cpp 1"}, {"precision": "int3"}], ids=lambda c: next(iter(c))
)
def test_unknown_words_are_refused_with_their_rows(tmp_path, changes):
    with pytest.raises(DatasetError, match="row 2"):
        imported(tmp_path, [linear(1, 5.0), {**linear(2, 5.0), **changes}])


def test_the_real_tables(aiconfigurator2026):
    datasets = import_aiconfigurator2026(aiconfigurator2026, rows=6_000)
    boards = {"NVIDIA A100-SXM4-80GB", "NVIDIA L40S", H100, H200, "NVIDIA B200", "NVIDIA GB200"}
    assert {dataset.card.gpu for dataset in datasets} == boards
    measurements = [m for dataset in datasets for m in dataset.measurements]
    assert 22_000 < len(measurements) <= 24_000
    # Only caches that three versions of TensorRT-LLM did not read as they say, where one token is decoded.
    unusable = {(m.engine, m.operation.kind, m.operation.input_shapes[0][2]) for m in measurements if not m.usable}
    assert unusable == {(f"trtllm {version}", "attention", 1) for version in ("1.0.0", "1.3.0rc15", "1.3.0rc17")}
    powered = [m for m in measurements if m.usable and m.power_usable and m.power_w is not None]
    assert len(powered) > 500
    assert min(m.time_s for m in powered) >= 60e-6
