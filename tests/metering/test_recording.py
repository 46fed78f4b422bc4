"""Recordings: what was written comes back exactly, a kill loses the last line at most, damage is found."""

import json
import math
import os
import zlib
from dataclasses import asdict

import numpy as np
import pytest

from conftest import full_disk
from joulecast.errors import InputError
from joulecast.metering.recording import DeviceInfo, Writer, block_of, read_recording, sealed
from joulecast.metering.samples import FIELDS, Samples

MACHINE = {
    "host": "node1",
    "started": "2026-11-22T08:00:00+00:00",
    "start_s": 10.0,
    "wall_offset_s": 1.8e9,
    "program": ["train.py"],
    "absent": ["ram: no counter"],
    "devices": [asdict(DeviceInfo("gpu0", "board", idle_w=30.0, facts={"sensor": "NVML"}))],
}
SAMPLES = Samples.of(np.array([10.1, 10.2 + 1e-9, 10.3]), power_w=np.array([100.0, np.nan, 1 / 3]))


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "recording.jsonl"
    with Writer(path, MACHINE) as writer:
        writer.write(block_of("gpu0", SAMPLES), {"kind": "windows", "windows": [["epoch", 10.1, 10.2]]})
        writer.write({"kind": "event", "time_s": 10.25, "device": "gpu0", "what": "lost: GPU is lost"})
        writer.write({"kind": "end", "time_s": 10.4, "exit_code": 3})
    return path


def test_everything_comes_back_exactly(recording):
    found = read_recording(recording)
    for name in FIELDS:
        assert np.array_equal(getattr(found.samples["gpu0"], name), getattr(SAMPLES, name), equal_nan=True)
    assert found.windows == (("epoch", 10.1, 10.2),)
    assert found.events == ("gpu0: lost: GPU is lost",)
    assert (found.host, found.start_s, found.end_s, found.exit_code, found.complete) == ("node1", 10.0, 10.4, 3, True)
    assert found.devices[0].idle_w == 30.0
    assert found.absent == ("ram: no counter",)


def test_killed_at_any_byte_all_whole_lines_are_read(recording, tmp_path):
    whole = recording.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    torn = tmp_path / "torn.jsonl"
    for length in range(ends[0], len(whole)):
        torn.write_bytes(whole[:length])
        found = read_recording(torn)
        lines = sum(end <= length for end in ends)
        assert not found.complete or length == len(whole) - 1  # the newline alone is no loss
        assert len(found.samples["gpu0"]) == (3 if lines >= 2 else 0) or length == ends[1] - 1
        assert bool(found.events) == (lines >= 4) or length == ends[3] - 1


def test_a_changed_byte_is_found(recording, tmp_path):
    whole = bytearray(recording.read_bytes())
    changed = tmp_path / "changed.jsonl"
    last_line = whole.rstrip(b"\n").rindex(b"\n")
    for place in range(0, last_line, 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x04
        changed.write_bytes(damaged)
        with pytest.raises(InputError):
            read_recording(changed)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "this is not a recording"),
        ("hello\n", "this is not a recording"),
        (sealed({"kind": "end", "time_s": 1.0, "exit_code": 0}), "this is not a recording"),
        (sealed({"kind": "machine", "format": 99}), "another format"),
        (sealed({"kind": "machine", "format": 1}), "content of this recording is not valid"),
        (
            sealed({"kind": "machine", "format": 1, **MACHINE}) + "x\n" + sealed({"kind": "end"}),
            "line of this recording is damaged",
        ),
    ],
    ids=["empty", "text", "no header", "version", "bare", "middle"],
)
def test_other_files_are_refused_as_recordings(tmp_path, content, says):
    path = tmp_path / "recording.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=says):
        read_recording(path)


def test_a_full_disk_leaves_whole_lines_and_the_recording_goes_on(tmp_path):
    path = tmp_path / "recording.jsonl"
    with Writer(path, MACHINE) as writer:
        whole = path.stat().st_size
        with full_disk(whole + 20), pytest.raises(InputError, match="cannot be written"):
            writer.write(block_of("gpu0", SAMPLES))
        assert path.stat().st_size == whole
        writer.write(block_of("gpu0", SAMPLES))
    with pytest.raises(InputError, match="cannot be created"):
        Writer(path, MACHINE)  # A recording is never written over.
    assert len(read_recording(path).samples["gpu0"]) == 3


