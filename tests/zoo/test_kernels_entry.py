"""The entry of kernels: round trip, damage, how predictors find it; and power, from readings to predictions."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_kernels

from conftest import needs, rewrite
from joulecast import Network, Operation
from joulecast.datasets import Dataset, NetworkMeasurement, save
from joulecast.errors import DatasetError, InputError, ZooError
from joulecast.hardware import Boards, find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model import fit_networks
from joulecast.predictors.model.basis import is_like_measured
from joulecast.predictors.model.fit_networks import network_errors, network_factors
from joulecast.predictors.model.in_networks import NetworkFactors, cached_share
from joulecast.predictors.model.physics import STARTS
from joulecast.predictors.model.shared import AnyGpuPredictor, NoResidual
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.physics.power_cap import Jobs
from joulecast.predictors.recipes import KernelRecipe, TreeSettings
from joulecast.zoo import find_predictor
from joulecast.zoo.entry import load_any, load_kernels
from joulecast.zoo.files import MANIFEST
from joulecast.zoo.kernels_training import train_kernels
from joulecast.zoo.training import Loaded

pytestmark = needs("xgboost", "scipy")

TREES = TreeSettings(trees=10, depth=3, learning_rate=0.3, min_child_weight=5.0)
RECIPE = KernelRecipe(generation=TREES, other_generations=TREES, constants_rows=50, folds=4)
LARGER = replace(
    RECIPE, generation=replace(TREES, trees=20, depth=4), other_generations=replace(TREES, trees=20, depth=4)
)
H100, H200 = find_gpu("H100 SXM"), find_gpu("H200")
HOSTS = {mode: HostModel.prior(mode) for mode in ("inference", "training")}
BASE = AnyGpuPredictor("any", NoResidual(), HOSTS)


def linear(rows, columns=8192, reduction=8192):
    return Operation("linear", [(rows, reduction)], {"out_features": columns, "bias": False}, precision="bf16")


def asked(kernels, gpu=H100):
    """The predictor of networks in inference on a GPU that asks these kernels."""
    return replace(BASE, kernels=kernels).on(gpu, "inference")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    datasets = map(simulated_kernels, (H100.name, "H200"))
    return train_kernels([Loaded(save(data, folder / data.card.gpu), data) for data in datasets], RECIPE)


@pytest.fixture
def entry(trained, tmp_path):
    return trained.save(tmp_path)


def test_the_card_says_what_was_measured_and_how_good_it_is(trained, entry):
    card = (entry / "README.md").read_text(encoding="utf-8")
    assert "### Measured" in card
    assert "| NVIDIA H200 | linear, half |" in card


def test_it_is_no_predictor_of_networks(entry):
    with pytest.raises(InputError, match="device times of kernels only"):
        find_predictor("H100 SXM", "inference", entry)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda facts, golden: facts.update(inputs=["other"]), "other features"),
        (lambda facts, golden: facts.update(constants=[[1.0]]), "constants"),
        (lambda facts, golden: facts.update(constants=(-STARTS).tolist()), "constants"),
        (lambda facts, golden: facts["errors"].update({"linear, half": {"elsewhere": "0.1"}}), "an unknown basis"),
        (lambda facts, golden: facts.update(trees=[["9.0", "product"], ["7.0", "product"]]), "missing"),
        (lambda facts, golden: facts.pop("measured"), "damaged"),
        (lambda facts, golden: facts["in_networks"].update(products=50.0), "network factors"),
        (lambda facts, golden: facts.update(trees=[["9.0", "product"]] * 200), "impossible number"),
        (lambda facts, golden: golden["kernels"][0].update(device_s=[1.0] * 8), "no longer predicts"),
        (lambda facts, golden: golden["kernels"][0].update(operations=[]), "golden"),
    ],
)
def test_impossible_facts_are_refused(entry, change, said):
    facts, manifest = (json.loads((entry / name).read_text()) for name in ("predictor.json", MANIFEST))
    change(facts, manifest["golden"])
    (entry / MANIFEST).write_text(json.dumps(manifest))
    rewrite(entry, "predictor.json", facts)
    with pytest.raises(ZooError, match=said):
        load_any(entry)


def test_nothing_to_learn_from(tmp_path):
    data = simulated_kernels(H100.name)
    few = type(data)(data.card, data.measurements[:20])
    with pytest.raises(DatasetError, match="too few"):
        train_kernels([Loaded(save(few, tmp_path / "few"), few)], KernelRecipe())


def test_only_what_is_asked_for_is_read(entry):
    kernels = load_kernels(entry)
    assert np.isnan(kernels.device_s(OperationList([Operation("softmax", [(8, 8)])]), H100)).all()
    assert not any("trees" in vars(each) for each in kernels.trees.values())
    kernels.device_s(OperationList([linear(33, 2048, 1024)]), H100)
    assert [key for key, each in kernels.trees.items() if "trees" in vars(each)] == [("9.0", "product")]


def test_what_kernels_take_inside_networks_is_learned(trained, tmp_path):
    kernels = trained.predictor
    layers = [linear(8192)]
    network = Network.of([(layers[0], 100)])
    alone_s = asked(kernels).predict(network).time_s
    measured = NetworkMeasurement("deep", (1, 1), "bf16", "inference", 1.1 * alone_s, 500.0, 550.0 * alone_s)
    in_fp32 = replace(measured, precision="fp32", time_s=9.0)
    factors = network_factors(BASE, kernels, [(H100, measured, network), (H100, in_fp32, network)])
    # Each layer touches 3 x 8192 x 8192 elements of 2 bytes. 50 MB of these would be in the cache, in a loop.
    share = H100.l2_bytes / (3 * 8192 * 8192 * 2)
    assert factors.products == pytest.approx(1 + 0.1 / share, rel=0.02)
    better = replace(kernels, network_factors=factors)
    assert asked(better).predict(network).time_s == pytest.approx(measured.time_s, rel=0.02)
    # Multiprocessors are awake for longer, except for what the cap adds to the loop alone. The energy of FLOPs and
    # bytes is that of the loop.
    predictor = asked(better).operations
    loop = predictor.predict_for_network(layers, H100.power_limit_w)
    uncapped = kernels.in_network(OperationList(layers), H100)[0][0]
    awake_j, slower = float(loop.work.awake_j[0]), uncapped * (1 + share * (factors.products - 1))
    inside_j = predictor.in_network(loop).dynamic_energy_j[0]
    assert inside_j == pytest.approx(loop.dynamic_energy_j[0] + (slower - 1) * awake_j)
    # The factor of networks does not apply to a loop.
    assert asked(kernels).operations.predict(layers).time_s == pytest.approx(predictor.predict(layers).time_s)
    # Of another chip no network was measured: its kernels lose as much, in proportion to its own cache.
    gpu, by_memory = find_gpu("A10"), linear(8)
    there, before = (asked(each, gpu).predict(Network.of([(by_memory, 100)])).time_s for each in (better, kernels))
    slower = 1 + (factors.products - 1) * float(cached_share(OperationList([by_memory]), gpu)[0])
    assert there == pytest.approx(slower * before, rel=0.01)


def test_factors_of_networks_hold_on_all_chips(trained):
    factors = NetworkFactors(1.3, 0.3, ("GA100", "GA102"))
    kernels = replace(trained.predictor, network_factors=factors)
    assert kernels.network_basis(H100) == "networks of other chips"
    assert kernels.network_basis(find_gpu("A10")) == "networks of the chip"


@pytest.mark.parametrize(
    ("gpu", "precision", "expected"),
    [
        ("L40S", "fp16", True),
        ("RTX 4090", "fp16", True),  # Tensor cores sold at half of their rate are tensor cores.
        ("P100 PCIe", "fp16", False),  # This GPU has none.
        ("A10", "fp8", False),
        ("A10", "fp32", True),
    ],
)
def test_gpus_with_tensor_cores_are_like_those_that_were_measured(gpu, precision, expected):
    assert is_like_measured(find_gpu(gpu), precision) is expected


def test_factors_are_those_of_least_squares():
    """Of two networks, one loses 0.2 with half of its time in products. The other has one other operation alone.

    It takes 1 by itself, and 0.3 x 5 = 1.5 to load, together the cube root of 1 + 1.5 cubed.
    """
    longer = (1 + 1.5**3) ** (1 / 3) - 1
    shown = [
        fit_networks._Shown("GA100", "first", 0.5, np.zeros(0), np.zeros(0), 0.2),
        fit_networks._Shown("GA102", "second", 0.0, np.ones(1), np.full(1, 5.0), longer),
    ]
    assert fit_networks._fitted(shown) == (1.4, 0.3, ("GA100", "GA102"))
    impossible = fit_networks._fitted([each._replace(slower=9.0) for each in shown])
    assert impossible.products == 2.5  # No measured network has such a large factor.


def test_load_units_take_cycles_beside_the_memory(trained):
    """The A100 loads 2 x 67,108,864 elements at 0.4 cycles on 108 multiprocessors at 1410 MHz: 353 us."""
    operation = Operation("softmax", [(65536, 1024)], precision="bf16")
    gpu, network = find_gpu("A100 SXM4 80GB"), Network.of([(operation, 100)])
    loading = replace(trained.predictor, network_factors=NetworkFactors(1.0, 0.4))
    plain, longer = (asked(kernels, gpu).predict(network, 1410) for kernels in (trained.predictor, loading))
    alone_s, loading_s = plain.device_time_s / 100, 0.4 * 2 * 65536 * 1024 / (108 * 1.41e9)
    assert longer.device_time_s / 100 == pytest.approx((alone_s**3 + loading_s**3) ** (1 / 3), rel=1e-3)
    assert longer.known_energy_j > plain.known_energy_j
    slowest = asked(loading, gpu).predict(network, 705)
    assert slowest.device_time_s > longer.device_time_s * 1.5  # Twice the cycles, but the same memory.


def slower_networks(kernels, rows):
    """Measured networks of one operation by name, which take so many times as long as its loop."""
    network = Network.of([(linear(8), 100)])
    for gpu, name, slower in rows:
        time_s = slower * asked(kernels, gpu).predict(network).time_s
        yield gpu, NetworkMeasurement(name, (1, 1), "bf16", "inference", time_s, 300.0, 300.0 * time_s), network


def test_errors_on_networks_come_from_factors_of_other_names_and_other_chips(trained, tmp_path):
    """One chip is 1.2 times slower inside networks, the other 1.02 times: what each says of the other, by hand."""
    chips = ((H100, 1.2), (find_gpu("A10"), 1.02))
    rows = [(gpu, name, slower) for gpu, slower in chips for name in ("first", "second")]
    measured = [*slower_networks(trained.predictor, rows)]
    errors = network_errors(BASE, trained.predictor, measured)
    of_names, of_chips = errors["networks of the chip"]["time"], errors["networks of other chips"]["time"]
    assert of_names == pytest.approx([0.0] * 4, abs=0.01)
    # What one chip loses beside the share of the data that fits into its cache, the other would lose by its own share.
    shares = [float(cached_share(OperationList([linear(8)]), gpu)[0]) for gpu, _ in chips]
    factors = [1 + lost / share for lost, share in zip((0.2, 0.02), shares, strict=True)]
    by_hand = [
        abs(math.log((1 + (factors[1] - 1) * shares[0]) / 1.2)),
        abs(math.log((1 + (factors[0] - 1) * shares[1]) / 1.02)),
    ]
    assert of_chips == pytest.approx(sorted(by_hand * 2), abs=0.01)
    kernels = replace(trained.predictor, network_factors=network_factors(BASE, trained.predictor, measured))
    stored = replace(trained, predictor=replace(kernels, network_errors=errors)).save(tmp_path)
    assert load_kernels(stored).network_errors == errors


def test_who_knows_less_of_a_chip_is_no_surer_of_it(trained):
    """Networks of the chip itself mislead more than those of the other chip, which are as quick as their loops."""
    a10 = find_gpu("A10")
    rows = [(H100, "first", 1.2), (H100, "second", 1.0), (a10, "first", 1.0), (a10, "second", 1.0)]
    errors = network_errors(BASE, trained.predictor, [*slower_networks(trained.predictor, rows)])
    known, unknown = (errors[f"networks of {whose}"]["time"] for whose in ("the chip", "other chips"))
    assert max(known) > 0.1
    assert all(less <= more for less, more in zip(known, unknown, strict=True))


def test_networks_mostly_in_half_precision_have_errors_of_their_own(trained):
    errors = dict.fromkeys(("time", "power", "energy", "edp"), (0.1,) * 40)
    kernels = replace(trained.predictor, network_errors={"networks of other chips": errors})
    others = {"networks": {"inference": dict.fromkeys(errors, (0.5,) * 40)}}
    entry = replace(BASE, left_out=others, kernels=kernels)
    in_half = linear(8192)
    in_single = in_half.replace(precision="fp32")
    pascal = find_gpu("P100 PCIe")  # Kernels predict no products there, as it has no tensor cores.
    for gpu, operations, half in (
        (H100, [(in_half, 9)], True),
        (H100, [(in_single, 9), (in_half, 1)], False),
        (pascal, [(in_half.replace(precision="fp16"), 9)], False),
    ):
        prediction = entry.on(gpu, "inference").predict(Network.of(operations))
        interval = prediction.interval()
        width = math.log(interval.time_s[1] / interval.time_s[0]) / 2
        assert width == pytest.approx(0.1 if half else 0.5, rel=1e-6)
        assert ("half precision" in prediction.spread.basis) is half


# Power, from readings to predictions.


def with_readings(data: Dataset) -> Dataset:
    """Bursts and long runs of them. A long run draws 350 W; large products draw the cap and are 12 % slower."""
    runs = []
    for m in data.measurements:
        if m.sustained is None and m.operation.attributes["implementation"] == "pytorch":
            capped = m.operation.input_shapes[0][0] >= 512
            power_w, device_s = (700.0, m.device_time_s * 1.12) if capped else (350.0, m.device_time_s)
            read = {"power_w": power_w, "energy_j": power_w * device_s, "device_time_s": device_s, "sustained": True}
            runs.append(replace(m, time_s=device_s, **read))
    return replace(data, measurements=(*data.measurements, *runs))


@pytest.fixture(scope="module")
def powered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    datasets = [with_readings(simulated_kernels(name)) for name in (H100.name, H200.name)]
    return train_kernels([Loaded(save(data, folder / data.card.gpu), data) for data in datasets], LARGER)


def test_power_below_the_cap_is_what_was_read(powered):
    long, shorter = linear(64, 28672), linear(64, 1024)  # 470 MB of weights take 98 us, 17 MB take 4 us
    demand_w = powered.predictor.costs(OperationList([long, shorter]), H200).demand_w
    assert demand_w == pytest.approx([350, 350], rel=0.03)
    read_w, faded_w = asked(powered.predictor, H200).operations.predict([long, shorter]).power_w
    assert read_w == pytest.approx(350, rel=0.03)
    # No power was read of kernels below 60 us. Energy constants know half of this, and count more in shorter ones.
    assert faded_w < 0.9 * read_w


def test_a_long_run_sits_at_the_cap_and_takes_longer_than_a_burst(powered):
    predictions = asked(powered.predictor, H200).operations.predict([linear(4096)])
    assert predictions.power_w[0] == pytest.approx(H200.power_limit_w, rel=0.01)
    assert predictions.held_clock_mhz[0] < 0.95 * H200.boost_clock_mhz
    # One call after the other is a network of this one operation: what ran in 1.12 of the burst's time.
    uncapped = asked(powered.predictor, H200).operations.predict_for_network([linear(4096)], H200.power_limit_w)
    jobs = Jobs.of([uncapped.work], [np.ones(1)], [(0.0, 1.0, H200.power_limit_w)])
    _, device_s, _ = jobs.settled(np.array([[float(H200.boost_clock_mhz)]]))
    # Power was inverted as if all of its time followed the clock; the memory's part does not.
    assert device_s[0, 0] / predictions.device_time_s[0] == pytest.approx(1.12, abs=0.04)


def test_many_gpus_at_once_give_what_each_gives_alone(powered):
    engine = Operation("linear", [(64, 512)], {"out_features": 256, "implementation": "tensorrt_llm"}, precision="bf16")
    some = [linear(1), linear(64), engine, Operation("relu", [(8, 8)])]
    gpus = [find_gpu(name) for name in ("H200", "H100 SXM", "B200", "A30", "MI210")]
    together = OperationList(some)
    at_once = powered.predictor.costs(together, Boards.of(tuple(gpus)))
    for place, gpu in enumerate(gpus):
        alone = powered.predictor.costs(OperationList(reversed(some)), gpu)
        for several, one in zip(at_once, alone, strict=True):
            np.testing.assert_array_equal(several[place], one[::-1])


def test_what_is_stored_predicts_as_what_was_trained(powered, tmp_path):
    stored, operations = load_kernels(powered.save(tmp_path)), OperationList([linear(1), linear(64), linear(4096)])
    for gpu in map(find_gpu, ("H200", "H100 PCIe", "B200", "A10")):
        before, after = (each.costs(operations, gpu) for each in (powered.predictor, stored))
        assert after.device_s == pytest.approx(before.device_s, rel=1e-5)
        # Stored trees add up in another precision. A rounding error in a time may lead to another leaf of the power.
        assert after.demand_w == pytest.approx(before.demand_w, rel=1e-3, nan_ok=True)
        assert np.isnan(after.demand_w).all() == (gpu.name == "NVIDIA A10")  # Energies of physics hold before Hopper.
        assert stored.remarks(operations, gpu) == powered.predictor.remarks(operations, gpu)
    (row,) = (
        row
        for row in powered.card.errors
        if (row["split"], row["where"], row["what"]) == ("measured", H200.name, "linear, half")
    )
    assert 0 < row["power"]["mean"] < 0.1
    ((calibration, places),) = stored.calibrations(operations, H200)
    assert places.all()
    assert calibration.groups["GPU"][0].errors["power"].max() < 0.1
    assert stored.calibrations(operations, find_gpu("A10")) == ()  # no generation could be left out
