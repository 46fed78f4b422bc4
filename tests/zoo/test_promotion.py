"""Promotion: a challenger must be better by more than chance explains."""

import shutil

import numpy as np
import pytest

from joulecast.errors import ZooError
from joulecast.zoo.promotion import compare, decide, left_out_of


def errors(spread, seed, *, networks=30, bias=0.0):
    rng = np.random.default_rng(seed)
    return {
        f"net{i} 32x3x224x224 {precision}": {
            "time": float(np.expm1(bias + spread * rng.normal())),
            "energy": float(np.expm1(bias + spread * rng.normal())),
        }
        for i in range(networks)
        for precision in ("fp32", "default")
    }


def test_a_clearly_better_predictor_is_better():
    verdict = compare(errors(0.1, 0), errors(0.03, 1))
    assert verdict.better
    assert verdict.compared == 60


def test_equal_predictors_are_rarely_told_apart():
    better = [compare(errors(0.05, seed), errors(0.05, 1000 + seed)).better for seed in range(60)]
    # 5 % of 60 are 3; more than 9 would happen once in 800 times.
    assert sum(better) <= 9


def test_correlated_errors_count_once():
    one = {f"net0 {batch}x3x224x224 fp32": {"time": 0.2} for batch in range(1, 60)}
    assert "needed to tell them apart" in compare(one, {label: {"time": 0.0} for label in one}).why


def test_only_what_both_left_out_is_compared():
    before, after = errors(0.1, 0), errors(0.01, 1)
    extra = {f"other{i} 1x3 fp32": {"time": 3.0, "energy": 3.0} for i in range(50)}
    assert compare(before, {**after, **extra}).challenger_error == compare(before, after).challenger_error


def operations(spread, seed, *, count=40):
    rng = np.random.default_rng(seed)
    draws = spread * rng.normal(size=count)
    return {
        f"relu {i:012d} ({campaign})": {"time": float(np.expm1(draw))}
        for i, draw in enumerate(draws)
        for campaign in ("a b 1x2 c", "d")
    }


FEW, FEWER_ERRORS = errors(0.1, 0, networks=6), errors(0.05, 0, networks=6)
MANY, BETTER_MANY = operations(0.1, 0), operations(0.03, 1)


NETWORKS, BETTER_NETWORKS = {"networks": FEW}, {"networks": FEWER_ERRORS}
BOTH = {
    "few networks": (NETWORKS, BETTER_NETWORKS, False, "8 are needed"),
    "operations": ({"operations": MANY}, {"operations": BETTER_MANY}, True, "in 40 groups"),
    "few networks and operations": (
        NETWORKS | {"operations": MANY}, BETTER_NETWORKS | {"operations": BETTER_MANY}, True, "too few"
    ),
    "worse networks": (
        BETTER_NETWORKS | {"operations": MANY}, NETWORKS | {"operations": BETTER_MANY}, False, "worse"
    ),
    "worse operations": (
        NETWORKS | {"operations": BETTER_MANY}, BETTER_NETWORKS | {"operations": MANY}, False, "not better"
    ),
    "many": ({"networks": errors(0.1, 0)}, {"networks": errors(0.03, 1), "operations": MANY}, True, "in 30 groups"),
    "networks before operations": (
        {"networks": errors(0.1, 0), "operations": BETTER_MANY},
        {"networks": errors(0.03, 1), "operations": MANY}, True, "in 30 groups"
    ),
    "other": (NETWORKS, {"operations": MANY}, False, "not tested on the same"),
}  # fmt: skip


@pytest.mark.parametrize(("champion", "challenger", "better", "why"), BOTH.values(), ids=BOTH)
def test_operations_decide_where_networks_are_too_few(champion, challenger, better, why):
    verdict = decide(champion, challenger)
    assert verdict.better == better
    assert why in verdict.why


def test_an_entry_stores_what_it_is_compared_by(small_entry, tmp_path):
    ((what, found),) = left_out_of(small_entry).items()
    assert what == "operations"
    assert len(found) == 100
    assert set(next(iter(found.values()))) == {"time", "power"}
    entry = shutil.copytree(small_entry, tmp_path / "entry")
    (entry / "left_out.json.z").unlink()
    with pytest.raises(ZooError):
        left_out_of(entry)
