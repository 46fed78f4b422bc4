"""Products in whole waves of blocks, on a GPU with ten multiprocessors, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.operation_numbers import numbers_of
from joulecast.predictors.physics.tiling import Tile
from joulecast.predictors.physics.whole_waves import TILE_NAMES, computed_flops, tile_features, wave_flops

SMALL = Tile(64, 64)


def computed(operation, on_tensor_cores=False):
    return float(computed_flops(numbers_of([operation]), ROUND, np.array([on_tensor_cores]))[0])


@pytest.mark.parametrize(
    ("rows", "splits", "waves"),
    [
        pytest.param(640, False, 1, id="ten blocks fill a wave"),
        pytest.param(641, False, 2, id="eleven take two"),
        pytest.param(320, False, 1, id="five take as long as ten"),
        pytest.param(320, True, 0.5, id="five are split along the reduction"),
        pytest.param(641, True, 1.1, id="eleven, too"),
        pytest.param(1281, True, 3, id="beyond two waves nothing is split"),
        pytest.param(1280, True, 2, id="two waves"),
    ],
)
def test_waves(rows, splits, waves):
    """A step of a block is 2 x 64 x 64 FLOPs, and 32 steps pass before it computes."""
    found = wave_flops(rows, 64, 100, SMALL, 10, splits=splits)
    assert float(found) == pytest.approx(waves * 10 * 2 * 64 * 64 * (100 + 32))


def test_a_linear_layer_splits_its_reduction():
    """128 x 64 outputs are two blocks on ten multiprocessors."""
    layer = Operation("linear", [(128, 100)], {"out_features": 64, "bias": False})
    assert computed(layer) == pytest.approx(2 * 2 * 64 * 64 * (100 + 32))
    # Backward computes 128 x 100 outputs from 64 in four blocks, and the gradient of the weight as it is.
    training = computed(layer.replace(mode="training"))
    assert training == pytest.approx(2 * 8192 * 132 + 4 * 8192 * (64 + 32) + 2 * 128 * 100 * 64)


def test_few_rows_are_computed_as_they_are():
    layer = Operation("linear", [(31, 100)], {"out_features": 64, "bias": False})
    assert computed(layer) == 2 * 31 * 100 * 64
    assert computed(Operation("linear", [(32, 100)], {"out_features": 64, "bias": False})) == pytest.approx(8192 * 132)


def test_a_convolution_takes_narrow_blocks_on_fp32_pipes():
    """16 x 16 pixels of 64 channels from a 1 x 1 window of 32: 256 rows, 64 columns, 32 steps; one wave."""
    conv = Operation("conv2d", [(1, 32, 16, 16)], {"out_channels": 64, "kernel_size": 1, "bias": False})
    assert computed(conv) == pytest.approx(10 * 2 * 128 * 64 * (32 + 32))
    # In training three products of that size are counted.
    assert computed(conv.replace(mode="training")) == pytest.approx(3 * computed(conv))


@pytest.mark.parametrize(
    ("batch", "channels", "flops_per_step"),
    [
        # 1280 x 128 outputs: ten blocks of 128 x 128 fill a wave.
        pytest.param(5, 128, 10 * 2 * 128 * 128, id="large"),
        # 1280 x 64 outputs: ten blocks of 128 x 64 fill a wave, where larger ones lie half outside.
        pytest.param(5, 64, 1.1 * 10 * 2 * 128 * 64, id="narrow"),
        # 256 x 64 outputs: four blocks of 64 x 64 take one wave, as two larger ones would.
        pytest.param(1, 64, 1.25 * 10 * 2 * 64 * 64, id="small"),
    ],
)
def test_a_convolution_takes_the_quickest_blocks_on_tensor_cores(batch, channels, flops_per_step):
    conv = Operation("conv2d", [(batch, 32, 16, 16)], {"out_channels": channels, "kernel_size": 1, "bias": False})
    assert computed(conv, on_tensor_cores=True) == pytest.approx(flops_per_step * (32 + 32))
    training = computed(conv.replace(mode="training"), on_tensor_cores=True)
    assert training == pytest.approx(3 * flops_per_step * (32 + 32))


def test_winograd_multiplies_less_but_not_on_tensor_cores():
    """16 x 16 outputs are whole squares of 2 x 2, so 9/4 times fewer multiplications; 64 x 9 steps."""
    attributes = {"out_channels": 64, "kernel_size": 3, "padding": 1, "bias": False}
    conv = Operation("conv2d", [(1, 64, 16, 16)], attributes)
    assert computed(conv) == pytest.approx(10 * 2 * 128 * 64 * (576 + 32) / 2.25)
    assert computed(conv, on_tensor_cores=True) == pytest.approx(1.25 * 10 * 2 * 64 * 64 * (576 + 32))
    # 17 x 17 outputs take 81 squares, 324 pixels in place of 289; rows are 324 of 128, three blocks, still one wave.
    odd = Operation("conv2d", [(1, 64, 17, 17)], attributes)
    assert computed(odd) == pytest.approx(10 * 2 * 128 * 64 * (576 + 32) / 2.25)


def test_squares_beyond_the_edge_take_a_wave_of_their_own():
    """35 x 36 outputs are 1260 rows in ten blocks; the 18 x 18 squares over them are 1296 rows, in eleven."""
    attributes = {"out_channels": 64, "kernel_size": 3, "padding": 1, "bias": False}
    conv = Operation("conv2d", [(1, 64, 35, 36)], attributes)
    assert computed(conv) == pytest.approx(2 * 10 * 2 * 128 * 64 * (576 + 32) / 2.25)


def test_grouped_and_batched_products_are_not_dense():
    grouped = Operation("conv2d", [(1, 32, 16, 16)], {"out_channels": 64, "kernel_size": 1, "groups": 2, "bias": False})
    assert computed(grouped) == grouped.flops
    relu = Operation("relu", [(8, 8)])
    assert computed(relu) == relu.flops


def test_blocks_as_features():
    """128 x 64 outputs and 100 steps: one block of each size up to 128 x 64 and two of 64 x 64, all in one wave."""
    layer = Operation("linear", [(128, 100)], {"out_features": 64, "bias": False})
    relu = Operation("relu", [(8, 8)])
    n = numbers_of([layer, relu])
    found = dict(zip(TILE_NAMES, tile_features(n, ROUND, np.array([False, False])), strict=True))
    own = 2 * 128 * 64 * 100
    for name, step in (
        ("log_large_tiles", 2 * 128 * 128),
        ("log_narrow_tiles", 2 * 128 * 64),
        ("log_small_tiles", 2 * 64 * 64),
    ):
        assert found[name].tolist() == pytest.approx([np.log(10 * step * 132 / own), 0.0])
    # The gradient of the input has 128 x 100 outputs from 64 features.
    assert found["log_backward_tiles"].tolist() == pytest.approx([np.log(10 * 2 * 64 * 64 * 96 / own), 0.0])
    assert found["winograd_saving"].tolist() == [1.0, 1.0]


def test_with_a_stride_each_position_of_the_input_meets_a_part_of_the_window():
    """16 x 16 positions of 32 channels meet 64 channels in a quarter of 3 x 3: 256 rows, 32 columns, 144 steps."""
    attributes = {"out_channels": 64, "kernel_size": 3, "padding": 1, "stride": 2, "bias": False}
    conv = Operation("conv2d", [(1, 32, 16, 16)], attributes)
    found = dict(zip(TILE_NAMES, tile_features(numbers_of([conv]), ROUND, np.array([False])), strict=True))
    own = 2 * 8 * 8 * 64 * (32 * 9)
    assert found["log_backward_tiles"].tolist() == pytest.approx([np.log(10 * 2 * 64 * 64 * (144 + 32) / own)])
