"""Trees that learn from pairs of operations that twice the work takes no less time."""

import numpy as np

from joulecast.operations.operation import Operation
from joulecast.predictors.recipes import TreeSettings
from joulecast.predictors.regressors.growth import Pairs, doubled_sizes, fit_growing

_SETTINGS = TreeSettings(trees=60, depth=6, min_child_weight=1.0)


def test_pairs_differ_in_their_batch_alone():
    measured = [
        Operation("matmul", [(8, 64, 32), (8, 32, 16)]),
        Operation("layer_norm", [(64, 128)], {"normalized_shape": (128,)}, mode="training"),
        Operation("conv2d", [(4, 16, 14, 14)], {"out_channels": 32, "kernel_size": 3, "padding": 1}),
    ]
    once, twice = doubled_sizes(measured, 300, np.random.default_rng(0))
    assert len(once) == len(twice) == 300
    assert {operation.kind for operation in once} == {operation.kind for operation in measured}
    assert len(set(once)) > 150  # random sizes
    for one, two in zip(once, twice, strict=True):
        assert two.input_shapes == tuple((2 * first, *others) for first, *others in one.input_shapes)
        assert (two.attributes, two.mode, two.precision) == (one.attributes, one.mode, one.precision)


def test_twice_the_work_is_rarely_quicker_where_measurements_scatter():
    """A launch decides all times, and what is left of them is noise: trees that only follow it break the law."""
    rng = np.random.default_rng(0)
    sizes = rng.uniform(0, 10, (2000, 1)).astype(np.float32)
    noise = rng.normal(0, 0.2, 2000)
    once = rng.uniform(0, 9, (4000, 1)).astype(np.float32)
    pairs = Pairs(once, once + 1, np.zeros(4000))
    tested = rng.uniform(0, 9, (2000, 1)).astype(np.float32)

    def broken(some: Pairs) -> float:
        fitted = fit_growing(_SETTINGS, sizes, noise, np.ones(2000), some)
        return float((fitted(tested + 1) < fitted(tested) - 0.01).mean())

    assert broken(Pairs(*(each[:0] for each in pairs))) > 0.3
    assert broken(pairs) < 0.1


def test_measurements_decide_where_they_keep_the_law():
    sizes = np.linspace(0, 10, 2000, dtype=np.float32)[:, None]
    targets = 0.1 * sizes[:, 0].astype(float)
    once = sizes[:1500]
    fitted = fit_growing(_SETTINGS, sizes, targets, np.ones(2000), Pairs(once, once + 2, np.zeros(1500)))
    assert np.abs(fitted(sizes) - targets).mean() < 0.02
