"""The Gaussian process: known answers, its fit, and what is stored of it."""

import numpy as np
import pytest

from joulecast.errors import ZooError
from joulecast.predictors.formats.arrays import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.regressors.blend import BlendRegressor
from joulecast.predictors.regressors.gaussian import GaussianProcess, _likelihood, fit_gaussian


def process(points, weights, mean=0.0):
    points = np.array(points, dtype=np.float32)
    columns = points.shape[1]
    shift, scale = np.zeros(columns, dtype=np.float32), np.ones(columns, dtype=np.float32)
    return GaussianProcess(shift, scale, points, np.array(weights, dtype=np.float32), mean)


def test_values_by_hand():
    # Matern 5/2 at distance 1: (1 + sqrt(5) + 5 / 3) exp(-sqrt(5)).
    near = (1 + 5**0.5 + 5 / 3) * np.exp(-(5**0.5))
    values, closeness = process([[0.0, 0.0], [2.0, 0.0]], [3.0, 1.0], mean=0.5)(
        np.array([[0, 0], [1, 0], [0, 1000]], dtype=np.float32)
    )
    far = (1 + 20**0.5 + 20 / 3) * np.exp(-(20**0.5))
    assert values == pytest.approx([0.5 + 3 + far, 0.5 + 4 * near, 0.5], rel=1e-5)
    assert closeness == pytest.approx([1, near, 0], abs=1e-5)


def test_no_row_depends_on_the_rows_beside_it_to_the_last_bit():
    rng = np.random.default_rng(3)
    found = process(rng.normal(size=(301, 19)), rng.normal(size=301))
    rows = rng.normal(size=(150, 19)).astype(np.float32)
    whole = found(rows)[0]
    for size in (1, 7, 57):
        pieces = [found(rows[first : first + size])[0] for first in range(0, len(rows), size)]
        assert np.concatenate(pieces).tolist() == whole.tolist()


def test_gradient_of_the_likelihood_is_that_of_its_values():
    rng = np.random.default_rng(0)
    inputs, wanted = rng.normal(size=(40, 3)), rng.normal(size=40)
    posterior = _likelihood(inputs, wanted)
    logs = np.array([0.3, 1.0, -0.2, 0.1, -2.0])
    _, gradient = posterior(logs)
    steps = 1e-5 * np.eye(5)
    slopes = [(posterior(logs + step)[0] - posterior(logs - step)[0]) / 2e-5 for step in steps]
    assert gradient == pytest.approx(slopes, rel=1e-5)


def test_a_fit_finds_the_function_and_which_inputs_matter():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.uniform(-2, 2, size=(150, 3)), np.full(150, 7.0)]).astype(np.float32)

    def truth(x):
        return np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 5

    found = fit_gaussian(inputs, truth(inputs) + 0.01 * rng.normal(size=150))
    unseen = np.column_stack([rng.uniform(-1.5, 1.5, size=(50, 3)), np.full(50, 7.0)]).astype(np.float32)
    values, closeness = found(unseen)
    assert values == pytest.approx(truth(unseen), abs=0.05)
    assert closeness.min() > 0.5
    # The third input says nothing, the fourth never varied.
    assert found.scale[0] > 10 * found.scale[2]
    assert found.scale[3] == 0
    away, none_near = found(np.full((1, 4), 1e3, dtype=np.float32))
    assert away == pytest.approx(found.mean)
    assert none_near == 0


def test_a_blend_is_the_process_near_and_the_trees_away():
    blend = BlendRegressor(lambda inputs: np.full(len(inputs), 10.0), process([[0.0]], [4.0]), 0.75)
    assert blend(np.array([[0.0], [1e3]], dtype=np.float32)) == pytest.approx([0.25 * 10 + 0.75 * 4, 10])


def test_the_weight_of_the_process_falls_with_a_power_of_closeness():
    alone = process([[0.0]], [4.0])
    rows = np.array([[0.0], [0.3], [1.0]], dtype=np.float32)
    (values, closeness), trees = alone(rows), 10.0
    for falloff in (2.0, 8.0):
        blend = BlendRegressor(lambda inputs: np.full(len(inputs), trees), alone, 0.8, falloff)
        assert blend(rows) == pytest.approx(trees + 0.8 * closeness**falloff * (values - trees))


def test_a_process_is_stored_to_the_bit():
    before = process([[0.1, 0.2], [0.3, 0.7]], [1.1, -2.3], mean=0.1)
    after = GaussianProcess.from_bytes(before.to_bytes())
    rows = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    assert (after(rows)[0] == before(rows)[0]).all()
    assert after.to_bytes() == before.to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.zeros(3, np.float32)},
        {"weights": np.full(2, np.nan, np.float32)},
        {"points": np.zeros((2, 3), np.float32)},
        {"points": np.zeros((2, 2), np.float64)},
        {"shift": np.zeros((2, 1), np.float32)},
        {"more": np.zeros(2, np.float32)},
    ],
)
def test_arrays_that_are_no_process_are_refused(change):
    arrays, facts = arrays_from_bytes(process([[0.1, 0.2], [0.3, 0.7]], [1.0, 2.0]).to_bytes())
    with pytest.raises(ZooError, match="Gaussian process"):
        GaussianProcess.from_bytes(arrays_to_bytes({**arrays, **change}, facts))
