"""Measured joules by memory level, by hand."""

import json
import math

import pytest

from conftest import benchmark
from joulecast.accounting.result import Accounting
from joulecast.energy import Figure, Row, Share
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.hardware.ncu import metrics

A100 = "A100 SXM 80GB"
with benchmark("measured_levels") as module:
    measured_levels = module.measured_levels


def counters(**traffic_bytes):
    return {"shared": None, "l1": None, "l2": None, "dram": None, **traffic_bytes}


def test_levels_are_accesses_times_their_energy():
    def found(energy_j, static_j, traffic, **options):
        return measured_levels(energy_j, static_j, counters(**traffic), find_gpu(A100), 1410.0, **options)

    levels = found(10.0, 4.0, {"dram": 32e9, "l2": 64e9, "shared": 32e9})
    expected = {"static": 4.0, "dram": 2.09, "l2": 2 * 0.368, "shared": 0.0821, "rest": 6 - 2.09 - 0.736 - 0.0821}
    assert {name: joules for name, joules in levels.energy_j.items() if joules} == pytest.approx(expected)
    assert math.fsum(levels.energy_j.values()) == 10.0
    assert "not counted, and in the rest: l1" in str(levels)
    assert found(10.0, 4.0, {"dram": 64e9}, iterations=2).energy_j["dram"] == pytest.approx(2.09)
    with pytest.raises(InputError, match="more energy than was measured"):
        found(1.0, 0.5, {"dram": 320e9})
    with pytest.raises(InputError, match="no energy to divide"):
        found(0.0, 0.0, {"dram": 1.0})


def test_what_the_command_printed_is_divided_by_a_file(tmp_path, monkeypatch, capsys):
    header = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    lines = [f'"0","kernel","{name}","{"byte" if "bytes" in name else "sector"}","1,000"' for name in metrics()]
    (tmp_path / "counters.csv").write_text("\n".join([header, *lines]))
    share = Share({"gpu0": Figure(0.01, "measured")}, {("gpu0", "board"): Figure(2.0, "measured")})
    host = Share({"cpu0": Figure(0.01, "measured")}, {("cpu0", "package"): Figure(5.0, "measured")})
    accounting = Accounting("a model", (Row("", share, "mm"), Row("", host, "mm")), Share(), 0.01, 2, 10)
    (tmp_path / "account.json").write_text(json.dumps(accounting.to_dict()))
    files = [str(tmp_path / "account.json"), str(tmp_path / "counters.csv")]
    monkeypatch.setattr("sys.argv", ["measured_levels.py", *files, A100, "--static-power", "50"])
    module.main()
    printed = capsys.readouterr().out.split()
    assert printed[:3] == ["2", "J", "measured"]  # the CPU's joules are not the GPU's
    assert printed[printed.index("static") + 1 : printed.index("static") + 3] == ["500", "mJ"]
