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
    found = measured_levels(10.0, 4.0, counters(dram=32e9, l2=64e9, shared=32e9), find_gpu(A100), 1410.0)
    assert found.energy_j["dram"] == pytest.approx(2.09)
    assert found.energy_j["l2"] == pytest.approx(2 * 0.368)
    assert found.energy_j["shared"] == pytest.approx(0.0821)
    assert found.energy_j["rest"] == pytest.approx(6 - 2.09 - 0.736 - 0.0821)
    assert math.fsum(found.energy_j.values()) == 10.0
    assert "not counted, and in the rest: l1" in str(found)
    half = measured_levels(10.0, 4.0, counters(dram=64e9), find_gpu(A100), 1410.0, iterations=2)
    assert half.energy_j["dram"] == pytest.approx(2.09)


def test_counters_of_other_work_are_refused():
    with pytest.raises(InputError, match="more energy than was measured"):
        measured_levels(1.0, 0.5, counters(dram=320e9), find_gpu(A100), 1410.0)
    with pytest.raises(InputError, match="no energy to divide"):
        measured_levels(0.0, 0.0, counters(dram=1.0), find_gpu(A100), 1410.0)


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
