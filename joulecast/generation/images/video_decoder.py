"""Decoders of videos by causal convolutions over space and time: those of Wan 2.1, HunyuanVideo and CogVideoX."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product

from ...operations.network import Network
from .autoencoders import ResidualDecoder
from .layers import Layers, Shape


@dataclass(frozen=True)
class VideoDecoder(ResidualDecoder):
    """A decoder of latent frames; each is a convolution over space and time that reads no later frame."""

    latent_channels: int = 16
    channels: tuple[int, ...] = (128, 256, 512, 512)
    doubling: int = 2  # Number of enlargements that also double the frames

    def conv(self, found: Layers, path: str, shape: Shape, outputs: int) -> None:
        """See `ResidualDecoder`. Two earlier frames are added in front."""
        images, channels, frames, high, wide = shape
        padded = (images, channels, frames + 2, high + 2, wide + 2)
        found.add(path, "copy", (images, channels, frames + 2, high, wide))
        found.add(path, "copy", padded)
        found.add(path, "conv3d", padded, out_channels=outputs, kernel_size=3)


@dataclass(frozen=True)
class CausalDecoder(VideoDecoder):
    """Wan 2.1 (arXiv 2503.20314): one frame from the first latent frame, and then four from each of the others."""

    channels: tuple[int, ...] = (96, 192, 384, 384)

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        frames, height, width = size
        found = Layers(precision)
        latents = (images, self.latent_channels, 1, height // self.scale, width // self.scale)
        later = (frames - 1) // 2**self.doubling
        for count, decoder in ((1, replace(self, doubling=0)), (later, self)):
            if count:
                part = found.within("", times=count)
                part.add("post_quant", "conv3d", latents, out_channels=self.latent_channels, kernel_size=1)
                decoder.decode(part, latents)
        return found.network("vae", {"latents": (*latents[:2], 1 + later, *latents[3:])})

    def normed(self, found: Layers, path: str, shape: Shape) -> None:
        """See `ResidualDecoder`."""
        _to_length_one(found, path, shape)
        found.add(path, "silu", shape)

    def upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Doubling frames, and the sides of each by interpolation in fp32; a convolution halves the channels."""
        images, channels, frames, high, wide = shape
        if level < self.doubling:
            padded = (images, channels, frames + 2, high, wide)
            found.add("", "copy", padded)
            found.add("time", "conv3d", padded, out_channels=2 * channels, kernel_size=(3, 1, 1))
            frames *= 2
            found.add("", "copy", (images, channels, frames, high, wide))
        small, large = ((images * frames, channels, each_side * high, each_side * wide) for each_side in (1, 2))
        found.wide.add("", "copy", small)
        found.wide.add("", "interpolate", small, output_size=large[2:])
        found.add("", "copy", large)
        found.add("conv", "conv2d", large, out_channels=channels // 2, kernel_size=3, padding=1)
        return (images, channels // 2, frames, 2 * high, 2 * wide)

    def attention(self, found: Layers, shape: Shape) -> None:
        """See `ResidualDecoder`: over all latents of a frame."""
        images, channels, frames, high, wide = shape
        image, heads = (images * frames, channels, high, wide), (images * frames, 1, high * wide, channels)
        _to_length_one(found, "norm", image)
        found.add("qkv", "conv2d", image, out_channels=3 * channels, kernel_size=1)
        found.add("", "copy", (images * frames, 1, high * wide, 3 * channels))
        found.add("", "attention", heads, heads, heads)
        found.add("out", "conv2d", image, out_channels=channels, kernel_size=1)
        found.add("", "add", shape, shape)


@dataclass(frozen=True)
class GroupedDecoder(VideoDecoder):
    """The decoder of HunyuanVideo's autoencoder (arXiv 2412.03603), in tiles that overlap.

    Frames are doubled from the second lowest resolution on.
    """

    # Largest frames, height and width of a tile in latents (`enable_tiling`, which larger videos need).
    tile: tuple[int, int, int] = (5, 32, 32)
    stride: tuple[int, int, int] = (3, 24, 24)  # Latents from one tile to the next

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        frames, height, width = size
        found = Layers(precision)
        latents = (1 + (frames - 1) // 2**self.doubling, height // self.scale, width // self.scale)
        along = [
            Counter(min(most, length - start) for start in range(0, length, step))
            for length, most, step in zip(latents, self.tile, self.stride, strict=True)
        ]
        for tile in product(*along):
            each = math.prod(counts[length] for counts, length in zip(along, tile, strict=True))
            part, shape = found.within("", times=each), (images, self.latent_channels, *tile)
            part.add("post_quant", "conv3d", shape, out_channels=self.latent_channels, kernel_size=1)
            self.decode(part, shape)
        return found.network("vae", {"latents": (images, self.latent_channels, *latents)})

    def attention(self, found: Layers, shape: Shape) -> None:
        """See `ResidualDecoder`: over all latents of a tile."""
        tokens = (shape[0], math.prod(shape[2:]), shape[1])
        heads = (shape[0], 1, *tokens[1:])
        for name in ("q", "k", "v", "out"):
            found.linear(f"{name}", tokens, shape[1])
        found.attention("", heads, heads)

    def upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Doubling sides and frames, but for the first one, by interpolation; a convolution follows."""
        images, channels, frames, high, wide = shape
        small = (images * frames, channels, high, wide)
        found.add("", "interpolate", small, output_size=(2 * high, 2 * wide))
        doubled = level >= len(self.channels) - 1 - self.doubling
        larger = (images, channels, 2 * frames - 1 if doubled else frames, 2 * high, 2 * wide)
        self.conv(found, "", larger, channels)
        return larger


@dataclass(frozen=True)
class ConditionedDecoder(VideoDecoder):
    """CogVideoX (arXiv 2408.06072): norms are scaled and shifted by the latents.

    It processes two latent frames at a time; an odd frame comes together with the first two.
    """

    channels: tuple[int, ...] = (128, 256, 256, 512)
    resnets: int = 4

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        frames, height, width = size
        found = Layers(precision)
        count = 1 + (frames - 1) // 2**self.doubling
        first = min(count, 2 + count % 2)
        sides = (height // self.scale, width // self.scale)
        for latent_frames, each in ((first, 1), (2, (count - first) // 2)):
            if each:
                self.decode(found.within("", times=each), (images, self.latent_channels, latent_frames, *sides))
        return found.network("vae", {"latents": (images, self.latent_channels, count, *sides)})

    def normed(self, found: Layers, path: str, shape: Shape) -> None:
        """A norm, its scale and shift, which are computed from the enlarged latents, and an activation."""
        latents = (shape[0], self.latent_channels, *shape[2:])
        found.add(path, "copy", latents)
        for name in ("scale", "shift"):
            found.add(f"{path}.{name}", "conv3d", latents, out_channels=shape[1], kernel_size=1)
        found.add(path, "group_norm", shape, num_groups=self.groups)
        for kind in ("mul", "add"):
            found.add(path, kind, shape, shape)
        found.add(path, "silu", shape)

    def upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Doubling the sides of each frame, followed by a convolution over each frame."""
        images, channels, frames, high, wide = shape
        if level < self.doubling:
            frames = 2 * frames - frames % 2  # the odd frame is the first, which stays one
        small, large = ((images * frames, channels, by * high, by * wide) for by in (1, 2))
        found.add("", "interpolate", small, output_size=large[2:])
        found.add("", "copy", large)
        found.add("conv", "conv2d", large, out_channels=channels, kernel_size=3, padding=1)
        return (images, channels, frames, *large[2:])


def _to_length_one(found: Layers, path: str, shape: Shape) -> None:
    """Record normalizing the channels of a pixel to length one, one operation after the other."""
    row = (shape[0], 1, *shape[2:])
    found.add(path, "norm", shape, dim=1, keepdim=True)
    found.add(path, "div", shape, row)
    found.add(path, "mul", shape)
    found.add(path, "mul", shape, (shape[1], *(1 for _ in shape[2:])))
    found.add(path, "add", shape)
