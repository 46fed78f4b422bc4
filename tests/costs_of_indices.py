"""Costs by hand of look-ups, sorting, sampling of images, and transforms."""

from hand_costs import IMAGE, Case, Cost, X

INDICES: dict[str, list[Case]] = {
    # 6 indices, rows of 5: the rows are read. Backward: indices, dy and the rows' gradients in; a table of 10 x 5 out.
    "embedding": [
        Case(
            [(2, 3)],
            {"num_embeddings": 10, "embedding_dim": 5},
            Cost(0, 48 + 120, 120),
            Cost(0, 96 + 3 * 120, 2 * 120 + 200),
        )
    ],
    # 12 indices in 4 bags, rows of 5: 240 bytes looked up, 80 out. Backward: indices and offsets, dy, and what is there
    # in; the table's gradient of 200 bytes and the rows of it that are added to out.
    "embedding_bag": [
        Case(
            [(12,), (4,)],
            {"num_embeddings": 10, "embedding_dim": 5},
            Cost(60, 128 + 240, 80),
            Cost(120, 2 * (128 + 240) + 80, 80 + 200 + 240),
        )
    ],
    # Backward: index, dy and what is there in; zeros like x, and sums in their places out.
    "gather": [Case([X, (2, 2, 4)], {"dim": 1}, Cost(0, 128 + 64, 64), Cost(0, 2 * (128 + 64) + 64, 64 + 96 + 64))],
    # Rows 2 x 4 of x for each of 2 x 5 indices in the place of its 3: 2 x 2 x 5 x 4 = 80 elements.
    "index_select": [
        Case([X, (2, 5)], {"dim": 1}, Cost(0, 80 + 320, 320), Cost(0, 2 * (80 + 320) + 320, 320 + 96 + 320))
    ],
    # 6 rows of 4 added to 6 rows of x: source and rows in, rows out. Backward, the source's gradient is looked up.
    "scatter": [
        Case(
            [(10, 4), (6, 4), (6,)],
            {"accumulate": True},
            Cost(24, 48 + 96 + 96, 96),
            Cost(24, 2 * (48 + 96 + 96), 96 + 96),
        ),
        # Rows are put there. Backward, those of a copy of dy (10 x 4) become zero, too.
        Case([(10, 4), (6, 4), (6,)], {}, Cost(0, 48 + 96, 96), Cost(0, 2 * (48 + 96) + 160, 96 + 96 + 160)),
    ],
    # 6 class numbers: 6 x 7 zeros of 8 bytes, then 6 ones.
    "one_hot": [Case([(2, 3)], {"num_classes": 7}, Cost(0, 48, 336 + 48), Cost(0, 48, 336 + 48))],
    # Rows of 4: 2 comparisons deep. Values and places out. Backward: places and dy in; zeros and values out.
    "sort": [
        Case([X], {}, Cost(48, 96, 96 + 192), Cost(48, 96 + 288, 288 + 2 * 96)),
        # 2 rows of 8,192: 13 deep, by radix in four passes of 8 bits, three of them to be read again: 12 bytes each.
        Case(
            [(2, 8192)],
            {},
            Cost(16384 * 13, 65536 + 3 * 196608, 4 * 196608),
            Cost(16384 * 13, 65536 + 3 * 196608 + 196608, 4 * 196608 + 2 * 65536),
        ),
    ],
    # The 2 largest of 4 in 6 rows: four passes to find the second, one to gather; values and places of 12 out.
    "topk": [Case([X], {"k": 2}, Cost(24, 5 * 96, 144), Cost(24, 5 * 96 + 144, 2 * 144 + 96))],
    # 2 x 6 x 10 x 14 = 1680 values from 420. Backward: dy in; zeros, then sums out.
    "interpolate": [
        Case(
            [IMAGE],
            {"output_size": (10, 14), "mode": "linear"},
            Cost(1680 * 2 * 3, 1680, 6720),
            Cost(2 * 1680 * 2 * 3, 1680 + 6720, 6720 + 2 * 1680),
        ),
        Case([IMAGE], {"output_size": 10}, Cost(0, 1680, 4800), Cost(0, 1680 + 4800, 4800 + 3360)),
    ],
    # 4 boxes of 6 channels and 3 x 2 cells: 144 values, each from 2 x 2 samples in 2 dimensions. Backward: dy in; zeros
    # and sums for x out.
    "roi_align": [
        Case(
            [IMAGE],
            {"boxes": 4, "output_size": (3, 2)},
            Cost(144 * 4 * 2 * 3, 1680, 576),
            Cost(2 * 144 * 4 * 2 * 3, 1680 + 576, 576 + 2 * 1680),
        )
    ],
    # 2 x 3 x 4 points of 2 coordinates (192 bytes); y: 2 x 6 x 12 = 144. Backward: x, grid and dy in; zeros and sums
    # for x and grid out.
    "grid_sample": [
        Case(
            [IMAGE, (2, 3, 4, 2)],
            {},
            Cost(144 * 2 * 3, 1680 + 192, 576),
            Cost(3 * 144 * 2 * 3, 2 * (1680 + 192) + 576, 576 + 2 * (1680 + 192)),
        )
    ],
    # 3 complex transforms of 8 points: 5 x 8 x 3 = 120 FLOPs each, one pass; backward the same again.
    "fft": [
        Case([(3, 8, 2)], {"dim": 1}, Cost(360, 192, 192), Cost(720, 192 + 192, 192 + 192)),
        # Real 4 x 8: 32 points, half of 5 x 32 x 5; out 4 x 5 pairs of 8 bytes. Two dimensions: one more pass.
        Case(
            [(4, 8)],
            {"dim": (0, 1), "form": "r2c"},
            Cost(400, 128 + 160, 160 + 160),
            Cost(800, 128 + 160 + 320, 160 + 128 + 320),
        ),
    ],
}
