"""Explanations: bounds by hand, the nearest operations, and contributions that add up to the prediction."""

import json
import math
import sys

import pytest
from simulated_measurements import simulated_operations

import joulecast
from joulecast import Operation
from joulecast.errors import InputError, MissingDependencyError
from joulecast.hardware import find_gpu
from joulecast.predictors.board.profile import BoardProfile
from joulecast.predictors.explanation import contributions, explain_operation
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.physics.fp32_kernels import counted_s
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.recipes import ForestRecipe, XGBoostRecipe
from joulecast.zoo import ModelCard, load_entry, save_entry
from joulecast.zoo.entry import load_background
from joulecast.zoo.files import OPERATIONS, json_bytes
from joulecast.zoo.golden import Sample

A30 = find_gpu("A30")
CONV = {"out_channels": 64, "kernel_size": 3, "padding": 1, "bias": False}


@pytest.fixture(scope="module")
def boosted(dataset):
    return chip_alone(fit_chip(dataset, "inference", XGBoostRecipe(trees=60, patience=20, depth=4, learning_rate=0.2)))


@pytest.fixture(scope="module")
def native(boosted):
    return {name: getattr(boosted.chip, name).to_files(name)[f"{name}.ubj"] for name in ("time", "power")}


def test_what_bounds_an_operation(dataset):
    predictor = chip_alone(fit_chip(dataset, "inference", ForestRecipe(trees=8)))

    def explained(operation):
        return explain_operation(predictor, "test", operation)

    conv = explained(Operation("conv2d", [(32, 256, 56, 56)], {**CONV, "out_channels": 256}, precision="fp32"))
    # 2 x 9 x 256 x 256 x 32 x 56 x 56 FLOPs at 10.3 TFLOP/s.
    assert conv.compute_s == pytest.approx(2 * 9 * 256 * 256 * 32 * 56 * 56 / A30.peak_flops["fp32"])
    assert conv.bound_by == "compute"
    assert conv.efficiency == pytest.approx(conv.compute_s / conv.device_time_s)
    relu = explained(Operation("relu", [(32, 256, 56, 56)]))
    assert relu.memory_s == pytest.approx(2 * 4 * 32 * 256 * 56 * 56 / A30.memory_bandwidth)
    assert relu.bound_by == "memory"
    tiny = explained(Operation("relu", [(4, 4)]))
    assert tiny.bound_by == "launch"
    assert tiny.host_time_s > tiny.device_time_s
    assert tiny.contributions is None
    with pytest.raises(InputError, match="nothing covers"):
        explained(Operation("all_reduce", [(64, 64)], {"gpus": 2}, precision="bf16"))


def test_the_nearest_operations_are_of_the_same_kind_and_sorted(boosted):
    asked = Operation("relu", [(32, 64, 30, 30)])
    found = explain_operation(boosted, "test", asked, trained_on=simulated_operations()).nearest
    assert len(found) == 5
    assert {n.operation.kind for n in found} == {"relu"}
    assert [n.distance for n in found] == sorted(n.distance for n in found)
    assert found[0].operation.input_shapes == ((32, 64, 28, 28),)
    (again,) = boosted.predict([found[0].operation]).time_s
    assert found[0].time_s == again


def test_an_operation_is_its_own_neighbour_at_the_clock_that_is_asked_for(boosted):
    measured = simulated_operations()[-4]
    slow, default = (
        explain_operation(boosted, "test", measured, clock, trained_on=simulated_operations()) for clock in (600, None)
    )
    nearest = slow.nearest[0]
    assert (nearest.operation, nearest.time_s, nearest.power_w) == (measured, slow.time_s, slow.power_w)
    assert nearest.time_s > 1.2 * default.time_s


def test_contributions_add_up(boosted, native, monkeypatch):
    operation = simulated_operations()[-4]
    found = contributions(boosted.regressor_inputs(operation), native, boosted.gpu)
    predictions = boosted.predict([operation])
    base_s = boosted.chip.baseline.loop_s([boosted.chip.baseline.stand_in(operation, A30)], counted_s([operation], A30))
    assert math.prod(c.effect for c in found["time"]) * base_s[0] == pytest.approx(predictions.time_s[0], rel=1e-4)
    assert sum(c.effect for c in found["power"]) == pytest.approx(predictions.power_w[0], rel=1e-4)
    assert found["time"][0].name == "(mean)"
    sizes = [abs(math.log(c.effect)) for c in found["time"][1:]]
    assert sizes == sorted(sizes, reverse=True)
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingDependencyError, match="need xgboost"):
        explain_operation(boosted, "test", operation, native=native)


