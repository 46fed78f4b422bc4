"""Windows on a machine without any counter: seconds are known, and joules are unknown rather than zero."""

import pytest

from joulecast.metering.recording import Recording, Window
from joulecast.metering.result import Metering


def metering(*windows: Window) -> Metering:
    return Metering("program", (Recording("host", "", 0.0, 10.0, (), {}, windows),))


def test_windows_without_counters_have_time_and_unknown_energy() -> None:
    # 6 s in "train", 2 of them in the window inside it; 10 s in all, so 4 s are in no window.
    tree = metering(("train.step", 1.0, 3.0), ("train", 0.0, 6.0)).tree()
    train = next(node for node in tree.root.walk() if node.path == "train")
    step = next(node for node in tree.root.walk() if node.path == "train.step")
    assert (train.own.time_s, train.total.time_s, step.own.time_s) == pytest.approx((4.0, 6.0, 2.0))
    assert tree.unattributed.time_s == pytest.approx(4.0)
    assert {train.own.source, step.own.source, tree.total.source} == {"missing"}
    assert "0 J" not in str(tree)
