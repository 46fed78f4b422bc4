"""Decoders of pipelines, which compute pixels from latents: what they have in common, and that of `AutoencoderKL`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers, Shape


@dataclass(frozen=True)
class Decoder(ABC):
    """A network that computes pixels from latents."""

    latent_channels: int
    channels: tuple[int, ...]  # At each resolution, from the pixels to the latents; each further one has half the sides

    @property
    def scale(self) -> int:
        """Pixels per latent along each side."""
        scale: int = 2 ** (len(self.channels) - 1)
        return scale

    @abstractmethod
    def network(self, images: int, size: Shape, precision: str) -> Network:
        """The operations that decode images.

        `size`: Height and width of an image in pixels; for a video (frames, height, width).
        """


@dataclass(frozen=True)
class ResidualDecoder(Decoder):
    """A decoder of residual blocks: some at the resolution of the latents, then at each resolution, enlarged between.

    Shapes are (images, channels, height, width), for videos (videos, channels, frames, height, width).
    """

    resnets: int = 3  # Number of residual blocks at each resolution
    groups: int = 32  # Number of groups of the group norms

    def decode(self, found: Layers, latents: Shape) -> None:
        """Record the decoder for latents of this shape."""
        shape = (latents[0], self.channels[-1], *latents[2:])
        self.conv(found, "conv_in", latents, shape[1])
        self._resnet(found.within("mid.0"), shape, shape[1])
        self.attention(found.within("mid.attention"), shape)
        self._resnet(found.within("mid.1"), shape, shape[1])
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                self._resnet(found.within(f"up.{level}.{block}"), shape, outputs)
                shape = (shape[0], outputs, *shape[2:])
            if level < len(self.channels) - 1:
                shape = self.upsample(found.within(f"up.{level}.upsample"), shape, level)
        self.normed(found, "norm_out", shape)
        self.conv(found, "conv_out", shape, 3)

    def _resnet(self, found: Layers, shape: Shape, outputs: int) -> None:
        after = (shape[0], outputs, *shape[2:])
        for name, inputs in (("1", shape), ("2", after)):
            self.normed(found, f"norm{name}", inputs)
            self.conv(found, f"conv{name}", inputs, outputs)
        if shape[1] != outputs:
            kind = "conv2d" if len(shape) == 4 else "conv3d"
            found.add("shortcut", kind, shape, out_channels=outputs, kernel_size=1)
        found.add("", "add", after, after)

    @abstractmethod
    def conv(self, found: Layers, path: str, shape: Shape, outputs: int) -> None:
        """Record a convolution over neighbouring pixels."""

    @abstractmethod
    def upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """Record an enlargement of what has this shape, and return the shape of its result."""

    def normed(self, found: Layers, path: str, shape: Shape) -> None:
        """Record a norm and an activation."""
        found.add(path, "group_norm", shape, num_groups=self.groups)
        found.add(path, "silu", shape)

    def attention(self, found: Layers, shape: Shape) -> None:
        """Record attention with one head over all latents, in the middle of the decoder; some have none."""


@dataclass(frozen=True)
class Autoencoder(ResidualDecoder):
    """The decoder of Stable Diffusion's autoencoder (Rombach et al., arXiv 2112.10752)."""

    channels: tuple[int, ...] = (128, 256, 512, 512)

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        found = Layers(precision)
        latents = (images, self.latent_channels, *(side // self.scale for side in size))
        self.decode(found, latents)
        return found.network("vae", {"latents": latents})

    def conv(self, found: Layers, path: str, shape: Shape, outputs: int) -> None:
        """See `ResidualDecoder`."""
        found.add(path, "conv2d", shape, out_channels=outputs, kernel_size=3, padding=1)

    def upsample(self, found: Layers, shape: Shape, level: int) -> Shape:
        """See `ResidualDecoder`."""
        larger = (*shape[:2], 2 * shape[2], 2 * shape[3])
        found.add("", "interpolate", shape, output_size=larger[2:])
        self.conv(found, "conv", larger, shape[1])
        return larger

    def attention(self, found: Layers, shape: Shape) -> None:
        """See `ResidualDecoder`."""
        images, channels, pixels = shape[0], shape[1], shape[2] * shape[3]
        tokens, heads = (images, pixels, channels), (images, 1, pixels, channels)
        found.add("norm", "group_norm", (images, channels, pixels), num_groups=self.groups)
        found.projections("", tokens, channels)
        found.linear("out", tokens, channels)
        found.attention("", heads, heads)
        found.add("", "add", tokens, tokens)
