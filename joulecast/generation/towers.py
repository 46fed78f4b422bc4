"""Towers that read the images of prompts (towers.toml): the tokens that an image adds, and the work of reading it.

A tower is a transformer over patches, in 16 bits, before the prompt is read. Engines run it on all GPUs that share the
layers of the model, divided as these, one kernel after the other; their host is taken to launch these in time.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..extraction.models.spelling import spelled_as
from ..operations.network import Network
from .decoder import Activation, Decoder, Encoding, Norm, Part, Projection
from .engines import Engine
from .parallel import Parallel, share
from .steps import Precisions, StepTokens, network_of_parts

_WIDEST = 200  # Times that an image may be as wide as high: what Qwen's processors accept.
_MOST_SIDE = 100_000


@dataclass(frozen=True)
class Tower:
    """The part of a model that reads images."""

    layers: int
    hidden: int  # Features of a patch between layers
    inner: int  # Features inside the feed-forward block of a layer
    patch: int  # Pixels along a side of a patch
    heads: int = 16  # Heads of attention, in which each patch sees all of its image, or of its window
    frames: int = 2  # Frames of a patch; an image is computed as this many equal ones
    merge: int = 2  # Patches along a side of the square that becomes a token
    pooled: bool = False  # Whether a token is the mean of its patches, with one layer after it, not all of them in two
    mergers: int = 1  # Blocks that make tokens of patches: one, and those that feed first layers (DeepStack)
    norm: str = "layer_norm"  # Kind of its norms
    gated: bool = False  # Whether a feed-forward block multiplies half of its inputs with the activated other half
    rotary: bool = True  # Whether queries and keys have rotary position embeddings
    window: int = 0  # Patches of a window of attention; 0 without windows
    whole: int = 0  # Layers without windows
    side: int = 0  # Pixels of a side to which each image, or each of its tiles, is resized; 0 if it keeps its shape
    tiles: int = 0  # Most tiles into which an image is cut, read one by one beside the whole image; 0 if it is not cut
    adapted: int = 0  # Features of the two layers before the one that makes tokens of patches; 0 without these
    least_pixels: int = 0  # To which smaller images are resized
    most_pixels: int = 0  # To which larger images are resized
    around: int = 2  # Tokens that mark begin and end of an image
    out: int = 0  # Features of the model's tokens

    def squares(self, height: int, width: int) -> int:
        """Tokens that the tower makes of an image, whose sides are rounded to whole tokens."""
        step = self.patch * self.merge
        if self.side:
            return self.pictures(height, width) * (self.side // step) ** 2
        rows, columns = (max(1, round(side / step)) for side in (height, width))
        pixels = rows * columns * step**2
        if not self.least_pixels <= pixels <= self.most_pixels:
            is_large = pixels > self.most_pixels
            allowed = self.most_pixels if is_large else self.least_pixels
            inwards = math.floor if is_large else math.ceil
            scale = math.sqrt(allowed / (height * width)) / step
            rows, columns = (max(1, inwards(side * scale)) for side in (height, width))
        return rows * columns

    def pictures(self, height: int, width: int) -> int:
        """Squares that are read of an image: its tiles, of the grid that shrinks it least, and if several, the whole.

        Grids in which it would grow are taken only if none is smaller, and of alike ones that with the fewest tiles
        (`get_best_fit` of Llama 4's image processor).
        """
        scales = {
            (rows, columns): min(rows * self.side / height, columns * self.side / width)
            for rows in range(1, self.tiles + 1)
            for columns in range(1, self.tiles // rows + 1)
        }
        best = min((scale for scale in scales.values() if scale >= 1), default=max(scales.values(), default=1.0))
        count = min((rows * columns for (rows, columns), scale in scales.items() if scale == best), default=1)
        return count + 1 if count > 1 else 1

    def tokens(self, height: int, width: int) -> int:
        """Tokens that an image adds to a prompt; one stands behind each tile."""
        return self.squares(height, width) + self.around + self.pictures(height, width) - 1

    @property
    def blocks(self) -> Decoder:
        """Its layers, which compute patches."""
        size, at = self.hidden, "visual.blocks"
        layers = [f"{at}.{layer}" for layer in range(self.layers)]

        def each(name: str, part: Part, some: Sequence[str] = layers) -> tuple[Part, tuple[str, ...]]:
            return part, tuple(f"{layer}.{name}" for layer in some)

        attention = Encoding(self.heads, size // self.heads, None, self.rotary)
        whole, windowed = (layers[: self.whole], layers[self.whole :]) if self.window else (layers, [])
        attentions = [(attention, whole), (replace(attention, window=self.window), windowed)]
        return Decoder(
            "tower",
            (
                (Projection(3 * self.frames * self.patch**2, size, True, "none"), ("visual.patch_embed.proj",)),
                each("norm1", Norm(self.norm, size)),
                each("qkv", Projection(size, 3 * size, True)),
                *(each("attention", part, some) for part, some in attentions if some),
                each("proj", Projection(size, size, True, "rows")),
                each("norm2", Norm(self.norm, size)),
                each("up", Projection(size, self.inner * (1 + self.gated), True)),
                each("activation", Activation(self.inner, self.gated)),
                each("down", Projection(self.inner, size, True, "rows")),
            ),
        )

    @property
    def merging(self) -> Decoder:
        """What makes tokens of patches."""
        at = [f"visual.mergers.{place}" for place in range(self.mergers)]
        joined = self.hidden * (1 if self.pooled else self.merge**2)
        parts: list[tuple[str, Part]] = [("norm", Norm(self.norm, joined))]
        if self.adapted:
            inner = self.adapted
            for name, part in (("up", Projection(joined, inner)), ("down", Projection(inner, inner, False, "rows"))):
                parts += [(name, part), (f"{name}.activation", Activation(inner, gated=False))]
            joined = inner
        elif not self.pooled:
            parts += [("up", Projection(joined, joined, True)), ("activation", Activation(joined, gated=False))]
        parts.append(("out", Projection(joined, self.out, not self.pooled, "none" if self.pooled else "rows")))
        return Decoder("tower", tuple((part, tuple(f"{each}.{name}" for each in at)) for name, part in parts))


@dataclass(frozen=True)
class Images:
    """The images of each prompt, and the tower that reads them."""

    tower: Tower
    sizes: tuple[tuple[int, int], ...]  # Height and width of each in pixels

    @property
    def tokens(self) -> int:
        """Tokens that they add to a prompt."""
        return sum(self.tower.tokens(*size) for size in self.sizes)

    @property
    def parameters(self) -> int:
        """Elements of the tower's weights."""
        return self.tower.blocks.parameters + self.tower.merging.parameters

    def network(self, engine: Engine, parallel: Parallel) -> Network:
        """The operations that read them on one GPU, one image after the other."""
        alone = replace(parallel, expert=1, replicas=1)
        blocks, merging = share(self.tower.blocks, alone), share(self.tower.merging, alone)
        listed: list[tuple[Decoder, StepTokens]] = []
        for size in self.sizes:
            squares = self.tower.squares(*size)
            patches = squares * self.tower.merge**2
            listed += [
                (decoder, StepTokens(prompts=1, prompt_tokens=rows))
                for decoder, rows in ((blocks, patches), (merging, squares))
            ]
        return network_of_parts("the images of a prompt", listed, engine, Precisions("bf16"), alone)


def _towers() -> Mapping[str, Tower]:
    """Repository of a model -> its tower."""
    tables: Mapping[str, dict[str, Any]] = tomllib.loads(
        Path(__file__).with_name("towers.toml").read_text(encoding="utf-8")
    )
    found: dict[str, Tower] = {}
    for table in tables.values():
        row = {**tables.get(table.get("like", ""), {}), **table}
        models = row.pop("models")
        row.pop("like", None)
        found |= dict.fromkeys(models, Tower(**row))
    return found


TOWERS = _towers()
"""Repository of a model that sees -> its tower."""


IMAGES_NOTE = (
    "assumed: images are read one after the other before the step that reads their prompt, and the host launches that "
    "in time; to load and resize them is not in it"
)


def find_images(model: Any, decoder: Decoder, sizes: Sequence[Sequence[int]] | None) -> Images | None:
    """The images of prompts for a model; None without any.

    `model`: Name of the model; only names lead to a tower. `decoder`: What reads the tokens of the tower. `sizes`:
    Height and width of each image in pixels. Raises InputError: the model has no tower that is known, or no image has
    this size.
    """
    if not sizes:
        return None
    tower = TOWERS.get(spelled_as(model, {name: name for name in TOWERS})) if isinstance(model, str) else None
    if tower is None:
        raise InputError(
            "no part of this model is known that reads images",
            given=str(model)[:100],
            allowed=", ".join(name.rpartition("/")[2] for name in TOWERS),
            hint="leave images out, and count what they add as tokens of the prompt",
        )
    for size in sizes if isinstance(sizes, Iterable) else (sizes,):
        sides = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else ()
        whole = len(sides) == 2 and all(isinstance(each, int) and 0 < each <= _MOST_SIDE for each in sides)
        if not whole or max(sides) > _WIDEST * min(sides):
            raise InputError(
                "no image has this size",
                given=repr(size)[:100],
                allowed=f"height and width of 1 to {_MOST_SIDE} pixels, one at most {_WIDEST} times the other",
                hint="give a pair for each image of a prompt, such as (768, 1024)",
            )
    return Images(replace(tower, out=decoder.hidden), tuple((size[0], size[1]) for size in sizes))
