"""A measured chip: from simulated loops with known physics back to that physics; the rest is from all GPUs."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import ACTIVE_W, SLOWDOWN, STATIC_W, simulated_dataset, simulated_operations

import joulecast
from joulecast import Network, Operation, predict_operations
from joulecast.errors import DatasetError
from joulecast.hardware import find_gpu
from joulecast.predictors.evaluation.left_out import cross_validate
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.measured import measured_loops, transferred_loops
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.physics.fp32_kernels import counted_s
from joulecast.predictors.predictor import OperationPredictor
from joulecast.predictors.recipes import ForestRecipe
from joulecast.zoo import find_predictor

RECIPE = ForestRecipe(trees=16, folds=5)
A30 = find_gpu("A30")


@pytest.fixture(scope="module")
def predictor(dataset):
    return chip_alone(fit_chip(dataset, "inference", RECIPE))


def test_device_costs_are_recovered_from_host_bound_loops(predictor):
    operations = simulated_operations()
    predictions = predictor.predict(operations)
    true_s = np.array([SLOWDOWN[op.kind] for op in operations]) * counted_s(operations, A30)
    true_j = true_s * (ACTIVE_W - STATIC_W)
    host_bound = predictions.time_s > 3 * true_s
    assert host_bound.sum() > 20
    # The static power is that of the quietest loops, a watt above the true one, for the 27 us of a launch.
    assert predictions.dynamic_energy_j[host_bound] == pytest.approx(true_j[host_bound], rel=0.25, abs=3e-5)
    assert predictions.device_time_s.sum() == pytest.approx(true_s.sum(), rel=0.03)


def test_measured_modelled_missing(predictor):
    known = simulated_operations()[0]
    unseen = Operation("relu", [(3, 5)])
    stand_in = Operation("add", [(32, 64, 56, 56)] * 2)
    missing = Operation("all_reduce", [(64, 64)], {"gpus": 2}, precision="bf16")
    predictions = predictor.predict([known, unseen, stand_in, missing])
    assert predictions.source == ("measured", "modelled", "modelled", "missing")
    assert predictor.predict([known], 900).source == ("modelled",)
    assert np.isnan(predictions.time_s[3])
    assert np.isfinite(predictions.time_s[:3]).all()
    # An addition moves three tensors where a relu moves two.
    relu = predictor.predict([Operation("relu", [(32, 64, 56, 56)])])
    assert predictions.device_time_s[2] == pytest.approx(1.5 * relu.device_time_s[0], rel=0.05)


@pytest.mark.parametrize("precision", ["fp32", "fp64", "bf16"])
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("gpu", ["RTX 2080 Ti", "A30", "L4", "MI250X"])
def test_a_single_product_is_predicted_as_the_linear_layer_of_its_sizes(gpu, mode, precision):
    """On an RTX 2080 Ti, whose loops measured both kinds, a small product took a fifth of such a layer.

    Launches of the two differ, and a board that waits for longer is farther from its cap; so their work is compared.
    """
    if precision not in find_gpu(gpu).peak_flops:
        pytest.skip("the GPU lacks this precision")
    how, predictor = {"precision": precision, "mode": mode}, find_predictor(gpu, mode).operations
    of_two = [[(16, 4), (4, 3)], [(1, 3301, 1), (1, 1, 3)], [(1, 678, 2841), (1, 2841, 517)]]
    products = [Operation("matmul", shapes, **how) for shapes in of_two]
    layers = [
        Operation("linear", [left[-2:]], {"out_features": right[-1], "bias": False}, **how) for left, right in of_two
    ]
    one, other = (predictor.work(listed, capped=True) for listed in (products, layers))
    assert (one.device_s == other.device_s).all()


def test_large_operations_are_transferred_from_inference():
    inference, training = simulated_dataset("inference"), simulated_dataset("training")
    tiny = tuple(m for m in training.measurements if m.operation.kind != "conv2d" or m.time_s < 70e-6)
    assert sum(m.operation.kind == "conv2d" for m in tiny) < 12
    both = replace(inference, measurements=inference.measurements + tiny, networks=())
    predictor = chip_alone(fit_chip(both, "training", RECIPE))
    assert predictor.chip.transferred == ("conv2d",)
    large = [m for m in training.measurements if m.operation.kind == "conv2d" and m.time_s > 1e-3]
    predicted = predictor.predict([m.operation for m in large])
    assert predicted.time_s == pytest.approx([m.time_s for m in large], rel=0.1)
    assert set(predicted.source) == {"modelled"}
    # An operation that is left out is not transferred from inference, either.
    left_out = [m.operation for m in large]
    measured = [measured_loops(both, mode) for mode in ("training", "inference")]
    made = transferred_loops(*measured, A30, (), without=left_out)
    assert made
    assert not {loop.operation for loop in made} & set(left_out)


def test_too_few_operations_are_refused(dataset):
    few = replace(dataset, measurements=dataset.measurements[:10])
    for data, mode in ((few, "inference"), (dataset, "training")):
        with pytest.raises(DatasetError, match="too few"):
            fit_chip(data, mode, RECIPE)


def test_folds_share_no_operation(dataset):
    repeated = replace(dataset, measurements=dataset.measurements * 2)
    errors = cross_validate(repeated, "inference", RECIPE, "simulated")
    row = errors.row("folds", with_r2=True)
    assert row["count"] == 2 * row["unique"] == 200
    # The physics is exact but for a 2 % spread of the host; a leak would give errors of zero.
    assert 0.0005 < row["time"]["median"] < 0.05
    assert row["power"]["median"] < 0.05
    once = dict(zip(errors.of, errors.predicted["time"], strict=True))
    assert errors.predicted["time"] == pytest.approx([once[operation] for operation in errors.of])


LINEARS = [Operation("linear", [(n, 512)], {"out_features": 512}) for n in (64, 128, 256)]


@pytest.mark.parametrize("column", ["time_s", "power_w", "energy_j", "device_time_s"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e-9, -3e34])
def test_impossible_predictions_are_missing_and_never_look_like_small_costs(column, value):
    found = joulecast.predict_operations(LINEARS, "H100 SXM")
    assert found.source == ("modelled",) * 3
    assert replace(found).time_s is found.time_s  # Possible ones are left as they are.
    values = getattr(found, column).copy()
    values[1] = value
    changed = replace(found, **{column: values})
    assert changed.source == ("modelled", "missing", "modelled")
    for name in ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j", "host_time_s"):
        assert np.isnan(getattr(changed, name)).tolist() == [False, True, False]
        assert getattr(changed, name)[[0, 2]].tolist() == getattr(found, name)[[0, 2]].tolist()


# What was measured on a chip is predicted by its loops, the rest by what all GPUs share.


CONV = Operation("conv2d", [(32, 64, 28, 28)], {"out_channels": 64, "kernel_size": 3}, precision="fp32")
OPERATIONS = [CONV, CONV.replace(precision="bf16"), Operation("relu", [(32, 64, 28, 28)], precision="bf16")]


@pytest.fixture(scope="module")
def other():
    return find_predictor("A30", "inference", "any-gpu/forest").operations


@pytest.fixture(scope="module")
def both(predictor, other):
    return OperationPredictor(A30, "inference", other.find_shared, {"inference": predictor.chip})


def test_what_was_measured_stays_and_the_rest_is_from_what_all_gpus_share(predictor, other, both):
    """That is not loaded where everything was measured."""

    def never():
        raise AssertionError

    by_chip = OperationPredictor(A30, "inference", never, {"inference": predictor.chip})
    network = NetworkPredictor("test", by_chip, HostModel(5e-6, learned=True)).predict(Network.of([(CONV, 3)]))
    assert network.time_s > 0
    assert by_chip.predict([CONV], 900, 120).time_s > by_chip.predict([CONV]).time_s
    alone = by_chip.predict([CONV])
    whole, rest = (p.predict(OPERATIONS) for p in (both, other))
    assert whole.source == (alone.source[0], "modelled", "modelled")
    for name in ("time_s", "power_w", "device_time_s", "dynamic_energy_j"):
        assert getattr(whole, name)[0] == pytest.approx(getattr(alone, name)[0], rel=1e-12)
    assert whole.device_time_s[1:] == pytest.approx(rest.device_time_s[1:])
    assert whole.energy_j == pytest.approx(whole.power_w * whole.time_s)
    assert (whole.power_w <= A30.power_limit_w).all()


def test_networks_say_what_was_not_measured(both):
    predictor = NetworkPredictor("test", both, HostModel(5e-6, learned=True))
    network = Network.of([(operation, 3) for operation in OPERATIONS])
    prediction = predictor.predict(network)
    assert prediction.uncovered == ()
    assert any("conv2d bf16, relu bf16" in note for note in prediction.notes)
    assert sum(cost.energy_j for cost in prediction.operations) == pytest.approx(prediction.energy_j)
    assert prediction.interval() is None
    slow = predictor.predict(network, 720)
    assert slow.time_s > prediction.time_s
    assert slow.power_w < prediction.power_w
    measured_only = predictor.predict(Network.of([(CONV, 3)]))
    assert not any("data sheet" in note for note in measured_only.notes)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_best_measured_gpu_says_no_less_than_one_that_was_never_measured(mode, precision):
    """The A30 in half precision has the interval of other chips, as an A100 has. In fp32 it has its own.

    That of a training step depends on how its time divides among its operations, which differs a little by GPU.
    """
    network = Network.of([(each.replace(precision=precision, mode=mode), 3) for each in OPERATIONS])
    here = find_predictor("A30", mode).predict(network)
    there, far = (find_predictor(gpu, mode).predict(network) for gpu in ("A100 PCIe 40GB", "H100 SXM"))
    for level in (0.9, 0.8):  # Half of the networks are as close on other chips.
        upper, known, unknown = (each.interval(level).time_s[1] / each.time_s for each in (here, there, far))
        assert upper == pytest.approx(known, rel=1e-6 if mode == "inference" else 0.01)
        assert upper <= unknown * (1 + (1e-9 if mode == "inference" else 0.01))
    assert any("not of NVIDIA A30's own" in note for note in here.notes)
    assert not any("no interval" in note for note in here.notes)
    in_fp32 = find_predictor("A30", mode).predict(Network.of([(CONV.replace(mode=mode), 3)]))
    assert not any("own" in note for note in in_fp32.notes)
    assert in_fp32.interval(0.8).time_s[1] / in_fp32.time_s != pytest.approx(upper)


def test_intervals_of_a_mixed_list_are_those_of_its_operations_alone():
    bf16 = [Operation("linear", [(rows, 512)], {"out_features": 512}, precision="bf16") for rows in (16, 64, 4096)]
    linear = Operation("linear", [(64, 512)], {"out_features": 512})
    mixed = [Operation("relu", [(64, 512)]), bf16[0], linear, *bf16[1:]]
    together = predict_operations(mixed, "A30").interval(0.9)
    for place, operation in enumerate(mixed):
        alone = predict_operations([operation], "A30").interval(0.9)
        for quantity in ("time_s", "energy_j"):
            low, high = getattr(together, quantity)
            assert (low[place], high[place]) == pytest.approx(tuple(each[0] for each in getattr(alone, quantity)))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_host_launches_in_any_precision_alike(mode):
    """Also kinds of which no launch was measured: that of a similar kind stands for both."""
    kinds = [Operation(kind, [(8, 64)], mode=mode) for kind in ("relu", "tanh", "add", "softmax")]
    kinds.append(Operation("embedding", [(8, 64)], {"num_embeddings": 100, "embedding_dim": 64}, mode=mode))
    fp32, bf16 = (
        find_predictor("A30", mode).operations.predict([each.replace(precision=precision) for each in kinds])
        for precision in ("fp32", "bf16")
    )
    assert bf16.host_time_s == pytest.approx(fp32.host_time_s)
