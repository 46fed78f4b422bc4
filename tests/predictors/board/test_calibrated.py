"""Ten simulated minutes on a board with known deviations: what is found, and how errors on other operations fall."""

import json
from dataclasses import replace

import numpy as np
import pytest

import joulecast
from conftest import benchmark
from joulecast import Network, Operation
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.predictors.board.fit import fit_profile
from joulecast.predictors.board.profile import VOLTAGE, find_profile
from joulecast.predictors.physics.energy import relative_voltage
from joulecast.queries.worth_measuring import worth_measuring
from joulecast.zoo import find_predictor

with benchmark("simulated_board") as board:
    pass
GPU = find_gpu("H100 SXM")


@pytest.fixture(scope="module")
def predictor():
    return find_predictor(GPU, "inference")


@pytest.fixture(scope="module")
def halves():
    everything = board.operations()
    return everything[::2], everything[1::2]


def fitted(predictor, *datasets):
    return fit_profile(datasets, {"inference": predictor.operations}, {"inference": predictor.name})


@pytest.fixture(scope="module")
def profile(predictor, halves):
    return fitted(predictor, board.measured(predictor.operations, halves[0], GPU))


def errors(found, dataset):
    names = {"time": "device_time_s", "power": "power_w", "energy": "energy_j"}
    return {
        quantity: np.abs(np.log(getattr(found, name) / [getattr(each, name) for each in dataset.measurements]))
        for quantity, name in names.items()
    }


def test_errors_on_operations_left_out_fall_below_five_percent(predictor, halves, profile):
    truth = board.measured(predictor.operations, halves[1], GPU, seed=1)
    before = errors(joulecast.predict_operations(halves[1], GPU), truth)
    after = errors(joulecast.predict_operations(halves[1], GPU, calibration=profile), truth)
    assert before["time"].mean() > 0.12
    assert all(each.mean() < 0.05 for each in after.values())
    # What the profile says of itself is what happens.
    assert profile.improvements["time"].after == pytest.approx(after["time"].mean(), abs=0.015)
    assert profile.improvements["time"].expected == pytest.approx(after["time"].mean(), abs=0.02)


def test_what_differs_is_found(profile, predictor):
    static_w = predictor.operations.predict(board.operations()[:1]).static_power_w
    assert profile.factors["products on tensor cores"] == pytest.approx(1 / board.USUAL.products, rel=0.03)
    assert profile.factors["products on other units"] == pytest.approx(1 / board.USUAL.products, rel=0.03)
    assert profile.factors["DRAM"] == pytest.approx(1 / board.USUAL.bandwidth, rel=0.03)
    assert profile.factors["launches in inference"] == pytest.approx(board.USUAL.launch, rel=0.03)
    assert (profile.factors["static power"] - 1) * static_w == pytest.approx(board.USUAL.static_w, abs=3)


def test_slow_launches_are_found_though_device_times_do_not_show_them(predictor, halves):
    slow = replace(board.AS_PREDICTED, launch=1.3)
    profile = fitted(predictor, board.measured(predictor.operations, halves[0], GPU, board=slow))
    assert profile.factors["launches in inference"] == pytest.approx(1.3, rel=0.03)
    assert "DRAM" not in profile.factors
    assert profile.improvements["power"].after < 0.5 * profile.improvements["power"].before


