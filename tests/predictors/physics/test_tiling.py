"""Tiles and waves against arithmetic by hand."""

import numpy as np

from joulecast.hardware import find_gpu
from joulecast.predictors.physics.tiling import Tile, loaded_tile, tile_count

A100 = find_gpu("A100 PCIe 40GB")  # 108 SMs


def test_tiles_cover_rows_and_columns_of_each_product():
    assert tile_count(100, 200, Tile(64, 64)) == 2 * 4
    assert tile_count(100, 200, Tile(32, 128), batch=3) == 3 * 4 * 2
    assert tile_count(np.array([1.0, 65.0]), np.array([1.0, 1.0]), Tile(64, 64)).tolist() == [1.0, 2.0]


def test_what_tensor_cores_load():
    """A warp holds 64 x 64 sums; fewer rows than that read the weights once. Groups of warps on Hopper load for 171."""
    rows = np.array([16.0, 64.0, 4096.0])
    assert loaded_tile(rows, A100).tolist() == [128, 64, 64]
    assert loaded_tile(rows, find_gpu("H100 SXM")).tolist() == [171, 171, 171]
    assert loaded_tile(rows, find_gpu("RTX 5090")).tolist() == [128, 64, 64]
