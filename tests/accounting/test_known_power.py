"""Accounting of simulated power with known joules per module, through sensors that lag and step; reliability."""

import numpy as np
import pytest

from conftest import benchmark
from joulecast.accounting import Events, Place
from joulecast.accounting.account import one_pass
from joulecast.accounting.result import Accounting
from joulecast.accounting.shares import figure_of, spread
from joulecast.energy import EnergyTree, Figure, Row, Share
from joulecast.metering.recording import DeviceInfo, Recording
from joulecast.metering.samples import Samples

pytest.importorskip("torch")
with benchmark("reliability") as reliability:
    from reliability import Experiment, known_power, known_summary, largest_error, summary

LARGE, WITHIN = 0.05, 0.02
STATIC_W = 30.0
WATTS = {"conv": 180.0, "norm": 60.0, "linear": 240.0, "add": 20.0, "conv backward": 210.0}
PACKAGE = DeviceInfo("cpu0", "package")


def schedule(scale_s, iterations, seed=0):
    """Iterations of five modules, with pauses; a module takes 0.4 to 1.6 of the scale."""
    rng = np.random.default_rng(seed)
    modules = [
        ("stem", "forward", "conv", 1.0),
        ("norm", "forward", "norm", 0.8),
        ("head", "forward", "linear", 0.4),
        ("tail", "forward", "add", 0.9),
        ("stem", "backward", "conv backward", 1.6),
    ]
    rows, windows, now_s = [], [], 0.0
    for _ in range(iterations):
        begin_s = now_s
        for path, phase, operation, length in modules:
            took_s = scale_s * length * rng.uniform(0.9, 1.1)
            rows.append((now_s, now_s + took_s, Place(path, phase, operation), "cpu"))
            now_s += took_s + 0.1 * scale_s * rng.random()
        windows.append((begin_s, now_s))
    return Events.of(rows, windows=windows)


def true_joules(events):
    """By arithmetic: watts of the operator and of the idle device times its seconds."""
    found = {}
    for place, start, end in zip(events.place, events.start_s, events.end_s, strict=True):
        path, phase, operation = events.places[place]
        found[phase, path] = found.get((phase, path), 0.0) + (WATTS[operation] + STATIC_W) * (end - start)
    return found


def recorded(events, update_s):
    """Samples of a counter that is updated once per period in steps of a millijoule, and polled at irregular times."""
    curve = known_power(events, power_w=WATTS.__getitem__, static_w=STATIC_W).counter.curve
    rng = np.random.default_rng(1)
    last_s = float(curve.time_s[-1])
    polls = np.cumsum(0.01 + rng.exponential(0.001, int(last_s / 0.01) + 100)) - 0.5
    seen_s = np.floor(polls / update_s) * update_s
    before = STATIC_W * np.minimum(seen_s, 0.0)
    after = STATIC_W * np.maximum(seen_s - last_s, 0.0)
    joules = np.round(1000 + before + np.interp(seen_s, curve.time_s, curve.energy_j) + after, 3)
    samples = {"cpu0": Samples.of(polls, energy_j=joules)}
    return Recording("here", "", float(polls[0]), float(polls[-1]), (PACKAGE,), samples)


@pytest.mark.parametrize("update_s", [0.02, 0.05, 0.1])
def test_modules_that_last_eight_updates_of_the_sensor_get_their_joules(update_s):
    events = schedule(scale_s=20 * update_s, iterations=40)
    found = one_pass("model", events, recorded(events, update_s))
    truth = true_joules(events)
    large = {key: joules for key, joules in truth.items() if joules > LARGE * sum(truth.values())}
    assert len(large) == 5
    for (phase, path), joules in large.items():
        assert found.tree().at(path, phase).total.energy_j == pytest.approx(joules, rel=WITHIN)


def test_what_the_sensor_does_not_resolve_needs_a_model():
    """For modules of milliseconds, two passes give all the mean power; a prediction gives each its own power."""
    events = schedule(scale_s=0.005, iterations=50)
    start_s, end_s = events.window_s
    iteration_s = (end_s - start_s) / events.iterations
    joules = (
        float(known_power(events, power_w=WATTS.__getitem__, static_w=STATIC_W).counter.curve.energy_j[-1])
        / events.iterations
    )
    shares = spread(events, iteration_s, [(PACKAGE, figure_of(PACKAGE, joules, known=True))])
    by_time = Accounting("model", shares.rows, shares.unattributed, iteration_s, 2, events.iterations)
    truth = {key: value / events.iterations for key, value in true_joules(events).items()}
    # On a GPU of another speed, all dynamic joules are three times as large.
    predicted = EnergyTree.of(
        "prediction",
        [
            Row(
                path,
                Share({}, {("gpu", "dynamic"): Figure(3 * (joules - STATIC_W * seconds), "modelled")}),
                phase=phase,
            )
            for (phase, path), joules in truth.items()
            for seconds in [sum(r.share.time_s for r in shares.rows if (r.phase, r.path) == (phase, path))]
        ],
    )
    by_model = by_time.by_model(predicted, STATIC_W)
    errors = {
        made.sharing: max(abs(made.tree().at(path, phase).total.energy_j / joules - 1)
                          for (phase, path), joules in truth.items() if joules > LARGE * sum(truth.values()))
        for made in (by_time, by_model)
    }  # fmt: skip
    assert errors["time"] > 0.2
    assert errors["model"] < WITHIN
    assert by_model.energy_j == pytest.approx(joules)


def experiment(seed, scale_s=0.05):
    events = schedule(scale_s, 8, seed)
    known = known_power(events, power_w=WATTS.__getitem__, static_w=STATIC_W)
    return Experiment(events, (known.counter,), known.energy_j)


def test_finer_sampling_is_closer_to_the_truth():
    run = experiment(0)
    fine, coarse = largest_error(run, 0.001), largest_error(run, 0.2)
    assert fine < WITHIN < coarse
    for key, joules in known_summary(run).items():
        assert summary(run, 0.0005)[key] == pytest.approx(joules, rel=0.05)


def test_a_report_has_every_pair_once(tmp_path):
    runs = [experiment(seed) for seed in range(3)]
    found = reliability.matrices(runs)
    assert [matrix.shape for matrix, _ in found.values()] == [(6, 6), (6, 6), (5, 5), (3, 3)]
    assert found["equal runs"][0].min() > 0.99
    lines = list(reliability.report("model", runs, reliability.Overhead([0.01, 0.03, 0.02])))
    assert "simulated power" in lines[0]
    assert any("ASSS" in line and "0.90 to 0.94" in line for line in lines)
    assert any("+2.00 % (+1.00 to +3.00 %)" in line for line in lines)
    assert sum("largest error" in line for line in lines) == 6
    pytest.importorskip("matplotlib")
    reliability.draw(runs, tmp_path / "e.svg")
    assert "equal runs" in (tmp_path / "e.svg").read_text()
