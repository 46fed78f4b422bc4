"""Repeats: mean and deviation, the test of significance, CSV, and the options of `joulecast measure` for them."""

import csv
import io

import numpy as np
import pytest

from joulecast.errors import InputError
from joulecast.metering.command import least_p_value, mean_and_deviation, p_value, quantities, runs_csv
from joulecast.metering.recording import DeviceInfo, Recording
from joulecast.metering.result import Metering
from joulecast.metering.samples import Samples


def run_of(power_w, end_s=2.0):
    samples = {"gpu0": Samples.of(np.array([0.0, end_s]), power_w=np.array([power_w, power_w]))}
    gpu = DeviceInfo("gpu0", "board", facts={"sensor": "NVML", "device": "NVIDIA A30", "driver": "550"})
    recording = Recording("node1", "2026-11-22T08:00:00+00:00", 0, end_s, (gpu,), samples, exit_code=0)
    return Metering("train.py", (recording,))


def test_statistics_by_hand():
    """The p value is the share of divisions that differ as much."""
    assert mean_and_deviation([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1.0))
    assert mean_and_deviation([5.0]) == (5.0, None)
    assert p_value([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20) == least_p_value(3, 3)
    # {1, 4} and {2, 3} have equal means; each of the 6 divisions differs at least as much
    assert p_value([1, 4], [2, 3]) == p_value([1.0, 1.0], [1.0, 1.0]) == 1.0
    with pytest.raises(InputError, match="single run"):
        p_value([1], [2, 3])


def test_quantities_are_those_that_every_run_has():
    runs = [run_of(100.0), run_of(110.0, 3.0)]
    assert quantities(runs) == {"time (s)": [2.0, 3.0], "energy (J)": [200.0, 330.0], "gpu0 (J)": [200.0, 330.0]}


def test_a_row_of_csv_has_metadata_and_no_zero_for_what_is_not_known():
    first, second = csv.DictReader(io.StringIO(runs_csv([run_of(100.0), run_of(50.0)])))
    assert (first["host"], first["program"], first["run"], second["run"]) == ("node1", "train.py", "1", "2")
    assert (first["name"], first["sensor"], first["source"]) == ("NVIDIA A30", "NVML", "measured")
    assert float(second["energy_j"]) == 100.0
    assert first["idle_j"] == ""


def test_the_command_repeats_and_takes_its_options_from_a_file(call, tmp_path):
    config = tmp_path / "measure.toml"
    config.write_text(f"repeat = 2\ninterval = 0.05\ndevices = 'estimate'\ncsv = '{tmp_path / 'runs.csv'}'\n")
    code, _, err = call("measure", "--config", config, "--out", tmp_path / "r.jsonl", "--", "true")
    assert code == 0
    assert "2 runs" in err
    assert call("measure", "run", "--devices", "estimate", "--", "true")[0] == 0
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    pattern = tmp_path / "r-*.jsonl"
    compared = call("measure", "compare", pattern, pattern)[1]
    assert "1.000" in compared
    assert "cannot differ with p below" in compared
    assert call("measure", "show", "--csv", tmp_path / "r-1.jsonl")[1].startswith("started,host,program")
    config.write_text("intervall = 1\n")
    code, _, err = call("measure", "--config", config, "--", "true")
    assert code == 2
    assert "did you mean interval" in err
