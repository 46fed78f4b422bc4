"""The importer of networks: its rules on a small synthetic export, and the real one where it is at hand."""

import csv
import json
from collections import Counter
from functools import cache

import pytest

from joulecast.datasets.importers.energaizer2026 import _COLUMNS, import_energaizer2026
from joulecast.errors import DatasetError
from joulecast.extraction import network_of

A100, A10 = "NVIDIA A100-PCIE-40GB", "NVIDIA A10"


def row(time_ms, clock_mhz, *, network="gpt2model_gpt2", precision="bf16", batch=8, sequence="128.0", **more):
    values = {"campaign": "dvfs", "gpu": A100, "network": network, "precision": precision, "batch": batch}
    values |= {"sequence": sequence, "clock_setpoint_mhz": clock_mhz, "clock_mhz": clock_mhz, "time_ms": time_ms}
    values |= {"energy_j": time_ms / 1e3 * 100.0, "power_w": 100.0, "total_s": 31.6}
    return {**values, **more}


def written(folder, rows):
    with (folder / "networks.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return folder


def test_failed_runs_are_left_out_and_slow_hosts_marked(tmp_path):
    rows = [
        row(10.0, 1000),
        row(12.6, 800),  # 10 ms x 1000 / 800 = 12.5 ms
        row(13.2, 790),  # 10 ms x 1000 / 790 = 12.7 ms, or 13.3 ms with the 5 % that are allowed.
        row(13.4, 780, total_s=34.5),
        row(13.9, 770),  # 10 ms x 1000 / 770 = 13.0 ms, or 13.6 ms with the 5 % that are allowed.
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
    assert {m.network for m in networks} == {"resnet101", "vit_large_eager", "bert_large_eager", "gpt2_eager"}


def test_clocks_are_those_that_were_held(real):
    (top,) = [dataset for dataset in real if dataset.card.clock_mhz == 1410]
    held = {m.clock_mhz for m in top.networks}
    assert min(held) == pytest.approx(1133.92, abs=0.01)
    assert max(held) == 1410
    assert "held the clock of 10 networks" in " ".join(top.card.limits)
    assert top.card.idle_power_w == 67.34


@pytest.fixture(scope="module")
def operations():
    """The operations of a measured network, extracted once for each shape and precision."""
    return cache(lambda name, shape, precision: network_of(name, shape, precision=precision))


def products(folder, name):
    """Multiply-adds of the products that the source's tracer listed."""
    queries = json.loads((folder / "workloads" / f"{name}.json").read_text())
    return sum(q["batch"] * q["dimM"] * q["dimN"] * q["dimK"] for q, (what, *_) in queries if what == "gemm")


@pytest.mark.parametrize(
    ("listed", "name", "shape"),
    [
        ("bertmodel_large_pbf16_b8_s128_modeprefill", "bert_large_eager", (8, 128)),
        ("gpt2model_gpt2_pbf16_b8_s512_modeprefill", "gpt2_eager", (8, 512)),
        ("vitmodel_large_pbf16_b8_freq900", "vit_large_eager", (8, 3, 224, 224)),
    ],
)
def test_products_are_those_that_the_source_traced(energaizer2026, operations, listed, name, shape):
    network = operations(name, shape, "bf16")
    own = sum(e.count * e.operation.flops for e in network if e.operation.kind in ("linear", "matmul"))
    assert own == 2 * products(energaizer2026, listed)


def test_the_resnet_of_the_list_is_the_one_that_is_extracted(real, energaizer2026):
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
