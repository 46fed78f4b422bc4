"""Intervals of training in half precision come from published steps."""

import itertools
import math

import numpy as np
import pytest

import joulecast
from joulecast.predictors.intervals import conformal


def test_energy_errs_as_time_and_power_together():
    exact = conformal.step_errors([0.0])
    assert exact["energy"] == pytest.approx(exact["time"], abs=0.03)
    assert exact["edp"] == pytest.approx([2 * each for each in exact["energy"]])
    # Where power errs by 3 everywhere, time hardly counts.
    coarse = conformal.step_errors([3.0, 3.0])
    assert min(coarse["energy"]) >= 3.0
    assert max(coarse["energy"]) < math.hypot(3.0, max(coarse["time"])) + 1e-9


def test_no_more_is_claimed_than_there_are_networks():
    found = conformal.step_errors(np.linspace(0, 0.1, 500).tolist())
    assert {len(found[name]) for name in ("time", "energy", "edp")} == {len(conformal.STEP_ERRORS)}
    assert conformal.step_errors([0.2, 0.1])["power"] == [0.1, 0.2]


@pytest.mark.parametrize(("precision", "published"), [("bf16", True), ("fp16", True), ("fp32", False)])
def test_half_precision_in_training_has_the_errors_of_published_steps(precision, published):
    found = joulecast.predict("bert_base", (8, 128), "H100 SXM", mode="training", precision=precision)
    assert (conformal.TRAINING_BASIS in found.spread.basis) == published


def test_gpus_can_be_ranked_for_fine_tuning():
    """The widest of neighbours two ranks apart do not touch: H100, L40S, L4 for BERT-base."""
    times = [
        joulecast.predict("bert_base", (32, 128), gpu, mode="training", precision="bf16").interval(0.9).time_s
        for gpu in ("H100 SXM", "L40S", "L4")
    ]
    assert all(quick[1] < slow[0] for quick, slow in itertools.pairwise(times))