def test_a_lower_clock_is_read_and_held(predictor, halves):
    low_mhz = 0.8 * GPU.boost_clock_mhz
    slow = board.Board(clock_mhz=low_mhz)
    profile = fitted(predictor, board.measured(predictor.operations, halves[0], GPU, board=slow))
    assert profile.most_clock_mhz == pytest.approx(low_mhz)
    truth = board.measured(predictor.operations, halves[1], GPU, 1, slow)
    found = joulecast.predict_operations(halves[1], GPU, calibration=profile)
    assert found.held_clock_mhz.max() <= low_mhz
    assert all(each.mean() < 0.05 for each in errors(found, truth).values())
    static_w = predictor.operations.predict(halves[0][:1], low_mhz).static_power_w
    assert (profile.factors["static power"] - 1) * static_w == pytest.approx(board.USUAL.static_w, abs=3)
    # The default clock is one that the board does not reach, in networks as in loops.
    network = Network.of([(each, 2) for each in halves[0][:8]])
    default, low = (joulecast.predict(network, gpu=GPU, clock=mhz, calibration=profile) for mhz in (None, low_mhz))
    assert (default.time_s, default.energy_j) == pytest.approx((low.time_s, low.energy_j))
    assert default.held_clock_mhz == pytest.approx(low_mhz)
    many = joulecast.predict_many([network], GPU, calibration=profile)
    assert (many.time_s[0], many.energy_j[0]) == (default.time_s, default.energy_j)


@pytest.mark.parametrize(("voltage", "left"), [(board.shallow, 0.5), (board.deep, 0.6)], ids=["shallow", "deep"])
def test_the_voltage_is_found_where_clocks_were_read(voltage, left):
    """By the clocks that the cap leaves, and at a low clock, where joules follow from it."""
    gpu = find_gpu("L40S")
    predictor = find_predictor(gpu, "inference")
    asked, others = board.operations()[::2], board.operations()[1::2]
    low_mhz = 0.6 * gpu.boost_clock_mhz
    usual, slow = board.Board(voltage=voltage), board.Board(voltage=voltage, clock_mhz=low_mhz)
    seen = board.measured(predictor.operations, asked, gpu, board=usual)
    low = board.measured(predictor.operations, asked[::3], gpu, 1, slow)
    unread = replace(seen, measurements=tuple(replace(each, clock_mhz=None) for each in seen.measurements))
    truth = board.measured(predictor.operations, others, gpu, 2, slow)
    off, curves = [], []
    clocks = np.array([0.6, 0.8, 0.9])
    for datasets in ([unread], [seen], [seen, low]):
        profile = fitted(predictor, *datasets)
        assert profile.most_clock_mhz is None
        found = joulecast.predict_operations(others, gpu, low_mhz, calibration=profile)
        off.append(errors(found, truth)["energy"].mean())
        curves.append(relative_voltage(found.work.gpu, clocks * gpu.boost_clock_mhz))
    assert curves[0] == pytest.approx(relative_voltage(gpu, clocks * gpu.boost_clock_mhz))
    assert curves[1][1:] == pytest.approx(voltage(clocks)[1:], abs=0.03)
    assert curves[2] == pytest.approx(voltage(clocks), abs=0.04)
    assert off[2] < left * off[0]
    assert off[2] < off[1] < min(0.07, 0.9 * off[0])


def test_a_board_with_the_voltage_of_the_catalogue_keeps_it():
    gpu = find_gpu("A10")
    predictor = find_predictor(gpu, "inference")
    seen = board.measured(predictor.operations, board.operations(), gpu)
    factors = fitted(predictor, seen).factors
    assert [factors.get(name, 1) for name in VOLTAGE] == pytest.approx([1, 1], abs=0.15)


def test_intervals_are_those_of_operations_left_out(halves, profile, predictor):
    truth = board.measured(predictor.operations, halves[1], GPU, 2)
    plain, found = (joulecast.predict_operations(halves[1], GPU, calibration=each) for each in (None, profile))
    wide, narrow = plain.interval(0.8).time_s, found.interval(0.8).time_s
    own = np.array([each.row.family in profile.errors["time"] for each in halves[1]])
    narrower = np.log(narrow[1] / narrow[0]) / np.log(wide[1] / wide[0])
    assert own.mean() > 0.5
    assert np.median(narrower[own]) < 0.5
    assert narrower[own].max() < 1.05  # Its own errors decide, also where they are a little larger.
    assert narrower[own].min() < 0.2
    assert narrower[~own] == pytest.approx(1)
    times = np.array([each.time_s for each in truth.measurements])
    assert np.mean((narrow[0] <= times) & (times <= narrow[1])) > 0.6
    # Never narrower than what was seen: the errors of all, where a family has none of its own.
    least = np.quantile(profile.errors["time"]["all"], 0.5)
    pooled = joulecast.predict_operations([Operation("softmax", [(4096, 4096)])], GPU, calibration=profile)
    low, high = pooled.interval(0.8).time_s
    assert np.log(high / low)[0] / 2 >= least


