"""The journal: whenever a process is killed, no finished measurement is lost, and none is stored twice."""

import json
import os
import zlib
from pathlib import Path

import pytest

from joulecast.errors import JournalError
from joulecast.profiling.journal import Journal
from joulecast.profiling.session import finish

CAMPAIGN = {"name": "test", "seed": 0}


def _sealed(header):
    text = json.dumps(header).removesuffix("}")
    return f'{text}, "crc32": "{zlib.crc32(text.encode(), 1):08x}"}}\n'


@pytest.mark.parametrize("cut", range(1, 11))
def test_an_incomplete_last_line_is_removed(tmp_path, cut):
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


def test_what_a_card_states_once_holds_for_every_measurement(tmp_path):
    with Journal(tmp_path / "j", CAMPAIGN, {"threads": 1, "torch": "2.9"}) as journal:
        journal.append({"key": 1})
    with pytest.raises(JournalError, match=r"(?s)threads 2.*threads 1.*OMP_NUM_THREADS"):
        Journal(tmp_path / "j", CAMPAIGN, {"threads": 2, "torch": "2.9"})
    with Journal(tmp_path / "j", None) as journal:
        assert journal.facts["threads"] == 1


@pytest.mark.parametrize(
    ("text", "says"), [(_sealed({"journal_version": 7}), "version 7"), ("nonsense\n", "damaged"), ("[]\n", "damaged")]
)
def test_other_files_are_refused_as_journals_and_left_unchanged(tmp_path, text, says):
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
            patch.setattr("os.fsync", lambda descriptor: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
            with pytest.raises(JournalError, match="No space left"):
                journal.append({"key": 2})
        journal.append({"key": 3})
    with Journal(path, CAMPAIGN) as journal:
        assert [record["key"] for record in journal.records] == [1, 3]


def two_records(path):
    with Journal(path, CAMPAIGN) as journal:
        journal.append({"key": 1, "time_s": 0.125})
        journal.append({"key": 2, "time_s": 0.25})
    return path.read_bytes()


def read(path):
    with Journal(path, None) as journal:
        return journal.records


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "j"
    data = two_records(path)
    torn = 0
    # If the last newline changes, the line counts as incomplete, which is another case.
    for place in range(0, 8 * (len(data) - 1), 3):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(JournalError):
            read(path)
        torn += 1
    assert torn > 300


@pytest.mark.parametrize("order", [(0, 1, 1, 2), (0, 2, 1), (0, 2), (1, 2), (0, 1, 2, 0)])
def test_lines_out_of_their_order_are_refused_and_reading_changes_nothing(tmp_path, order):
    path = tmp_path / "j"
    torn = two_records(path) + b'{"key": 3, "ti'
    path.write_bytes(torn)
    path.chmod(0o444)
    assert [record["key"] for record in read(path)] == [1, 2]
    assert path.read_bytes() == torn
    lines = torn.splitlines(keepends=True)
    path.chmod(0o644)
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(JournalError):
        read(path)


def measured(**changed):
    power = {"power_w": 50.0, "power_std_w": 1.0, "naive_w": 50.0, "clock_mhz": 900, "temperature_c": 40}
    timing = {"time_s": 1e-4, "device_time_s": 1e-4, "iterations": 3, "start_s": 0.0, "end_s": 1.0}
    return {
        "key": "a",
        "clock_mhz": None,
        "status": "ok",
        "started": "2026-01-01",
        "operation": {"kind": "relu", "input_shapes": [[2, 2]]},
        "timing": {**timing, "warnings": []},
        "power": {**power, "warnings": []},
        **changed,
    }


def test_what_a_journal_says_is_no_path(tmp_path):
    """A journal that somebody else wrote, with the right checksums."""
    outside = tmp_path / "outside"
    with Journal(tmp_path / "in" / "journal.jsonl", {**CAMPAIGN, "device": "A30"}) as journal:
        journal.append(measured(clock_mhz=f"{outside}/x"))
        journal.append(measured(clock_mhz=900))
    with pytest.raises(JournalError, match="was not written by a campaign"):
        finish(tmp_path / "in")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "journal.jsonl"]


def test_a_campaign_goes_on_under_another_name_but_not_with_other_settings(tmp_path):
    with Journal(tmp_path / "j", CAMPAIGN) as journal:
        journal.append({"key": 1})
    with Journal(tmp_path / "j", {**CAMPAIGN, "name": "renamed"}) as journal:
        assert [record["key"] for record in journal.records] == [1]
        assert journal.campaign == CAMPAIGN
    with pytest.raises(JournalError, match="belongs to another campaign"):
        Journal(tmp_path / "j", {**CAMPAIGN, "seed": 1})
