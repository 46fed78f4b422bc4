"""Decoders, which compute pixels from latents; those of videos decode some latent frames, or tiles, at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import product

Piece = tuple[str, tuple[int, int], int]
"""What is decoded at once (a template of the decoder's), its rows and columns in latents, and how often it is."""


def pieces(decoder: str, latents: tuple[int, ...]) -> Iterator[Piece]:
    """The pieces in which latents are decoded: of these rows and columns, and before them the frames of a video."""
    *frames, rows, columns = latents
    if not frames:
        yield "", (rows, columns), 1
        return
    yield from _OF_VIDEOS[decoder](frames[0], rows, columns)


def _frame_by_frame(frames: int, rows: int, columns: int) -> Iterator[Piece]:
    """Wan 2.1: convolutions over time read two earlier frames, of which the first two latent frames have fewer."""
    for piece, times in (("first", 1), ("second", min(1, frames - 1)), ("later", max(0, frames - 2))):
        yield piece, (rows, columns), times


def _in_pairs(frames: int, rows: int, columns: int) -> Iterator[Piece]:
    """CogVideoX: two latent frames at a time; an odd frame comes together with the first two."""
    first = min(frames, 2 + frames % 2)
    yield str(first), (rows, columns), 1
    yield "later", (rows, columns), (frames - first) // 2


def _in_tiles(frames: int, rows: int, columns: int) -> Iterator[Piece]:
    """HunyuanVideo: tiles that overlap (`enable_tiling`, which larger videos need)."""
    along = [_tiles(frames, 5, 3, frames > 4), *(_tiles(n, 32, 24, max(rows, columns) > 32) for n in (rows, columns))]
    for tile in product(*along):
        times = math.prod(counts[length] for counts, length in zip(along, tile, strict=True))
        yield str(tile[0]), (tile[1], tile[2]), times


def _tiles(length: int, most: int, stride: int, is_cut: bool) -> Counter[int]:
    """Length of tiles along a dimension -> their number."""
    return Counter(min(most, length - start) for start in range(0, length, stride)) if is_cut else Counter([length])


_OF_VIDEOS: Mapping[str, Callable[[int, int, int], Iterator[Piece]]] = {
    "wan_decoder": _frame_by_frame,
    "cogvideox_decoder": _in_pairs,
    "hunyuan_video_decoder": _in_tiles,
}
