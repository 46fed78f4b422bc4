"""Hosts by name, factor or profile; anything else is refused."""

import json

import pytest

from joulecast.errors import InputError, UnknownNameError
from joulecast.hardware import find_gpu
from joulecast.hardware.host import REFERENCE, USUAL, find_host, hosts, processor, write_profile


def test_the_reference_host_is_the_unit():
    assert REFERENCE.factor == 1.0
    assert all(host.source for host in hosts().values())


@pytest.mark.parametrize(
    ("gpu", "factor"), [("A30", 1.0), ("A100 SXM4 80GB", 1.0), ("MI250X", 1.0), ("H100 SXM", 0.6), ("L4", 0.6)]
)
def test_the_usual_host_of_gpus_from_2022_on_is_faster(gpu, factor):
    assert find_host(None) is find_host("usual") is USUAL
    assert USUAL.of(find_gpu(gpu)).factor == factor
    assert find_host(0.7).of(find_gpu(gpu)).factor == 0.7


@pytest.mark.parametrize(("wanted", "factor"), [(0.5, 0.5), ("0.5", 0.5), (2, 2.0), ("h100-server", 0.6)], ids=str)
def test_hosts_by_factor_and_name(wanted, factor):
    assert find_host(wanted).factor == factor


def test_a_profile_comes_back(tmp_path):
    path = tmp_path / "mine.json"
    write_profile(path, 0.7, {"call_s": 7e-6})
    found = find_host(path)
    assert (found.name, found.factor, found.note) == ("mine", 0.7, "")
    assert find_host(str(path)) == found
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "processor": "another one"}))
    assert "comes from another machine: another one" in find_host(path).note
    assert processor() in find_host(path).note


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[1]", "nonsense", '{"kind": "joulecast host", "format": 9}', '{"kind": "x", "format": 1, "factor": 1}']
    + [
        json.dumps({"kind": "joulecast host", "format": 1, "processor": "x", "factor": f})
        for f in ("a", None, -1, 0, 1e9)
    ],
)
def test_damaged_profiles_are_refused(tmp_path, content):
    path = tmp_path / "host.json"
    path.write_text(content)
    with pytest.raises(InputError):
        find_host(path)


@pytest.mark.parametrize("wanted", [0, -1, float("nan"), float("inf"), True, 1e6, "nosuch.json", [], {}], ids=str)
def test_impossible_hosts_are_refused(wanted):
    with pytest.raises(InputError):
        find_host(wanted)
    with pytest.raises(UnknownNameError, match="did you mean h100-server"):
        find_host("h100-serve")
