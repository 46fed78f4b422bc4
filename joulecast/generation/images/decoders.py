"""Decoders of pipelines, which compute pixels from latents; those of videos by causal convolutions over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from ...operations.network import Network
from .layers import Layers, Shape


@dataclass(frozen=True)
class Autoencoder:
    """The decoder of Stable Diffusion's autoencoder (Rombach et al., arXiv 2112.10752), and what all decoders share.

    There are some residual blocks at the resolution of the latents, then at each resolution, enlarged between. Shapes
    are (images, channels, height, width), for videos (videos, channels, frames, height, width).
    """

    latent_channels: int
    # At each resolution, from the pixels to the latents; each further one has half the sides
    channels: tuple[int, ...] = (128, 256, 512, 512)
    resnets: int = 3  # Number of residual blocks at each resolution
    groups: int = 32  # Number of groups of the group norms
    doubling: int = 0  # Number of enlargements that also double the frames of a video
    mixed: bool = False  # Whether a first layer mixes the channels of each latent

    @property
    def scale(self) -> int:
        """Pixels per latent along each side."""
        scale: int = 2 ** (len(self.channels) - 1)
        return scale

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """The operations that decode images.

        `size`: Height and width of an image in pixels; for a video (frames, height, width).
        """
        found, (*frames, height, width) = Layers(precision), size
        latents = (*(1 + (each - 1) // 2**self.doubling for each in frames), height // self.scale, width // self.scale)
        for piece, times, decoder in self._pieces(latents):
            if times:
                decoder.decode(found.within("", times=times), (images, self.latent_channels, *piece))
        return found.network("vae", {"latents": (images, self.latent_channels, *latents)})

    def _pieces(self, latents: Shape) -> Iterator[tuple[Shape, int, Self]]:
        """The sizes of latents that are decoded at once, how often each, and by what."""
        yield latents, 1, self

    def decode(self, found: Layers, latents: Shape) -> None:
        """Record the decoder for latents of this shape."""
        if self.mixed:
            found.conv("post_quant", latents, self.latent_channels, 1)
        shape = (latents[0], self.channels[-1], *latents[2:])
        self._conv(found, "conv_in", latents, shape[1])
        self._resnet(found.within("mid.0"), shape, shape[1])
        self._attention(found.within("mid.attention"), shape)
        self._resnet(found.within("mid.1"), shape, shape[1])
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                self._resnet(found.within(f"up.{level}.{block}"), shape, outputs)
                shape = (shape[0], outputs, *shape[2:])
            if level < len(self.channels) - 1:
                shape = self._upsample(found.within(f"up.{level}.upsample"), shape, level)
        self._normed(found, "norm_out", shape)
        self._conv(found, "conv_out", shape, 3)

    def _resnet(self, found: Layers, shape: Shape, outputs: int) -> None:
        after = (shape[0], outputs, *shape[2:])
        for name, inputs in (("1", shape), ("2", after)):
            self._normed(found, f"norm{name}", inputs)
            self._conv(found, f"conv{name}", inputs, outputs)
        if shape[1] != outputs:
            found.conv("shortcut", shape, outputs, 1)
        found.add("", "add", after, after)

    def _conv(self, found: Layers, path: str, shape: Shape, outputs: int) -> None:
        found.conv(path, shape, outputs)

    def _normed(self, found: Layers, path: str, shape: Shape) -> None:
        found.normed(path, shape, self.groups)

    def _upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Record an enlargement of what has this shape, and return the shape of its result."""
        larger = (*shape[:2], 2 * shape[2], 2 * shape[3])
        found.add("", "interpolate", shape, output_size=larger[2:])
        return found.conv("conv", larger, shape[1])

    def _attention(self, found: Layers, shape: Shape) -> None:
        """Record attention with one head over all latents, in the middle of the decoder; some have none."""
        images, channels, pixels = shape[0], shape[1], shape[2] * shape[3]
        tokens, heads = (images, pixels, channels), (images, 1, pixels, channels)
        found.add("norm", "group_norm", (images, channels, pixels), num_groups=self.groups)
        found.projections("", tokens, channels)
        found.linear("out", tokens, channels)
        found.attention("", heads, heads)
        found.add("", "add", tokens, tokens)


