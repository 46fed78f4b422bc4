"""Decoders of videos by causal convolutions over space and time: those of Wan 2.1 (arXiv 2503.20314), HunyuanVideo."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product

from ...operations.network import Network
from .autoencoders import Decoder
from .layers import Layers, Shape


@dataclass(frozen=True)
class CausalDecoder(Decoder):
    """A decoder that computes one frame from the first latent frame, and then four from each of the others.

    Args:
        channels: Channels at each resolution, from the pixels to the latents; each further one has half the sides.
    """

    latent_channels: int = 16
    channels: tuple[int, ...] = (96, 192, 384, 384)
    doubling: int = 2  # Number of the lowest resolutions whose enlargement also doubles the frames
    resnets: int = 3  # Number of residual blocks at each resolution

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        frames, height, width = size
        found = Layers(precision)
        latents = (images, self.latent_channels, 1, height // self.scale, width // self.scale)
        later = (frames - 1) // 2**self.doubling
        self._latent_frame(found, latents, 1, first=True)
        if later:
            self._latent_frame(found, latents, later, first=False)
        return found.network("vae", {"latents": (*latents[:2], 1 + later, *latents[3:])})

    def _latent_frame(self, found: Layers, latents: Shape, each: int, *, first: bool) -> None:
        """Record the decoder for a number of latent frames; the first one is not doubled in time."""
        images, inputs, frames, high, wide = latents
        found.add("post_quant", "conv3d", latents, each=each, out_channels=inputs, kernel_size=1)
        widest = self.channels[-1]
        causal_conv(found, "conv_in", latents, widest, each)
        middle = (images, widest, frames, high, wide)
        _resnet(found, "mid.0", middle, widest, each)
        _attention(found, middle, each)
        _resnet(found, "mid.1", middle, widest, each)
        inputs = widest
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                _resnet(found, f"up.{level}.{block}", (images, inputs, frames, high, wide), outputs, each)
                inputs = outputs
            if level == len(self.channels) - 1:
                break
            path = f"up.{level}.upsample"
            if level < self.doubling and not first:
                padded = (images, inputs, frames + 2, high, wide)
                found.add(path, "copy", padded, each=each)
                found.add(f"{path}.time", "conv3d", padded, each=each, out_channels=2 * inputs, kernel_size=(3, 1, 1))
                frames *= 2
                found.add(path, "copy", (images, inputs, frames, high, wide), each=each)
            high, wide = 2 * high, 2 * wide
            _upsample(found, path, (images * frames, inputs, high, wide), each)
            inputs //= 2
        shape = (images, inputs, frames, high, wide)
        _norm(found, "norm_out", shape, each)
        found.add("norm_out", "silu", shape, each=each)
        causal_conv(found, "conv_out", shape, 3, each)


@dataclass(frozen=True)
class GroupedDecoder(Decoder):
    """The decoder of HunyuanVideo's autoencoder (arXiv 2412.03603), with group norms, in tiles that overlap.

    Args:
        channels: Channels at each resolution, from the pixels to the latents; each further one has half the sides.
        tile: Largest frames, height and width of a tile in latents (`enable_tiling`, which larger videos need).
    """

    latent_channels: int = 16
    channels: tuple[int, ...] = (128, 256, 512, 512)
    doubling: int = 2  # Number of resolutions, from the second lowest on, whose enlargement also doubles the frames
    resnets: int = 3  # Number of residual blocks at each resolution
    groups: int = 32  # Number of groups of the group norms
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
            self._tile(found, (images, self.latent_channels, *tile), each)
        return found.network("vae", {"latents": (images, self.latent_channels, *latents)})

    def _tile(self, found: Layers, latents: Shape, each: int) -> None:
        """Record the decoder for a number of tiles of the same size."""
        (images, _, count, high, wide), inputs = latents, self.channels[-1]
        found.add("post_quant", "conv3d", latents, each=each, out_channels=self.latent_channels, kernel_size=1)
        causal_conv(found, "conv_in", latents, inputs, each)
        middle, tokens = (images, inputs, count, high, wide), (images, count * high * wide, inputs)
        _resnet(found, "mid.0", middle, inputs, each, self.groups)
        for name in ("q", "k", "v", "out"):
            found.linear(f"mid.attention.{name}", tokens, inputs, blocks=each)
        heads = (images, 1, *tokens[1:])
        found.attention("mid.attention", heads, heads, blocks=each)
        _resnet(found, "mid.1", middle, inputs, each, self.groups)
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                shape = (images, inputs, count, high, wide)
                _resnet(found, f"up.{level}.{block}", shape, outputs, each, self.groups)
                inputs = outputs
            if level < len(self.channels) - 1:
                path, small = f"up.{level}.upsample", (images * count, inputs, high, wide)
                count = 2 * count - 1 if level >= len(self.channels) - 1 - self.doubling else count
                high, wide = 2 * high, 2 * wide
                found.add(path, "interpolate", small, each=each, output_size=(high, wide))
                causal_conv(found, path, (images, inputs, count, high, wide), inputs, each)
        shape = (images, inputs, count, high, wide)
        found.add("norm_out", "group_norm", shape, each=each, num_groups=self.groups)
        found.add("norm_out", "silu", shape, each=each)
        causal_conv(found, "conv_out", shape, 3, each)


def causal_conv(found: Layers, path: str, shape: Shape, outputs: int, each: int) -> None:
    """Record a causal convolution over space and time, which reads no later frame.

    `shape`: Shape of its input: videos, channels, frames, height, width. Two earlier frames are added in front.
    """
    images, channels, frames, high, wide = shape
    earlier = (images, channels, frames + 2, high, wide)
    padded = (images, channels, frames + 2, high + 2, wide + 2)
    found.add(path, "copy", earlier, each=each)
    found.add(path, "copy", padded, each=each)
    found.add(path, "conv3d", padded, each=each, out_channels=outputs, kernel_size=3)


def _resnet(found: Layers, path: str, shape: Shape, outputs: int, each: int, groups: int | None = None) -> None:
    after = (shape[0], outputs, *shape[2:])
    for name, inputs in (("1", shape), ("2", after)):
        if groups:
            found.add(f"{path}.norm{name}", "group_norm", inputs, each=each, num_groups=groups)
        else:
            _norm(found, f"{path}.norm{name}", inputs, each)
        found.add(f"{path}.norm{name}", "silu", inputs, each=each)
        causal_conv(found, f"{path}.conv{name}", inputs, outputs, each)
    if shape[1] != outputs:
        found.add(f"{path}.shortcut", "conv3d", shape, each=each, out_channels=outputs, kernel_size=1)
    found.add(path, "add", after, after, each=each)


def _norm(found: Layers, path: str, shape: Shape, each: int) -> None:
    """Normalizing the channels of a pixel to length one, one operation after the other."""
    row = (shape[0], 1, *shape[2:])
    found.add(path, "norm", shape, each=each, dim=1, keepdim=True)
    found.add(path, "div", shape, row, each=each)
    found.add(path, "mul", shape, each=each)
    found.add(path, "mul", shape, (shape[1], *(1 for _ in shape[2:])), each=each)
    found.add(path, "add", shape, each=each)


def _attention(found: Layers, shape: Shape, each: int) -> None:
    """Attention with one head over all latents of a frame, in the middle of the decoder."""
    images, channels, frames, high, wide = shape
    image, heads = (images * frames, channels, high, wide), (images * frames, 1, high * wide, channels)
    _norm(found, "mid.attention.norm", image, each)
    found.add("mid.attention.qkv", "conv2d", image, each=each, out_channels=3 * channels, kernel_size=1)
    found.add("mid.attention", "copy", (images * frames, 1, high * wide, 3 * channels), each=each)
    found.add("mid.attention", "attention", heads, heads, heads, each=each)
    found.add("mid.attention.out", "conv2d", image, each=each, out_channels=channels, kernel_size=1)
    found.add("mid.attention", "add", shape, shape, each=each)


def _upsample(found: Layers, path: str, shape: Shape, each: int) -> None:
    """Doubling the sides of each frame by interpolation in fp32, and halving the channels by a convolution."""
    images, channels, high, wide = shape
    small, precise = (images, channels, high // 2, wide // 2), Layers("fp32", found.calls)
    precise.add(path, "copy", small, each=each)
    precise.add(path, "interpolate", small, each=each, output_size=(high, wide))
    found.add(path, "copy", shape, each=each)
    found.add(f"{path}.conv", "conv2d", shape, each=each, out_channels=channels // 2, kernel_size=3, padding=1)
