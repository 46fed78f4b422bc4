"""From simulated loops with known physics back to that physics."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import ACTIVE_W, SLOWDOWN, STATIC_W, simulated_dataset, simulated_operations

import joulecast
from joulecast import Operation
from joulecast.errors import DatasetError
from joulecast.hardware import find_gpu
from joulecast.predictors.evaluation.left_out import cross_validate
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.measured import measured_loops, transferred_loops
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.physics.fp32_kernels import counted_s
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
    """On an RTX 2080 Ti, whose loops measured both kinds, a small product took a fifth of such a layer."""
    if precision not in find_gpu(gpu).peak_flops:
        pytest.skip("the GPU lacks this precision")
    of_two = [[(16, 4), (4, 3)], [(1, 3301, 1), (1, 1, 3)], [(1, 678, 2841), (1, 2841, 517)]]
    products = [Operation("matmul", shapes, precision=precision, mode=mode) for shapes in of_two]
    layers = [
        Operation("linear", [left[-2:]], {"out_features": right[-1], "bias": False}, precision=precision, mode=mode)
        for left, right in of_two
    ]
    predictor = find_predictor(gpu, mode).operations
    assert (predictor.predict(products).device_time_s == predictor.predict(layers).device_time_s).all()


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
    with pytest.raises(DatasetError, match="too few"):
        chip_alone(fit_chip(few, "inference", RECIPE))
    with pytest.raises(DatasetError, match="too few"):
        chip_alone(fit_chip(dataset, "training", RECIPE))


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
