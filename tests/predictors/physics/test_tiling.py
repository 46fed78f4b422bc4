"""Tiles and waves against arithmetic by hand."""

from __future__ import annotations

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.operation_numbers import numbers_of
from joulecast.predictors.physics.tensor_tiles import load_slowdown, loaded_tile, tile_slowdown
from joulecast.predictors.physics.tiling import Tile, padded, tile_count
from joulecast.predictors.physics.whole_waves import wave_flops

A100 = find_gpu("A100 PCIe 40GB")  # 108 SMs


def test_sizes_are_padded_to_whole_tiles():
    assert padded(1, 64) == 64
    assert padded(64, 64) == 64
    assert padded(np.array([65.0, 200.0]), 64).tolist() == [128.0, 256.0]


def test_a_tile_does_two_flops_for_each_output_and_step():
    assert Tile(128, 64).flops_per_step == 16384


def test_tiles_cover_rows_and_columns_of_each_product():
    assert tile_count(100, 200, Tile(64, 64)) == 2 * 4
    assert tile_count(100, 200, Tile(32, 128), batch=3) == 3 * 4 * 2
    assert tile_count(np.array([1.0, 65.0]), np.array([1.0, 1.0]), Tile(64, 64)).tolist() == [1.0, 2.0]


def test_waves_are_whole_and_each_block_starts_up():
    """9 blocks of 128 x 64 on 8 SMs are two waves; a block takes 32 steps more than its reduction of 100."""
    flops = wave_flops(np.array([3 * 128.0]), np.array([3 * 64.0]), np.array([100.0]), Tile(128, 64), 8)
    assert flops == pytest.approx(2 * 8 * 2 * 128 * 64 * 132)


def test_few_blocks_are_split_along_the_reduction():
    """4 blocks on 8 SMs fill half a wave, and take half of one where the reduction can be shared out."""
    sizes = [np.array([size]) for size in (256.0, 128.0, 100.0)]
    whole, split = (wave_flops(*sizes, Tile(128, 64), 8, splits=splits)[0] for splits in (False, True))
    assert whole == 8 * 2 * 128 * 64 * 132
    assert split == 0.5 * whole
    # Two waves and a part of a third are not few.
    sizes = [np.array([size]) for size in (17 * 128.0, 64.0, 100.0)]
    assert wave_flops(*sizes, Tile(128, 64), 8, splits=True) == wave_flops(*sizes, Tile(128, 64), 8)


@pytest.mark.parametrize(
    ("rows", "columns", "slower"),
    [
        # 108 tiles of 128 x 256 are one wave that is full.
        (108 * 128, 256, 1.0),
        # One output: a tile of 64 x 64, which reaches half of the best, on one SM of 108.
        (1, 1, 108 * 64 * 64 / 0.5),
        # 109 tiles of 128 x 256 would be two waves; 218 of 128 x 128 are three, 436 of 64 x 128 five.
        (109 * 128, 256, 108 / (109 * 128 * 256) * min(2 * 128 * 256, 3 * 128 * 128 / 0.85, 5 * 64 * 128 / 0.65)),
    ],
)
def test_tensor_cores_take_the_tile_that_fills_the_waves_best(rows, columns, slower):
    n = numbers_of([Operation("linear", [(rows, 512)], {"out_features": columns}, precision="bf16")])
    assert tile_slowdown(n, A100) == pytest.approx(slower)


def test_each_product_of_a_batch_has_tiles_of_its_own():
    """216 products of one tile each are two full waves on 108 SMs."""
    n = numbers_of([Operation("matmul", [(216, 128, 512), (216, 512, 256)], precision="bf16")])
    assert tile_slowdown(n, A100) == pytest.approx(1.0)


@pytest.mark.parametrize("queries", [1, 4, 32])
def test_a_step_of_decoding_pads_its_rows_to_64(queries):
    keys = (2, 8, 1000, 64)
    step = Operation("attention", [(2, 8, queries, 64), keys, keys], precision="bf16")
    assert tile_slowdown(numbers_of([step]), A100) == pytest.approx(64 / queries)


@pytest.mark.parametrize(("tokens", "slower"), [(196, 1.0), (197, 4.0)])
def test_rows_of_an_odd_length_are_loaded_element_by_element(tokens, slower):
    scores = Operation("matmul", [(16, tokens, 64), (16, 64, tokens)], precision="bf16")
    values = Operation("matmul", [(16, tokens, tokens), (16, tokens, 64)], precision="bf16")
    projection = Operation("linear", [(16, tokens, 64)], {"out_features": 64}, precision="bf16")
    assert load_slowdown(numbers_of([scores, values, projection])).tolist() == [slower, slower, 1.0]


def test_what_tensor_cores_load():
    """A warp holds 64 x 64 sums; fewer rows than that read the weights once. Groups of warps on Hopper load for 171."""
    rows = np.array([16.0, 64.0, 4096.0])
    assert loaded_tile(rows, A100).tolist() == [128, 64, 64]
    assert loaded_tile(rows, find_gpu("H100 SXM")).tolist() == [171, 171, 171]
    assert loaded_tile(rows, find_gpu("RTX 5090")).tolist() == [128, 64, 64]