def test_a_stored_predictor_can_be_explained(boosted, tmp_path, dataset):
    empty = {"promise": "", "recipe": {}, "splits": "", "data": (), "errors": ()}
    card = ModelCard(name="a30/xgboost-inference", predictor="xgboost", **empty)
    operations = simulated_operations()
    predictor = NetworkPredictor(card.name, boosted, HostModel(0.0))
    files = {OPERATIONS: json_bytes([operation.to_dict() for operation in operations])}
    folder = save_entry(tmp_path / "e", card, predictor, [Sample(operations[:8])], files)
    loaded, background = load_entry(folder), load_background(folder)
    assert set(background.operations) == set(simulated_operations())
    operation = simulated_operations()[0]
    known = (background.operations, background.native)
    explained = explain_operation(loaded.operations, loaded.name, operation, None, *known)
    assert explained.nearest[0].operation == operation
    assert explained.nearest[0].distance == pytest.approx(0, abs=1e-3)
    assert {"time", "power"} == set(explained.contributions)
    assert "time_s" not in (folder / "manifest.json").read_text().split('"golden"')[0]


@pytest.mark.parametrize(
    ("operation", "gpu", "names"),
    [
        (Operation("linear", [(512, 768)], {"out_features": 3072}, precision="bf16"), "H100 SXM", {"learned"}),
        (Operation("conv2d", [(32, 64, 56, 56)], CONV, precision="tf32"), "A30", {"learned", "this chip"}),
        (Operation("softmax", [(512, 512)]), "L4", {"learned"}),
    ],
    ids=["kernels", "own loops", "other GPUs"],
)
@pytest.mark.parametrize("clock", [None, 900.0])
def test_the_time_of_the_gpu_is_the_product_of_its_factors(operation, gpu, names, clock):
    explained = joulecast.explain(operation, gpu, clock)
    board = find_gpu(gpu)
    assert explained.factors[0].name == "physics"
    assert explained.factors[0].value == LeastTimes.of([operation], board, float(board.boost_clock_mhz)).time_s[0]
    assert math.prod(each.value for each in explained.factors) == pytest.approx(explained.device_time_s)
    found = {each.name for each in explained.factors} - {"physics"}
    assert found == names | ({"clock and cap"} if clock else found & {"clock and cap"})
    assert all(each.rests_on for each in explained.factors)
    # Inside a network other kernels ran in between, and TF32 is quicker there: the effects of docs/how-it-works.md.
    inside = explained.inside_networks
    assert (inside is None) == (operation.precision == "fp32")
    if inside is not None:
        assert (inside.value > 1) == (operation.precision == "bf16")


def test_an_operation_without_a_kernel_is_explained():
    explained = joulecast.explain(Operation("dropout", [(4, 8)], {"p": 0.1}), "A30")
    assert math.prod(each.value for each in explained.factors) == 0
    assert explained.device_time_s < 1e-8
    assert explained.inside_networks is None
    assert explained.bound_by == "launch"


def test_a_board_is_one_of_the_factors():
    operation = Operation("relu", [(32, 64, 56, 56)])
    gpu = find_gpu("H100 SXM")
    profile = BoardProfile(gpu.name, {}, {}, {}, ("2026-11-23",) * 2, 40, {"DRAM": 1.5, "products on other units": 9.0})
    plain, explained = (joulecast.explain(operation, gpu, calibration=each) for each in (None, profile))
    (board,) = (each for each in explained.factors if each.name == "this board")
    assert board.value == pytest.approx(explained.device_time_s / plain.device_time_s, rel=0.01)
    assert profile.sha256[:12] in board.rests_on
    assert explained.calibration == {"DRAM": 1.5}


def test_public_function_and_command(call):
    operation = Operation("conv2d", [(32, 64, 56, 56)], CONV, precision="tf32")
    explained = joulecast.explain(operation, "A30")
    assert json.loads(json.dumps(explained.to_dict()))["factors"][0]["name"] == "physics"
    arguments = ["explain", "conv2d", "32,64,56,56", "--gpu", "A30", "--precision", "tf32"]
    arguments += [part for name, value in CONV.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    code, out, _ = call(*arguments)
    assert code == 0
    for text in ("bound by", "this chip", "nearest measured", *explained.sentences()):
        assert text in out
        assert text in explained._repr_html_()
    assert json.loads(call(*arguments, "--json")[1])["time_s"] == pytest.approx(explained.time_s)
    code, _, err = call("explain", "relu", "4,4", "--gpu", "A30", "--set", "inplace")
    assert code == 2
    assert "name=value" in err
    other = joulecast.explain(Operation("relu", [(32, 64, 56, 56)]), "A100-PCIE-40GB")
    assert other.nearest == ()
    assert other.contributions is None