def test_a_board_as_predicted_gets_no_factors(predictor, halves):
    found = predictor.operations.predict(halves[0])
    rows = board.measured(predictor.operations, halves[0], GPU).measurements
    draw = np.random.default_rng(0).choice([-0.2, 0.2], len(rows))  # Errors that no factor explains.
    rows = [
        replace(each, time_s=t, power_w=None, energy_j=None, device_time_s=t)
        for each, t in zip(rows, (found.device_time_s * np.exp(draw)).tolist(), strict=True)
    ]
    profile = fitted(predictor, replace(board.measured(predictor.operations, halves[0], GPU), measurements=tuple(rows)))
    assert not profile.factors or profile.improvements["time"].after < profile.improvements["time"].before
    assert all(factor == pytest.approx(1, abs=0.12) for factor in profile.factors.values())


def test_every_question_takes_it(profile, tmp_path):
    path = tmp_path / "mine.json"
    profile.write(path)
    assert find_profile(path) == profile
    network = Network.of([(each, 2) for each in board.operations()[:6]])
    plain = joulecast.predict(network, gpu=GPU.name)
    found = joulecast.predict(network, gpu=GPU.name, calibration=str(path))
    assert found.time_s > 1.05 * plain.time_s
    assert any(note.startswith("calibrated by") and profile.sha256[:12] in note for note in found.notes)
    content = json.loads(path.read_text())
    assert joulecast.predict_many([network], GPU.name, calibration=content).time_s[0] == found.time_s
    run = {"samples": 1e4, "precision": "bf16"}
    for ask, given in (
        (joulecast.predict_generation, {"model": "gpt2", "batch": 4, **SERVED}),
        (joulecast.predict_run, {"model": "resnet18", "input_shape": (8, 3, 64, 64), **run}),
        (joulecast.simulate_serving, {"model": "gpt2", "requests": 4, "duration_s": 5, **SERVED}),
    ):
        joules = "energy_per_token_j" if ask is joulecast.predict_generation else "energy_j"
        usual, own = (getattr(ask(gpu=GPU.name, **given, calibration=each), joules) for each in (None, path))
        assert usual != own
    linear = next(each for each in board.operations() if each.kind == "linear" and each.precision == "bf16")
    parts = joulecast.explain(linear, GPU.name, calibration=profile).calibration
    assert parts["products on tensor cores"] == profile.factors["products on tensor cores"]
    assert "products on other units" not in parts
    with pytest.raises(InputError, match="another GPU"):
        joulecast.predict(network, gpu="A30", calibration=profile)
    with pytest.raises(InputError, match="cannot hold this graphics clock"):
        joulecast.predict(network, gpu=GPU, calibration=replace(profile, most_clock_mhz=1.0))


SERVED = {"prompt_tokens": 100, "output_tokens": 20}


