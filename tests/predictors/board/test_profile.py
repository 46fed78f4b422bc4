"""Profiles are data: read back as they were written, and refused where a field is not what it should be."""

import copy
import json

import numpy as np
import pytest

from joulecast.errors import InputError
from joulecast.predictors.board.profile import BoardProfile, Improvement, find_profile

PROFILE = BoardProfile(
    gpu="NVIDIA H100 80GB HBM3",
    board={"name": "NVIDIA H100 80GB HBM3", "power limit (W)": 700.0},
    software={"joulecast": "0.1.0", "torch": "2.8.0"},
    predictors={"inference": "any-gpu/forest"},
    measured=("2026-11-23", "2026-11-23"),
    operations=40,
    factors={"DRAM": 1.1, "static power": 1.15},
    most_clock_mhz=1500.0,
    improvements={"time": Improvement(0.15, 0.04, 0.05, 40)},
    errors={"time": {"all": np.array([0.01, 0.02, 0.05])}},
)


def written(**changed):
    return {**json.loads(json.dumps(PROFILE.to_dict())), **changed}


def rehashed(**changed):
    """A file that someone made with a hash of its own content."""
    import hashlib

    content = {name: value for name, value in written(**changed).items() if name != "sha256"}
    return {**content, "sha256": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def test_what_was_written_is_read(tmp_path):
    PROFILE.write(tmp_path / "mine.json")
    found = find_profile(tmp_path / "mine.json")
    assert found == PROFILE
    assert hash(found) == hash(PROFILE)
    assert found.factors == PROFILE.factors
    assert rehashed() == written()
    assert copy.deepcopy(found) == PROFILE  # by the state that workers of a cluster get, too
    # JSON does not tell 700 from 700.0.
    whole = written(board={"name": PROFILE.board["name"], "power limit (W)": 700}, most_clock_mhz=1500)
    assert find_profile(whole) == PROFILE
    with pytest.raises(InputError, match="another GPU") as error:
        PROFILE.check_gpu("NVIDIA A30")
    assert error.value.allowed == PROFILE.gpu


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"factors": {"DRAM": 1.2}}, "was changed after it was made"),
        ({"sha256": "0" * 64}, "was changed after it was made"),
        ({"format": 1}, "another version"),
        ({"format": True}, "another version"),
        ({"kind": "joulecast host"}, "is no calibration"),
        ({"more": 1}, "is no calibration"),
        ({"factors": {"DRAM": float("nan")}}, "is no calibration"),
        ({"factors": {"DRAM": 1e9}}, "is no calibration"),
        ({"factors": {"DRAM": 0}}, "is no calibration"),
        ({"factors": {"anything": 1.1}}, "is no calibration"),
        ({"gpu": 7}, "is no calibration"),
        ({"measured": ["today", "2026-11-23"]}, "is no calibration"),
        ({"operations": -1}, "is no calibration"),
        ({"most_clock_mhz": -5}, "is no calibration"),
        ({"improvements": {"time": {"before": 1}}}, "is no calibration"),
        ({"errors": {"time": {"all": []}}}, "is no calibration"),
        ({"errors": {"time": {"all": [0.1] * 100}}}, "is no calibration"),
        ({"errors": {"time": {"matmul": [0.1]}}}, "is no calibration"),
        ({"errors": {"time": {"all": [-0.1]}}}, "is no calibration"),
        ({"board": {str(n): n for n in range(99)}}, "is no calibration"),
    ],
)
def test_anything_else_is_refused_in_four_parts(changed, what, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(written(**changed)))
    nan = changed.get("factors") == {"DRAM": pytest.approx(float("nan"), nan_ok=True)}  # JSON has no NaN.
    for given in (written(**changed),) if nan else (path, str(path), written(**changed)):
        with pytest.raises(InputError, match=what) as error:
            find_profile(given)
        assert error.value.given is not None
        assert error.value.allowed is not None
        assert "joulecast calibrate" in error.value.hint


@pytest.mark.parametrize("content", ["", "[]", "3", "{", '"text"', "null", None])
def test_other_files_are_refused_and_one_that_is_not_there(content, tmp_path):
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match="no such calibration" if content is None else "calibration"):
        find_profile(path)
