"""The perceptron: known answers, its fit, what is stored of it, and its mean with trees for any GPU."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_gpu, simulated_operations

from joulecast.errors import ZooError
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.fitting.fit import read_residual_model
from joulecast.predictors.formats.arrays import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.model.fit_boosted import fit_any_gpu
from joulecast.predictors.recipes import BoostingRecipe, PerceptronRecipe
from joulecast.predictors.regressors.perceptron import Perceptron

SMALL = PerceptronRecipe(width=16, layers=1, epochs=40, batch=64)


def by_hand() -> Perceptron:
    """One unit: 2 gelu(x + 1) + 2 gelu(gelu(x + 1)) + 5. A second input has no influence."""
    arrays = ([-1, 0], [3, 0], [[1], [0]], [1], [[[[1]], [[1]]]], [[[0], [0]]], [2], [5])
    return Perceptron(*(np.array(each, dtype=np.float32) for each in arrays))


def gelu(x):
    return x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def test_values_by_hand():
    inputs = np.array([[0, 7], [2, -7], [100, 0], [-100, 0]], dtype=np.float32)
    first = gelu(np.array([1.0, 3.0, 4.0, 0.0]))  # Inputs are held between -1 and 3.
    assert by_hand()(inputs) == pytest.approx(2 * (first + gelu(first)) + 5, rel=1e-6)
    assert by_hand()(inputs[:0]).shape == (0,)


def test_many_rows_at_once_give_what_parts_of_them_give():
    inputs = np.linspace(-1, 3, 2400, dtype=np.float32).reshape(1200, 2)
    assert by_hand()(inputs)[700] == pytest.approx(by_hand()(inputs[700:701])[0], rel=1e-6)


@pytest.fixture(scope="module")
def synthetic():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.uniform(-2, 2, size=(1000, 2)), rng.integers(0, 2, 1000) * 9 + 100])
    targets = np.abs(inputs[:, 0]) + 0.3 * inputs[:, 1] + 0.5 * (inputs[:, 2] > 104)
    return inputs.astype(np.float32), targets


def fitted(synthetic, recipe=SMALL, hidden=(), seed=0):
    fit = pytest.importorskip("joulecast.predictors.regressors.descent", reason="needs torch")
    inputs, targets = synthetic
    return fit.fit_perceptron(inputs, targets, np.ones(len(targets)), recipe, fit.Columns((1,), hidden), seed)


def test_a_fit_finds_the_function_and_repeats_itself(synthetic):
    plain = replace(SMALL, blur=0.0, unknown_kinds=0.0)
    found = fitted(synthetic, plain)
    inputs, targets = synthetic
    assert np.abs(found(inputs) - targets).mean() < 0.05
    short, again = (fitted(synthetic, replace(plain, epochs=2)).to_bytes() for _ in range(2))
    assert short == again != found.to_bytes()
    # Beyond what was seen it stays where it was.
    beyond, edge = np.array([[50, 0, 100], [inputs[:, 0].max(), 0, 100]], dtype=np.float32)
    assert found(beyond[None]) == pytest.approx(found(edge[None]), rel=1e-6)


def test_a_kind_that_was_never_seen_gets_the_mean_of_those_that_were(synthetic):
    inputs, _ = synthetic
    # A third value, and training that showed it or did not: zero stands for "none of those told apart".
    shifted = inputs - np.array([0, 0, 100], dtype=np.float32)
    unknown = shifted * np.array([1, 1, 0], dtype=np.float32)
    shifted[:, 2] = np.where(shifted[:, 2] > 0, 9, -9)
    truth = np.abs(inputs[:, 0]) + 0.3 * inputs[:, 1]
    with_unknown = fitted((shifted, truth + 0.5 * (shifted[:, 2] > 0)), replace(SMALL, unknown_kinds=0.3), hidden=(2,))
    assert np.median(with_unknown(unknown) - truth) == pytest.approx(0.25, abs=0.25)
    assert np.abs(with_unknown(shifted) - truth - 0.5 * (shifted[:, 2] > 0)).mean() < 0.1


def test_what_is_stored_comes_back_and_damage_is_refused():
    stored = by_hand().to_bytes()
    inputs = np.array([[0.5, 0]], dtype=np.float32)
    assert Perceptron.from_bytes(stored)(inputs) == by_hand()(inputs)
    arrays, facts = arrays_from_bytes(stored)
    damaged = [
        ({**arrays, "head": arrays["head"] * np.float32(np.nan)}, facts),
        ({**arrays, "head": np.zeros(2, dtype=np.float32)}, facts),
        ({**arrays, "first": arrays["first"].astype(np.float64)}, facts),
        ({**arrays, "layers": arrays["layers"][0]}, facts),
        ({**arrays, "layers": arrays["layers"][:0], "layers_bias": arrays["layers_bias"][:0]}, facts),
        ({name: array for name, array in arrays.items() if name != "lowest"}, facts),
        (arrays, {"kind": "trees"}),
    ]
    for some, said in damaged:
        with pytest.raises(ZooError, match="perceptron"):
            Perceptron.from_bytes(arrays_to_bytes(some, said))


def test_beside_trees_for_any_gpu_it_is_stored_and_needed():
    pytest.importorskip("torch")
    pytest.importorskip("xgboost")
    recipe = BoostingRecipe(trees=30, depth=4, learning_rate=0.2, folds=2, perceptron=SMALL)
    learned = fit_any_gpu([simulated_gpu(name) for name in ("A30", "T4")], (), recipe)
    operations, gpu = simulated_operations(), find_gpu("L4")
    ahead = OperationList(operations)
    learned.prefetch(ahead, [gpu])
    assert learned.ratio(ahead, gpu) == pytest.approx(learned.ratio(operations, gpu), rel=1e-6)
    facts, files = learned.to_files()
    read = read_residual_model(facts, files)
    assert read.factors(operations, gpu)[0] == pytest.approx(learned.factors(operations, gpu)[0], rel=1e-5)
    without = {name: stored for name, stored in files.items() if not name.startswith("perceptron")}
    with pytest.raises(ZooError, match="perceptron"):
        read_residual_model(facts, without)