@pytest.mark.parametrize(
    ("choose", "given", "asked", "joules"),
    [
        (joulecast.sweep, ("resnet18", (8, 3, 64, 64)), {}, "energy_j"),
        (joulecast.best_generation, ("gpt2",), {**SERVED, "batches": [4]}, "energy_per_token_j"),
        (joulecast.best_generation, ("gpt2",), {**SERVED, "rate_per_s": 20.0, "batches": [4]}, "energy_per_token_j"),
        (joulecast.best_run, ("resnet18", (8, 3, 64, 64)), {"samples": 1e4, "counts": [1]}, "energy_j"),
    ],
    ids=["sweep", "full batches", "a rate", "best_run"],
)
def test_a_choice_among_gpus_uses_it_for_its_own(choose, given, asked, joules, profile):
    among = {"gpus": [GPU.name, "L40S"], "clocks": [1200.0], **asked}
    found, usual = (
        {way.gpu: getattr(way, joules) for way in choose(*given, **among, calibration=each)} for each in (profile, None)
    )
    assert found.keys() == usual.keys() == {GPU.name, find_gpu("L40S").name}
    assert [name for name in found if found[name] != usual[name]] == [GPU.name]
    with pytest.raises(InputError, match="another GPU"):
        choose(*given, gpus=["L40S"], **asked, calibration=profile)


def test_what_takes_most_and_is_least_sure_is_measured_first():
    small, large = (Operation("linear", [(n, 1024)], {"out_features": 1024}, precision="bf16") for n in (2048, 4096))
    others = [Operation("relu", [(4096, n)]) for n in (512, 1024)]
    network = Network.of([(small, 1), (large, 10), (others[0], 1), (others[1], 1)])
    chosen = worth_measuring(
        {"inference": find_predictor(GPU, "inference").operations}, 3, lambda gpu, mode: iter([network])
    )
    assert chosen["inference"][:2] == [large, others[1]] or chosen["inference"][:2] == [others[1], large]
    assert len(chosen["inference"]) == 3


def test_loops_at_the_cap_bound_the_joules_of_networks_at_it():
    """Loops below the cap draw more than predicted, and those at it do not: a network at the cap keeps its clock.

    A board whose products take a quarter longer spends the same joules on them, so its network draws less than the cap
    at the full clock. How much less, loops near the cap say, which consist of the same operations.
    """
    gpu = find_gpu("A30")
    cap_w = gpu.power_limit_w
    found = find_predictor(gpu, "inference", "any-gpu/forest")
    seen = board.measured(found.operations, board.operations(), gpu)
    raised = [min(30 + 2.5 * (each.power_w - 30), 0.9 * cap_w) for each in seen.measurements]
    rows = [
        each if each.power_w > 0.9 * cap_w else replace(each, power_w=watts, energy_j=watts * each.time_s)
        for each, watts in zip(seen.measurements, raised, strict=True)
    ]
    profiles = None, fitted(found, seen), fitted(found, replace(seen, measurements=tuple(rows)))
    before, usual, after = (
        joulecast.predict("resnet50", (32, 3, 224, 224), gpu, predictor="any-gpu/forest", calibration=each)
        for each in profiles
    )
    assert before.held_clock_mhz < gpu.boost_clock_mhz  # at the cap, as it is predicted without a calibration
    assert after.held_clock_mhz == usual.held_clock_mhz == gpu.boost_clock_mhz
    assert after.time_s == pytest.approx(usual.time_s, rel=0.01)
    # The mean of loops that draw 0.9 of the cap to all of it.
    assert 0.9 * cap_w < after.power_w <= cap_w


@pytest.mark.parametrize(("gpu", "execution"), [("A30", "eager"), ("A30", "graph"), ("H100 SXM", "eager")])
def test_a_profile_without_factors_changes_nothing(profile, gpu, execution):
    """BERT runs at the cap of an A30, whose clocks under it were measured one by one."""
    nothing = replace(profile, gpu=find_gpu(gpu).name, factors={}, most_clock_mhz=None)
    asked = ("bert_base", (4, 64), gpu)
    plain, found = (joulecast.predict(*asked, execution=execution, calibration=each) for each in (None, nothing))
    assert any("changes nothing" in note for note in found.notes)
    assert (found.time_s, found.power_w, found.energy_j) == (plain.time_s, plain.power_w, plain.energy_j)