def sealed_file(path, *records, **machine):
    """A file whose checksums are right, although the values may be NaN."""
    with path.open("w") as file:
        for record in ({"kind": "machine", "format": 1, **MACHINE, **machine}, *records):
            text = json.dumps(record, separators=(",", ":"))[:-1]
            file.write(f'{text},"crc32":"{zlib.crc32(text.encode()):08x}"}}\n')
    return path


def samples_of(**columns):
    return {"kind": "samples", "device": "gpu0", "columns": {"time_s": [10.1, 10.2, 10.3], **columns}}


WINDOW, SHARES = ["epoch", 10.1, 10.2], {"time_s": 10.2, "cpu": 0.5, "gpus": {"gpu0": {"busy": 0.5}}}


@pytest.mark.parametrize(
    "record",
    [
        samples_of(power_w=[1.0, math.nan, 1.0]),
        samples_of(power_w=[1.0, -5.0, 1.0]),
        samples_of(power_w=[1.0, 1e30, 1.0]),
        samples_of(power_w=[1.0, [2.0], 1.0]),
        samples_of(power_w=5.0),
        samples_of(power_w=[1.0, 2.0]),
        samples_of(energy_j=[5.0, 4.0, 6.0]),
        samples_of(utilization=[0.5, 1.5, 0.5]),
        samples_of(time_s=[10.1, None, 10.3]),
        samples_of(time_s=[10.1, 10.3, 10.2]),
        samples_of(time_s=[]),
        {"kind": "samples", "device": ["gpu0"], "columns": {"time_s": [10.1]}},
        {"kind": "samples", "device": "gpu7", "columns": {"time_s": [10.1]}},
        {"kind": "windows", "windows": [["epoch", 10.2, 10.1]]},
        {"kind": "windows", "windows": [["epoch", 10.1, math.nan]]},
        {"kind": "windows", "windows": [[".".join(["a"] * 999), 10.1, 10.2]]},
        {"kind": "windows", "windows": [["x" * 100_000, 10.1, 10.2]]},
        {"kind": "shares", **SHARES, "cpu": -1},
        {"kind": "shares", **SHARES, "gpus": {"gpu0": {"busy": [1]}}},
        {"kind": "shares", **SHARES, "gpus": {"gpu0": {"memory_bytes": -1}}},
        {"kind": "event", "time_s": 10.2, "device": "gpu0", "what": "x" * 100_000},
        {"kind": "end", "time_s": math.inf, "exit_code": 0},
        {"kind": "end", "time_s": 10.4, "exit_code": [1]},
        {"kind": "machine", "start_s": math.nan},
        {"kind": "machine", "wall_offset_s": "0"},
        {"kind": "machine", "host": ["node1"]},
        {"kind": "machine", "devices": {}},
        {"kind": "machine", "devices": [{**MACHINE["devices"][0], "idle_w": -3.0}]},
        {"kind": "machine", "devices": [{**MACHINE["devices"][0], "facts": [["a", [1]]]}]},
        {"kind": "machine", "devices": [MACHINE["devices"][0]] * 2},
    ],
    ids=lambda record: json.dumps(record)[:60],
)
def test_impossible_values_are_refused(tmp_path, record):
    sealed_file(tmp_path / "good.jsonl", samples_of(power_w=[1.0, None, 3.0]), {"kind": "windows", "windows": [WINDOW]},
                {"kind": "shares", **SHARES})  # fmt: skip
    read_recording(tmp_path / "good.jsonl")
    records, machine = ((), record) if record["kind"] == "machine" else ((record,), {})
    with pytest.raises(InputError) as refused:
        read_recording(sealed_file(tmp_path / "odd.jsonl", *records, **machine))
    assert len(str(refused.value)) < 2000


def test_deep_and_large_files_are_refused(tmp_path):
    (tmp_path / "deep.jsonl").write_text("[" * 200_000 + ',"crc32":"00000000"}\n')
    deep = '{"kind":"machine","format":1,"devices":' + "[" * 100_000
    (tmp_path / "sealed.jsonl").write_text(f'{deep},"crc32":"{zlib.crc32(deep.encode()):08x}"}}\n')
    with (tmp_path / "sparse.jsonl").open("wb") as file:
        file.truncate(20 << 30)
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("deep", "sealed", "sparse", "pipe"):
        with pytest.raises(InputError):
            read_recording(tmp_path / f"{name}.jsonl")
