"""Intervals of training in half precision come from published steps."""

import itertools
import math

import numpy as np
import pytest

import joulecast
from joulecast.predictors.intervals.conformal import STEP_ERRORS
from joulecast.predictors.intervals.network_calibration import STEP_BASIS, NetworkCalibration, NetworkSpread


def test_energy_errs_as_time_and_power_together():
    """Nine errors support 90 %: the largest of power is 0.3. That of time is a score times the difficulty."""
    steps = NetworkCalibration.of_training_steps([0.1] * 8 + [0.3])
    units = steps.summed({"time": np.array([0.0, 0.0])})
    spread = NetworkSpread(steps.scores["overlap"], units, 0.0, False, steps.basis, None)
    time = math.log(spread.around("time", 1.0, 0.9, None)[1])
    scores = STEP_ERRORS["scores"]
    assert time == pytest.approx(scores[math.ceil(0.9 * (len(scores) + 1)) - 1] * STEP_ERRORS["floor"])
    for quantity, expected in (("power", 0.3), ("energy", math.hypot(time, 0.3)), ("edp", math.hypot(2 * time, 0.3))):
        low, high = spread.around(quantity, 1.0, 0.9, None)
        assert (math.log(high), -math.log(low)) == pytest.approx((expected, expected))


def test_what_is_better_known_has_narrower_intervals():
    """Kernels of the A100 80GB were measured, those of the RTX 3090 were not, and no convolution in training was."""

    def half(model, shape, gpu):
        found = joulecast.predict(model, shape, gpu, mode="training", precision="bf16")
        return math.log(found.interval(0.9).time_s[1] / found.time_s)

    measured, known = (half("bert_base", (32, 128), gpu) for gpu in ("A100 SXM4 80GB", "RTX 3090"))
    assert measured < 0.75 * known
    assert known < half("resnet50", (64, 3, 224, 224), "RTX 3090")


@pytest.mark.parametrize(("precision", "published"), [("bf16", True), ("fp16", True), ("fp32", False)])
def test_half_precision_in_training_has_the_errors_of_published_steps(precision, published):
    found = joulecast.predict("bert_base", (8, 128), "H100 SXM", mode="training", precision=precision)
    assert (STEP_BASIS in found.spread.basis) == published


def test_gpus_can_be_ranked_for_fine_tuning():
    """Intervals of neighbours do not touch, for BERT-base."""
    gpus = "H100 SXM", "A100 SXM4 80GB", "L40S", "A10", "L4"
    runs = [joulecast.predict_run("bert_base", (32, 128), gpu, samples=1e5, precision="bf16") for gpu in gpus]
    times = [run.interval(0.9).time_s for run in runs]
    assert all(quick[1] < slow[0] for quick, slow in itertools.pairwise(times))
