"""The importer of networks: its rules on a small synthetic export, and the real one where it is at hand."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

from joulecast import Operation
from joulecast.datasets import import_energaizer2026, load, save
from joulecast.datasets.importers.energaizer2026 import _COLUMNS
from joulecast.datasets.importers.workloads import Tokens, network_of_workload
from joulecast.errors import DatasetError, InputError

A100, A10 = "NVIDIA A100-PCIE-40GB", "NVIDIA A10"


def row(time_ms, clock_mhz, *, network="gpt2model_gpt2", precision="bf16", batch=8, sequence="128.0", **more):
    values = {"campaign": "dvfs", "gpu": A100, "network": network, "precision": precision, "batch": batch}
    values |= {"sequence": sequence, "clock_setpoint_mhz": clock_mhz, "clock_mhz": clock_mhz, "time_ms": time_ms}
    values |= {"energy_j": time_ms / 1e3 * 100.0, "power_w": 100.0, "total_s": 31.6}
    return {**values, **more}


def written(folder, rows, lists=None):
    with (folder / "networks.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    (folder / "workloads").mkdir(exist_ok=True)
    for name, queries in (lists or {}).items():
        (folder / "workloads" / f"{name}.json").write_text(json.dumps(queries))
    return folder


def gemm(m, n, k, batch=1):
    return [{"batch": batch, "dimM": m, "dimN": n, "dimK": k, "precM": "bf16"}, ["gemm", "tc", "bf16_bf16"]]


def elementwise(op, elements, precision="bf16"):
    return [{"dim": elements, "op": op, "prec": precision}, ["elementwise"]]


# A layer of 2 heads of 64 over 2 x 128 tokens of 128 features.
LAYER = [
    elementwise("scalar_add", 256 * 128),
    [{"batch": 256, "dim": 128, "prec": "bf16"}, ["layernorm", "bf16"]],
    gemm(384, 256, 128),
    gemm(128, 128, 64, batch=4),
    elementwise("unspecified_scalar", 4 * 128 * 128),
    elementwise("pointwise_add", 4 * 128 * 128),
    [{"batch": 4 * 128, "dim": 128, "prec": "fp32"}, ["softmax", "fp32"]],
    elementwise("typecast_to_fp32", 4 * 128 * 128),
    elementwise("typecast_to_bf16", 4 * 128 * 128, "fp32"),
    gemm(128, 64, 128, batch=4),
    gemm(256, 512, 128),
    elementwise("unspecified_scalar", 256 * 512),
    gemm(128, 2, 128),
    elementwise("tanh", 2 * 128),
    [{"batch": 3}, ["sdpa"]],
]


def read(queries, wanted, precision="bf16"):
    return network_of_workload(
        queries, name="n", input_shape=(1,), listed=Tokens(2, 128), wanted=wanted, precision=precision
    )


def linear(leading, inputs, outputs, precision):
    return Operation("linear", [(*leading, inputs)], {"out_features": outputs}, precision=precision)


@pytest.mark.parametrize(("b", "s"), [(2, 128), (4, 128), (2, 256)])
def test_a_list_is_read_at_any_batch_and_sequence(b, s):
    network = read(LAYER, Tokens(b, s))
    scores = (b, 2, s, s)
    expected = [
        Operation("add", [(b, s, 128), (1, s, 128)], precision="bf16"),
        Operation("layer_norm", [(b, s, 128)], precision="bf16"),
        # Linear layers are M outputs x N rows, GPT-2's M rows x N outputs.
        linear((b, s), 128, 384, "bf16"),
        Operation("matmul", [(b, 2, s, 64), (b, 2, 64, s)], precision="bf16"),
        Operation("div", [scores], precision="bf16"),
        Operation("add", [scores, (b, 1, 1, s)], precision="bf16"),
        Operation("softmax", [scores], precision="fp32"),
        Operation("copy", [scores], precision="bf16"),
        Operation("copy", [scores], precision="fp32"),
        Operation("matmul", [(b, 2, s, s), (b, 2, s, 64)], precision="bf16"),
        linear((b, s), 128, 512, "bf16"),
        Operation("pow", [(b, s, 512)], precision="bf16"),
        linear((b,), 128, 128, "bf16"),
        Operation("tanh", [(b, 128)], precision="bf16"),
    ]
    assert [entry.operation for entry in network] == expected
    # Nothing is lost in silence.
    assert [(d.name, d.count) for d in network.dropped] == [("sdpa", 1)]


def test_fp32_needs_no_casts_and_convolves_in_tf32():
    network = read(LAYER, Tokens(2, 128), "fp32")
    assert {entry.operation.precision for entry in network} == {"fp32"}
    assert "copy" not in {entry.operation.kind for entry in network}
    conv = {"precM": "bf16", "m": 8, "c": 3, "hw": 32, "rs": 16, "stride": 16, "padding": 0}
    assert read([[conv, ["conv2d"]]], Tokens(2, 128), "fp32").entries[0].operation.precision == "tf32"


def test_what_cannot_be_read_is_listed_with_its_reason():
    network = read([*LAYER, gemm(300, 300, 128), elementwise("fold", 256), elementwise("relu", 257)], Tokens(2, 128))
    dropped = {d.name: d.reason for d in network.dropped}
    assert "neither the network's tokens nor its batch (300)" in dropped["gemm"]
    assert dropped["fold"] == "joulecast has no such operation (fold)"
    assert "relu" in dropped
    with pytest.raises(InputError, match="at least one"):
        read([elementwise("fold", 256)], Tokens(2, 128))


def test_failed_runs_are_left_out_and_slow_hosts_marked(tmp_path):
    rows = [
        row(10.0, 1000),
        row(12.6, 800),  # 10 ms x 1000 / 800 = 12.5 ms
        row(13.2, 790),  # 10 ms x 1000 / 790 = 12.7 ms, 13.3 with 5 %
        row(13.4, 780, total_s=34.5),
        row(13.9, 770),  # 10 ms x 1000 / 770 = 13.0 ms, 13.6 with 5 %
        row(10.6, 1100),
        row(1.0, 900, total_s=9.0),
    ]
    datasets = import_energaizer2026(written(tmp_path, rows))
    assert [dataset.card.clock_mhz for dataset in datasets] == [770, 780, 790, 800, 1000, 1100]
    remarks = {m.clock_mhz: m.remark.split(":")[0] for dataset in datasets for m in dataset.networks}
    assert remarks == {
        770: "slower than other clocks allow",
        780: "slower than its own probe",
        790: "",
        800: "",
        1000: "",
        1100: "slower than other clocks allow",
    }
    assert [m.usable for d in datasets for m in d.networks] == [False, False, True, True, True, False]


def test_unknown_networks_and_bad_lines_are_refused_with_their_lines(tmp_path):
    with pytest.raises(DatasetError, match="line 3: 'opt'"):
        import_energaizer2026(written(tmp_path, [row(1.0, 900), row(1.0, 900, network="opt")]))
    with pytest.raises(DatasetError, match="line 2: could not convert"):
        import_energaizer2026(written(tmp_path, [row(1.0, 900, power_w="much")]))
    with pytest.raises(DatasetError, match=r"line 2: power .* outside 0 to 300 W"):
        import_energaizer2026(written(tmp_path, [row(1.0, 900, power_w=301.0, energy_j=0.301)]))


def test_missing_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"):
        import_energaizer2026(tmp_path)
    written(tmp_path, [row(1.0, 900)])
    (tmp_path / "workloads" / "gpt2model_gpt2_pbf16_b8_s128_modeprefill.json").write_text("{")
    with pytest.raises(DatasetError, match="operation list cannot be read"):
        import_energaizer2026(tmp_path)
    (tmp_path / "networks.csv").write_text("gpu\n")
    with pytest.raises(DatasetError, match="columns are missing"):
        import_energaizer2026(tmp_path)


@pytest.fixture(scope="module")
def real(energaizer2026):
    return import_energaizer2026(energaizer2026)


def test_the_real_export_is_complete(real):
    counts = {(dataset.card.gpu, dataset.card.clock_mhz): len(dataset.networks) for dataset in real}
    sweep = (510, 600, 690, 780, 870, 960, 1050, 1140, 1230, 1320, 1410)
    assert counts == {(A10, 900): 46, (A100, 900): 52, **{(A100, clock): 12 for clock in sweep}}
    networks = [m for dataset in real for m in dataset.networks]
    assert sum(not m.usable for m in networks) == 9
    # All but torchvision's ResNet, whose own extraction is complete, come with operations; nothing of them was dropped.
    assert Counter(m.network for m in networks if m.operations is None) == {"resnet101": 16}
    listed = [m.operations for m in networks if m.operations is not None]
    assert {d.reason for network in listed for d in network.dropped} == {"the source's tracer does not list it"}


def test_clocks_are_those_that_were_held(real):
    (top,) = [dataset for dataset in real if dataset.card.clock_mhz == 1410]
    held = {m.clock_mhz for m in top.networks}
    assert min(held) == pytest.approx(1133.92, abs=0.01)
    assert max(held) == 1410
    assert "held the clock of 10 networks" in " ".join(top.card.limits)
    assert top.card.idle_power_w == 67.34


# FLOPs by hand: a layer has 12 x hidden^2 weights, 2 FLOPs each and token; scores and their product with the values
# are 2 x 2 x sequence x hidden per token. GPT-2 small: 12 layers of 768. BERT-large: 24 of 1024, and a pooler.
# ViT-L/16: 24 of 1024 over 197 tokens, and a convolution of 768 x 1024 at 196 places: 61.6 GMAC as published.
FLOPS = [
    ("gpt2", (8, 512), 12 * (2 * 12 * 768**2 + 4 * 512 * 768) * 4096),
    ("gpt2", (16, 256), 12 * (2 * 12 * 768**2 + 4 * 256 * 768) * 4096),
    ("bert_large", (8, 512), 24 * (2 * 12 * 1024**2 + 4 * 512 * 1024) * 4096 + 2 * 8 * 1024**2),
    (
        "vit_large",
        (64, 3, 224, 224),
        64 * (24 * (2 * 12 * 1024**2 + 4 * 197 * 1024) * 197 + 2 * 196 * 768 * 1024 + 2 * 1024 * 768),
    ),
]


@pytest.mark.parametrize(("name", "shape", "flops"), FLOPS, ids=lambda value: str(value))
def test_flops_of_products_are_those_of_the_published_networks(real, name, shape, flops):
    (network, *_) = [m.operations for d in real for m in d.networks if (m.network, m.input_shape) == (name, shape)]
    kinds = ("linear", "matmul", "conv2d")
    assert sum(e.count * e.operation.flops for e in network if e.operation.kind in kinds) == flops
    # Everything else is small in FLOPs.
    assert flops < network.flops < 1.03 * flops


def test_nothing_real_is_faster_than_the_clock_allows(real):
    """Per cycle, the 108 and 72 SMs of A100 and A10 do 1024 and 512 multiply-adds in bf16, 64 and 128 in fp32."""
    per_cycle = {A100: (108 * 1024 * 2, 108 * 64 * 2), A10: (72 * 512 * 2, 72 * 128 * 2)}
    for dataset in real:
        bf16, fp32 = per_cycle[dataset.card.gpu]
        for m in dataset.networks:
            if m.operations is not None:
                least_s = sum(
                    e.count * e.operation.flops / (fp32 if e.operation.precision == "fp32" else bf16)
                    for e in m.operations
                    if e.operation.kind in ("linear", "matmul", "conv2d")
                ) / (m.clock_mhz * 1e6)
                assert least_s < 0.9 * m.time_s


def test_the_resnet_of_the_list_is_the_one_that_is_extracted(real, energaizer2026):
    from joulecast.extraction import network_of

    (m, *_) = [m for d in real for m in d.networks if m.network == "resnet101" and m.input_shape[0] == 8]
    extracted = network_of(m.network, m.input_shape, precision="bf16")
    queries = json.loads((energaizer2026 / "workloads" / "resnet101__pbf16_b8_freq900.json").read_text())
    listed = Counter()
    for query, (what, *_) in queries:
        if what == "conv2d":
            listed[tuple(query[name] for name in ("b", "c", "hw", "m", "rs", "stride", "padding"))] += 1
    own = Counter()
    for entry in extracted:
        if entry.operation.kind == "conv2d":
            (b, c, hw, _), a = entry.operation.input_shapes[0], entry.operation.attributes
            own[b, c, hw, a["out_channels"], a["kernel_size"], a["stride"], a["padding"]] += entry.count
    assert own == listed
    assert extracted.flops / 8 == pytest.approx(2 * 7.8e9, rel=0.02)  # 7.8 GMAC as published


def test_the_real_export_survives_the_store(real, tmp_path):
    for position, dataset in enumerate((real[0], real[-1])):
        assert load(save(dataset, tmp_path / str(position))) == dataset
