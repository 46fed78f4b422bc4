"""The importer of networks: its rules on a small synthetic export, and the real one where it is at hand."""

import csv

import pytest

from joulecast.datasets.importers.energaizer2026 import _COLUMNS, import_energaizer2026
from joulecast.errors import DatasetError

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
    own, others = "slower than its own probe", "slower than other clocks allow"
    runs = [
        (10.0, 1000, ""),
        (12.6, 800, ""),  # 10 ms x 1000 / 800 = 12.5 ms
        (13.2, 790, ""),  # 10 ms x 1000 / 790 = 12.7 ms, or 13.3 ms with the 5 % that are allowed.
        (13.4, 780, own),
        (13.9, 770, others),  # 10 ms x 1000 / 770 = 13.0 ms, or 13.6 ms with the 5 % that are allowed.
        (10.6, 1100, others),
    ]
    rows = [row(time_ms, clock, total_s=34.5 if remark == own else 31.6) for time_ms, clock, remark in runs]
    datasets = import_energaizer2026(written(tmp_path, [*rows, row(1.0, 900, total_s=9.0)]))
    found = {d.card.clock_mhz: (m.remark.split(":")[0], m.usable) for d in datasets for m in d.networks}
    assert found == {clock: (remark, not remark) for _, clock, remark in runs}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"network": "opt"}, "line 3: 'opt'"),
        ({"power_w": "much"}, "line 3: could not convert"),
        ({"power_w": 301.0, "energy_j": 0.301}, r"line 3: power .* outside 0 to 300 W"),
    ],
)
def test_unknown_networks_and_bad_lines_are_refused_with_their_lines(tmp_path, changes, says):
    with pytest.raises(DatasetError, match=says):
        import_energaizer2026(written(tmp_path, [row(1.0, 900), row(1.0, 900, **changes)]))
    (tmp_path / "networks.csv").write_text("gpu\n")
    with pytest.raises(DatasetError, match="columns are missing"):
        import_energaizer2026(tmp_path)
    with pytest.raises(DatasetError, match="cannot be read"):
        import_energaizer2026(tmp_path / "none")


def test_the_real_export_is_complete(energaizer2026):
    real = import_energaizer2026(energaizer2026)
    counts = {(dataset.card.gpu, dataset.card.clock_mhz): len(dataset.networks) for dataset in real}
    sweep = (510, 600, 690, 780, 870, 960, 1050, 1140, 1230, 1320, 1410)
    assert counts == {(A10, 900): 46, (A100, 900): 52, **{(A100, clock): 12 for clock in sweep}}
    networks = [m for dataset in real for m in dataset.networks]
    assert sum(not m.usable for m in networks) == 9
    assert {m.network for m in networks} == {"resnet101", "vit_large_eager", "bert_large_eager", "gpt2_eager"}
    # Clocks are those that were held.
    (top,) = [dataset for dataset in real if dataset.card.clock_mhz == 1410]
    held = {m.clock_mhz for m in top.networks}
    assert (min(held), max(held)) == (pytest.approx(1133.92, abs=0.01), 1410)
    assert "held the clock of 10 networks" in " ".join(top.card.limits)
    assert top.card.idle_power_w == 67.34
