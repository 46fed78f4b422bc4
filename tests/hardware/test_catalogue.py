"""The GPU catalogue."""

from __future__ import annotations

import pytest

from joulecast.errors import InputError, UnknownNameError
from joulecast.hardware import find_gpu, gpus


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.slug)
def test_every_entry_is_sane(gpu):
    assert gpu.min_clock_mhz < gpu.boost_clock_mhz <= gpu.max_clock_mhz
    assert 1e11 < gpu.memory_bandwidth < 2e13
    assert 1e12 < gpu.peak_flops["fp32"] < 1e15
    # Two FLOPs per lane and clock: the fp32 peak is a whole number of lanes per multiprocessor, 64 or 128.
    lanes = gpu.peak_flops["fp32"] / (2 * gpu.boost_clock_mhz * 1e6 * gpu.sms)
    assert min(abs(lanes / 64 - 1), abs(lanes / 128 - 1)) < 0.01
    assert all(find_gpu(alias) is gpu for alias in (gpu.name, *gpu.aliases))


def test_names_do_not_mind_case_and_spaces():
    assert find_gpu("rtx 2080-TI") is find_gpu("NVIDIA GeForce RTX 2080 Ti")


def test_folded_names_are_unique():
    names = ["".join(c for c in n.lower() if c.isalnum()) for gpu in gpus().values() for n in {gpu.name, *gpu.aliases}]
    owners = {}
    for gpu in gpus().values():
        for name in {gpu.name, *gpu.aliases}:
            owners.setdefault("".join(c for c in name.lower() if c.isalnum()), set()).add(gpu.name)
    assert names
    assert all(len(owner) == 1 for owner in owners.values())


def test_unknown_gpu_suggests_close_names():
    with pytest.raises(UnknownNameError, match="did you mean A30"):
        find_gpu("A3")


def test_precision_is_a_permission_or_a_type():
    assert find_gpu("A30").running_precision("tf32") == "tf32"
    assert find_gpu("2080 Ti").running_precision("tf32") == "fp32"
    with pytest.raises(InputError, match="does not support bf16"):
        find_gpu("2080 Ti").running_precision("bf16")


@pytest.mark.parametrize("clock", [0, 100, 1441, -5, "fast", float("nan"), True])
def test_clocks_out_of_range_are_refused(clock):
    with pytest.raises(InputError, match="cannot hold"):
        find_gpu("A30").checked_clock_mhz(clock)


def test_default_clock():
    assert find_gpu("A30").checked_clock_mhz(None) == 1440.0
