"""The decoder of DC-AE (Chen et al., arXiv 2410.10733), whose latents have a 32nd of the pixels of a side."""

from __future__ import annotations

from dataclasses import dataclass

from ...operations.network import Network
from .autoencoders import Decoder
from .layers import Layers, Shape
from .linear_denoiser import convolutional_feed_forward, linear_attention


@dataclass(frozen=True)
class DeepCompression(Decoder):
    """The decoder of SANA's deep compression autoencoder (dc-ae-f32c32-sana-1.0)."""

    channels: tuple[int, ...] = (128, 256, 512, 512, 1024, 1024)
    attending: int = 3  # Number of the lowest resolutions with blocks of linear attention instead of residual blocks
    blocks: int = 3  # Number of blocks at each resolution
    head_size: int = 32  # Features of an attention head

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        height, width = size
        found = Layers(precision)
        high, wide = height // self.scale, width // self.scale
        latents = (images, self.latent_channels, high, wide)
        widest = self.channels[-1]
        _conv(found, "conv_in", latents, widest)
        found.add("conv_in", "copy", (images, widest, high, wide))
        found.add("conv_in", "add", (images, widest, high, wide), (images, widest, high, wide))
        inputs = widest
        for level, outputs in enumerate(reversed(self.channels)):
            if level:
                high, wide = 2 * high, 2 * wide
                self._upsample(found, f"up.{level}.upsample", (images, inputs, high, wide), outputs)
            shape = (images, outputs, high, wide)
            for block in range(self.blocks):
                path = f"up.{level}.{block}"
                if level < self.attending:
                    self._attention(found, f"{path}.attention", shape)
                    convolutional_feed_forward(found, f"{path}.mlp", shape, 4 * outputs)
                    found.rms_norm(f"{path}.mlp.norm", (images, high, wide, outputs))
                    found.add(f"{path}.mlp", "add", shape, shape)
                else:
                    _residual(found, path, shape)
            inputs = outputs
        found.rms_norm("norm_out", (images, high, wide, inputs))
        found.add("norm_out", "relu", (images, inputs, high, wide))
        _conv(found, "conv_out", (images, inputs, high, wide), 3)
        return found.network("vae", {"latents": latents})

    def _upsample(self, found: Layers, path: str, shape: tuple[int, int, int, int], outputs: int) -> None:
        """Doubling the sides by interpolation and a convolution; a shortcut rearranges channels to pixels."""
        images, inputs, high, wide = shape
        after = (images, outputs, high, wide)
        found.add(path, "interpolate", (images, inputs, high // 2, wide // 2), output_size=(high, wide))
        _conv(found, f"{path}.conv", shape, outputs)
        found.add(path, "copy", after, each=2)
        found.add(path, "add", after, after)

    def _attention(self, found: Layers, path: str, shape: tuple[int, int, int, int]) -> None:
        """Linear attention with a second set of queries, keys and values, computed from the first by a convolution."""
        images, channels, high, wide = shape
        last, triple = (images, high, wide, channels), (images, 3 * channels, high, wide)
        for name in ("q", "k", "v"):
            found.linear(f"{path}.{name}", last, channels, bias=False)
        found.add(path, "cat", last, last, last, dim=3)
        groups = 3 * channels // self.head_size
        for name, size, parts in (("aggregate.depth", 5, 3 * channels), ("aggregate.point", 1, groups)):
            found.add(
                *(f"{path}.{name}", "conv2d", triple),
                out_channels=3 * channels,
                kernel_size=size,
                padding=size // 2,
                groups=parts,
                bias=False,
            )
        found.add(path, "cat", triple, triple, dim=1)
        heads = (images, 2 * channels // self.head_size, self.head_size, high * wide)
        Layers("fp32", found.calls).add(path, "relu", heads, each=2)
        linear_attention(found, path, heads)
        found.linear(f"{path}.out", (*last[:-1], 2 * channels), channels, bias=False)
        found.rms_norm(f"{path}.norm", last)
        found.add(path, "add", shape, shape)


def _residual(found: Layers, path: str, shape: tuple[int, int, int, int]) -> None:
    images, channels, high, wide = shape
    _conv(found, f"{path}.conv1", shape, channels)
    found.add(f"{path}.conv1", "silu", shape)
    _conv(found, f"{path}.conv2", shape, channels, bias=False)
    found.rms_norm(f"{path}.norm", (images, high, wide, channels))
    found.add(path, "add", shape, shape)


def _conv(found: Layers, path: str, shape: Shape, outputs: int, *, bias: bool = True) -> None:
    found.add(path, "conv2d", shape, out_channels=outputs, kernel_size=3, padding=1, bias=bias)
