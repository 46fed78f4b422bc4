"""Decoders of image pipelines, which compute pixels from latents: their interface, and that of `AutoencoderKL`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...operations.network import Network
from .layers import Layers, Shape


class Decoder(Protocol):
    """A network that computes pixels from latents."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels at each resolution, from the pixels to the latents; each further one has half the sides."""
        ...

    @property
    def scale(self) -> int:
        """Pixels per latent along each side."""
        scale: int = 2 ** (len(self.channels) - 1)
        return scale

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """The operations that decode images.

        `size`: Height and width of an image in pixels; for a video (frames, height, width).
        """
        ...


@dataclass(frozen=True)
class Autoencoder(Decoder):
    """The decoder of Stable Diffusion's autoencoder (Rombach et al., arXiv 2112.10752).

    Args:
        channels: Channels at each resolution, from the pixels to the latents; each further one has half the sides.
    """

    latent_channels: int
    channels: tuple[int, ...] = (128, 256, 512, 512)
    resnets: int = 3  # Number of residual blocks at each resolution
    groups: int = 32  # Number of groups of the group norms

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        height, width = size
        found = Layers(precision)
        high, wide = height // self.scale, width // self.scale
        widest = self.channels[-1]
        self._conv(found, "conv_in", (images, self.latent_channels, high, wide), widest)
        self._resnet(found, "mid.0", (images, widest, high, wide), widest)
        self._attention(found, images, widest, high * wide)
        self._resnet(found, "mid.1", (images, widest, high, wide), widest)
        inputs = widest
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                self._resnet(found, f"up.{level}.{block}", (images, inputs, high, wide), outputs)
                inputs = outputs
            if level < len(self.channels) - 1:
                high, wide = 2 * high, 2 * wide
                found.add(
                    f"up.{level}.upsample",
                    "interpolate",
                    (images, inputs, high // 2, wide // 2),
                    output_size=(high, wide),
                )
                self._conv(found, f"up.{level}.upsample.conv", (images, inputs, high, wide), inputs)
        shape = (images, inputs, high, wide)
        found.add("norm_out", "group_norm", shape, num_groups=self.groups)
        found.add("norm_out", "silu", shape)
        self._conv(found, "conv_out", shape, 3)
        return found.network(
            "vae", {"latents": (images, self.latent_channels, height // self.scale, width // self.scale)}
        )

    def _resnet(self, found: Layers, path: str, shape: tuple[int, int, int, int], outputs: int) -> None:
        after = (shape[0], outputs, *shape[2:])
        for name, each in (("norm1", shape), ("norm2", after)):
            found.add(f"{path}.{name}", "group_norm", each, num_groups=self.groups)
            found.add(f"{path}.{name}", "silu", each)
        self._conv(found, f"{path}.conv1", shape, outputs)
        self._conv(found, f"{path}.conv2", after, outputs)
        if shape[1] != outputs:
            self._conv(found, f"{path}.shortcut", shape, outputs, 1)
        found.add(path, "add", after, after)

    def _conv(self, found: Layers, path: str, shape: tuple[int, ...], outputs: int, size: int = 3) -> None:
        found.add(path, "conv2d", shape, out_channels=outputs, kernel_size=size, padding=size // 2)

    def _attention(self, found: Layers, images: int, channels: int, pixels: int) -> None:
        """Attention with one head over all latents, in the middle of the decoder."""
        shape = (images, pixels, channels)
        found.add("mid.attention.norm", "group_norm", (images, channels, pixels), num_groups=self.groups)
        for name in ("q", "k", "v", "out"):
            found.linear(f"mid.attention.{name}", shape, channels)
        found.attention("mid.attention", (images, 1, pixels, channels), (images, 1, pixels, channels))
        found.add("mid.attention", "add", shape, shape)