@dataclass(frozen=True)
class DeepCompression(Autoencoder):
    """The decoder of SANA's deep compression autoencoder (dc-ae-f32c32-sana-1.0; EfficientViT, arXiv 2205.14756)."""

    channels: tuple[int, ...] = (128, 256, 512, 512, 1024, 1024)
    attending: int = 3  # Number of the lowest resolutions with blocks of linear attention instead of residual blocks
    head_size: int = 32  # Features of an attention head

    def decode(self, found: Layers, latents: Shape) -> None:
        """See `Autoencoder`."""
        shape = found.conv("conv_in", latents, self.channels[-1])
        found.add("conv_in", "copy", shape)
        found.add("conv_in", "add", shape, shape)
        for level, outputs in enumerate(reversed(self.channels)):
            if level:
                # The sides are doubled by interpolation and a convolution; a shortcut rearranges channels to pixels.
                part, larger = found.within(f"up.{level}.upsample"), (*shape[:2], 2 * shape[2], 2 * shape[3])
                part.add("", "interpolate", shape, output_size=larger[2:])
                shape = part.conv("conv", larger, outputs)
                part.add("", "copy", shape, each=2)
                part.add("", "add", shape, shape)
            images, _, high, wide = shape
            for block in range(self.resnets):
                part = found.within(f"up.{level}.{block}")
                if level < self.attending:
                    self._attention(part.within("attention"), shape)
                    part.within("mlp").convolutional_feed_forward(shape, 4 * outputs)
                    part.rms_norm("mlp.norm", (images, high, wide, outputs))
                    part.add("mlp", "add", shape, shape)
                    continue
                part.conv("conv1", shape, outputs)
                part.add("conv1", "silu", shape)
                part.conv("conv2", shape, outputs, bias=False)
                part.rms_norm("norm", (images, high, wide, outputs))
                part.add("", "add", shape, shape)
        found.rms_norm("norm_out", (images, high, wide, outputs))
        found.add("norm_out", "relu", shape)
        found.conv("conv_out", shape, 3)

    def _attention(self, found: Layers, shape: Shape) -> None:
        """Linear attention with a second set of queries, keys and values, computed from the first by a convolution."""
        images, channels, high, wide = shape
        last, triple = (images, high, wide, channels), (images, 3 * channels, high, wide)
        found.projections("", last, channels, bias=False)
        found.add("", "cat", last, last, last, dim=3)
        found.conv("aggregate.depth", triple, 3 * channels, 5, groups=3 * channels, bias=False)
        found.conv("aggregate.point", triple, 3 * channels, 1, groups=3 * channels // self.head_size, bias=False)
        found.add("", "cat", triple, triple, dim=1)
        heads = (images, 2 * channels // self.head_size, self.head_size, high * wide)
        found.wide.add("", "relu", heads, each=2)
        found.linear_attention(heads)
        found.linear("out", (*last[:-1], 2 * channels), channels, bias=False)
        found.rms_norm("norm", last)
        found.add("", "add", shape, shape)


@dataclass(frozen=True)
class VideoDecoder(Autoencoder):
    """A decoder of latent frames; each is a convolution over space and time that reads no later frame."""

    latent_channels: int = 16
    doubling: int = 2

    def _conv(self, found: Layers, path: str, shape: Shape, outputs: int) -> None:
        """Two earlier frames are added in front."""
        images, channels, frames, high, wide = shape
        padded = (images, channels, frames + 2, high + 2, wide + 2)
        found.add(path, "copy", (images, channels, frames + 2, high, wide))
        found.add(path, "copy", padded)
        found.add(path, "conv3d", padded, out_channels=outputs, kernel_size=3)


@dataclass(frozen=True)
class CausalDecoder(VideoDecoder):
    """Wan 2.1 (arXiv 2503.20314): one frame from the first latent frame, and then four from each of the others."""

    channels: tuple[int, ...] = (96, 192, 384, 384)
    mixed: bool = True

    def _pieces(self, latents: Shape) -> Iterator[tuple[Shape, int, Self]]:
        one = (1, *latents[1:])
        yield one, 1, replace(self, doubling=0)
        yield one, latents[0] - 1, self

    def _normed(self, found: Layers, path: str, shape: Shape) -> None:
        """Normalizing the channels of a pixel to length one, one operation after the other, and an activation."""
        found.unit_length(path, shape)
        found.add(path, "silu", shape)

    def _upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
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
        found.conv("conv", large, channels // 2)
        return (images, channels // 2, frames, 2 * high, 2 * wide)

    def _attention(self, found: Layers, shape: Shape) -> None:
        """Over all latents of a frame."""
        images, channels, frames, high, wide = shape
        image, heads = (images * frames, channels, high, wide), (images * frames, 1, high * wide, channels)
        found.unit_length("norm", image)
        found.conv("qkv", image, 3 * channels, 1)
        found.add("", "copy", (images * frames, 1, high * wide, 3 * channels))
        found.attention("", heads, heads)
        found.conv("out", image, channels, 1)
        found.add("", "add", shape, shape)


@dataclass(frozen=True)
class GroupedDecoder(VideoDecoder):
    """The decoder of HunyuanVideo's autoencoder (arXiv 2412.03603), in tiles that overlap.

    Frames are doubled from the second lowest resolution on.
    """

    mixed: bool = True
    # Largest frames, height and width of a tile in latents (`enable_tiling`, which larger videos need).
    tile: tuple[int, int, int] = (5, 32, 32)
    stride: tuple[int, int, int] = (3, 24, 24)  # Latents from one tile to the next

    def _pieces(self, latents: Shape) -> Iterator[tuple[Shape, int, Self]]:
        along = [
            Counter(min(most, length - start) for start in range(0, length, step))
            for length, most, step in zip(latents, self.tile, self.stride, strict=True)
        ]
        for tile in product(*along):
            yield tile, math.prod(counts[length] for counts, length in zip(along, tile, strict=True)), self

    def _attention(self, found: Layers, shape: Shape) -> None:
        """Over all latents of a tile."""
        tokens = (shape[0], math.prod(shape[2:]), shape[1])
        heads = (shape[0], 1, *tokens[1:])
        found.projections("", tokens, shape[1])
        found.linear("out", tokens, shape[1])
        found.attention("", heads, heads)

    def _upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Doubling sides and frames, but for the first one, by interpolation; a convolution follows."""
        images, channels, frames, high, wide = shape
        found.add("", "interpolate", (images * frames, channels, high, wide), output_size=(2 * high, 2 * wide))
        doubled = level >= len(self.channels) - 1 - self.doubling
        larger = (images, channels, 2 * frames - 1 if doubled else frames, 2 * high, 2 * wide)
        self._conv(found, "", larger, channels)
        return larger


@dataclass(frozen=True)
class ConditionedDecoder(VideoDecoder):
    """CogVideoX (arXiv 2408.06072): norms are scaled and shifted by the latents.

    It processes two latent frames at a time; an odd frame comes together with the first two.
    """

    channels: tuple[int, ...] = (128, 256, 256, 512)
    resnets: int = 4

    def _pieces(self, latents: Shape) -> Iterator[tuple[Shape, int, Self]]:
        count, *sides = latents
        first = min(count, 2 + count % 2)
        yield (first, *sides), 1, self
        yield (2, *sides), (count - first) // 2, self

    def _normed(self, found: Layers, path: str, shape: Shape) -> None:
        """A norm, its scale and shift, which are computed from the enlarged latents, and an activation."""
        latents = (shape[0], self.latent_channels, *shape[2:])
        found.add(path, "copy", latents)
        for name in ("scale", "shift"):
            found.conv(f"{path}.{name}", latents, shape[1], 1)
        found.add(path, "group_norm", shape, num_groups=self.groups)
        for kind in ("mul", "add"):
            found.add(path, kind, shape, shape)
        found.add(path, "silu", shape)

    def _upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Doubling the sides of each frame, followed by a convolution over each frame."""
        images, channels, frames, high, wide = shape
        if level < self.doubling:
            frames = 2 * frames - frames % 2  # the odd frame is the first, which stays one
        small, large = ((images * frames, channels, by * high, by * wide) for by in (1, 2))
        found.add("", "interpolate", small, output_size=large[2:])
        found.add("", "copy", large)
        found.conv("conv", large, channels)
        return (images, channels, frames, *large[2:])

    def _attention(self, found: Layers, shape: Shape) -> None:
        """None."""
