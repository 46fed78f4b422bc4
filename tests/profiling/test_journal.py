"""The journal: nothing finished is lost, nothing is there twice, whoever is killed when."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from joulecast.errors import JournalError
from joulecast.profiling.journal import Journal

CAMPAIGN = {"name": "test", "seed": 0}


def test_records_survive(tmp_path):
    with Journal(tmp_path / "j", CAMPAIGN) as journal:
        journal.append({"key": 1})
        journal.append({"key": 2})
    with Journal(tmp_path / "j", CAMPAIGN) as journal:
        assert [record["key"] for record in journal.records] == [1, 2]
        assert not journal.torn


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_torn_line_is_cut_off(tmp_path, cut):
    path = tmp_path / "j"
    with Journal(path, CAMPAIGN) as journal:
        journal.append({"key": 1})
        journal.append({"key": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path, CAMPAIGN) as journal:
        assert journal.torn
        assert [record["key"] for record in journal.records] == [1]
        journal.append({"key": 3})
    with Journal(path, CAMPAIGN) as journal:
        assert [record["key"] for record in journal.records] == [1, 3]


def test_two_campaigns_refuse_each_other(tmp_path):
    with Journal(tmp_path / "j", CAMPAIGN), pytest.raises(JournalError, match="another campaign is writing"):
        Journal(tmp_path / "j", CAMPAIGN)
    with pytest.raises(JournalError, match="belongs to another"):
        Journal(tmp_path / "j", {"name": "other"})
    with Journal(tmp_path / "j", CAMPAIGN) as journal:
        assert journal.records == []


@pytest.mark.parametrize(
    ("text", "says"),
    [('{"journal_version": 7}\n', "another version"), ("nonsense\n", "damaged"), ("[]\n", "no record")],
)
def test_what_is_no_journal_is_refused_and_left_alone(tmp_path, text, says):
    path = tmp_path / "j"
    path.write_text(text)
    with pytest.raises(JournalError, match=says):
        Journal(path, CAMPAIGN)
    assert path.read_text() == text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "j"
    with Journal(path, CAMPAIGN) as journal:
        journal.append({"key": 1})
        with monkeypatch.context() as patch:
            patch.setattr(
                "joulecast.profiling.journal.os.fsync",
                lambda descriptor: os.write(os.open("/dev/full", os.O_WRONLY), b"x"),
            )
            with pytest.raises(JournalError, match="No space left"):
                journal.append({"key": 2})
        journal.append({"key": 3})
    with Journal(path, CAMPAIGN) as journal:
        assert [record["key"] for record in journal.records] == [1, 3]


WRITER = """
import sys
from joulecast.profiling.journal import Journal
with Journal(sys.argv[1], {"name": "test", "seed": 0}) as journal:
    done = {record["key"] for record in journal.records}
    for key in range(100000):
        if key not in done:
            journal.append({"key": key, "padding": "x" * 200})
            print(key, flush=True)
"""


def test_killed_at_random_moments_nothing_finished_is_lost(tmp_path):
    rng, path, told = random.Random(0), tmp_path / "j", []
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        told += [process.stdout.readline() for _ in range(rng.randint(1, 60))]
        process.send_signal(signal.SIGKILL)
        told += process.communicate()[0].splitlines()
    finished = [int(line) for line in told if line.strip().isdigit()]
    lines = [json.loads(line) for line in path.read_bytes()[: path.read_bytes().rfind(b"\n")].splitlines()]
    keys = [line["key"] for line in lines[1:]]
    assert len(keys) == len(set(keys)) > 12
    assert set(finished) <= set(keys)
