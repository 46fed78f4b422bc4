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

    Shapes are (images, channels, height, width), for videos (videos, channels, frames, height, width); `each` is how
    often an operation is called.
    """

    resnets: int = 3  # Number of residual blocks at each resolution
    groups: int = 32  # Number of groups of the group norms

    def decode(self, found: Layers, latents: Shape, each: int = 1) -> None:
        """Record the decoder for latents of this shape."""
        shape = (latents[0], self.channels[-1], *latents[2:])
        self.conv(found, "conv_in", latents, shape[1], each)
        self._resnet(found, "mid.0", shape, shape[1], each)
        self.attention(found, shape, each)
        self._resnet(found, "mid.1", shape, shape[1], each)
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                self._resnet(found, f"up.{level}.{block}", shape, outputs, each)
                shape = (shape[0], outputs, *shape[2:])
            if level < len(self.channels) - 1:
                shape = self.upsample(found, f"up.{level}.upsample", shape, level, each)
        self.normed(found, "norm_out", shape, each)
        self.conv(found, "conv_out", shape, 3, each)

    def _resnet(self, found: Layers, path: str, shape: Shape, outputs: int, each: int) -> None:
        after = (shape[0], outputs, *shape[2:])
        for name, inputs in (("1", shape), ("2", after)):
            self.normed(found, f"{path}.norm{name}", inputs, each)
            self.conv(found, f"{path}.conv{name}", inputs, outputs, each)
        if shape[1] != outputs:
            kind = "conv2d" if len(shape) == 4 else "conv3d"
            found.add(f"{path}.shortcut", kind, shape, each=each, out_channels=outputs, kernel_size=1)
        found.add(path, "add", after, after, each=each)

    @abstractmethod
    def conv(self, found: Layers, path: str, shape: Shape, outputs: int, each: int) -> None:
        """Record a convolution over neighbouring pixels."""

    @abstractmethod
    def upsample(self, found: Layers, path: str, shape: Shape, level: int, each: int) -> Shape:
        """Record an enlargement of what has this shape, and return the shape of its result."""

    def normed(self, found: Layers, path: str, shape: Shape, each: int) -> None:
        """Record a norm and an activation."""
        found.add(path, "group_norm", shape, each=each, num_groups=self.groups)
        found.add(path, "silu", shape, each=each)

    def attention(self, found: Layers, shape: Shape, each: int) -> None:
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

    def conv(self, found: Layers, path: str, shape: Shape, outputs: int, each: int) -> None:
        """See `ResidualDecoder`."""
        found.add(path, "conv2d", shape, each=each, out_channels=outputs, kernel_size=3, padding=1)

    def upsample(self, found: Layers, path: str, shape: Shape, level: int, each: int) -> Shape:
        """See `ResidualDecoder`."""
        larger = (*shape[:2], 2 * shape[2], 2 * shape[3])
        found.add(path, "interpolate", shape, output_size=larger[2:])
        self.conv(found, f"{path}.conv", larger, shape[1], each)
        return larger

    def attention(self, found: Layers, shape: Shape, each: int) -> None:
        """See `ResidualDecoder`."""
        images, channels, pixels = shape[0], shape[1], shape[2] * shape[3]
        tokens = (images, pixels, channels)
        found.add("mid.attention.norm", "group_norm", (images, channels, pixels), num_groups=self.groups)
        for name in ("q", "k", "v", "out"):
            found.linear(f"mid.attention.{name}", tokens, channels)
        found.attention("mid.attention", (images, 1, pixels, channels), (images, 1, pixels, channels))
        found.add("mid.attention", "add", tokens, tokens)
