"""The denoiser of SANA (Xie et al., arXiv 2410.10629), whose cost is linear in the number of pixels.

Its linear attention and its feed-forward block of convolutions are also those of SANA's autoencoder; see EfficientViT
(Cai et al., arXiv 2205.14756). All are counted as `diffusers` runs them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...operations.network import Network
from .autoencoders import Decoder
from .layers import Layers, Shape


@dataclass(frozen=True)
class LinearDiT:
    """A transformer with linear attention over the image, cross-attention to the text, convolutional feed-forwards."""

    layers: int
    heads: int  # Number of heads of linear attention
    head_size: int
    text: int  # Features of a token of the text encoder
    cross_heads: int  # Number of heads of the attention to the text
    expansion: float  # Channels inside a feed-forward block for each feature of a token
    latent_channels: int  # Channels of the latents; a patch is a single latent
    normed: bool = False  # Whether queries and keys are normed, over the features of all heads together

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """See `Denoiser.network`."""
        found, n, hidden = Layers(precision), self.layers, self.heads * self.head_size
        tokens = math.prod(grid)
        shape, text = (images, tokens, hidden), (images, text_tokens, hidden)
        found.linear("x_embed", (images, tokens, self.latent_channels), hidden)
        found.projected_text((images, text_tokens, self.text), hidden)
        found.rms_norm("text_embed.norm", text)
        found.linear("time.0", (images, 256), hidden)
        found.linear("time.1", (images, hidden), hidden)
        found.linear("time.modulation", (images, hidden), 6 * hidden)

        one = (images, 1, hidden)
        found.modulated_norm("blocks.{}.norm", shape, blocks=n, each=2, affine=False)
        heads = (images, self.heads, self.head_size, tokens)
        found.projections("blocks.{}.self", shape, hidden, blocks=n, bias=False)
        for read in (shape, shape, shape, text) if self.normed else ():
            found.rms_norm("blocks.{}.qk_norm", read, blocks=n)
        found.add("blocks.{}.self", "relu", heads, blocks=n, each=2)
        linear_attention(found, "blocks.{}.self", heads, blocks=n)
        # Queries and keys are copied for the products, whose other operands are transposed.
        Layers("fp32", found.calls).add("blocks.{}.self", "copy", heads, blocks=n, each=2)
        found.strided_linear("blocks.{}.self.out", shape, hidden, blocks=n)

        queries = (images, self.cross_heads, tokens, hidden // self.cross_heads)
        for name, read in (("q", shape), ("k", text), ("v", text), ("out", shape)):
            found.linear(f"blocks.{{}}.cross.{name}", read, hidden, blocks=n)
        found.attention("blocks.{}.cross", queries, (*queries[:2], text_tokens, queries[3]), blocks=n)
        found.add("blocks.{}.cross", "div", shape, blocks=n)

        image = (images, hidden, *grid)
        convolutional_feed_forward(found, "blocks.{}.mlp", image, round(self.expansion * hidden), blocks=n)
        # Gates of attention and feed-forward, and the residuals.
        found.add("blocks.{}", "mul", shape, one, blocks=n, each=2)
        found.add("blocks.{}", "add", shape, shape, blocks=n, each=3)

        found.modulated_norm("out.norm", shape, affine=False)
        found.linear("out.proj", shape, self.latent_channels)
        return found.network("denoiser", {"latents": (images, self.latent_channels, *grid)})


def linear_attention(found: Layers, path: str, shape: Shape, *, blocks: int = 1) -> None:
    """Record attention without a softmax: keys times values come first, so that the cost is linear in the tokens.

    `diffusers` computes it in fp32. A row of ones below the values gives the sums that results are divided by.

    `shape`: Shape of queries, keys and values: images, heads, features of a head, tokens.
    """
    images, heads, features, tokens = shape
    wide, row = Layers("fp32", found.calls), (images, heads, 1, tokens)
    context = (images, heads, features + 1, features)
    wide.add(path, "copy", shape, blocks=blocks, each=3)
    wide.add(path, "cat", shape, row, blocks=blocks, dim=2)
    wide.add(path, "matmul", (*context[:-1], tokens), (images, heads, tokens, features), blocks=blocks)
    wide.add(path, "matmul", context, shape, blocks=blocks)
    wide.add(path, "add", row, blocks=blocks)
    wide.add(path, "div", shape, row, blocks=blocks)
    found.add(path, "copy", shape, blocks=blocks)


def convolutional_feed_forward(found: Layers, path: str, shape: Shape, inner: int, *, blocks: int = 1) -> None:
    """Record a feed-forward block with a depthwise convolution over neighbouring tokens.

    `shape`: Shape of its input and output: images, channels, height, width.
    """
    images, channels, high, wide = shape
    half, both = (images, inner, high, wide), (images, 2 * inner, high, wide)
    found.add(f"{path}.inverted", "conv2d", shape, blocks=blocks, out_channels=2 * inner, kernel_size=1)
    found.add(f"{path}.inverted", "silu", both, blocks=blocks)
    found.add(
        *(f"{path}.depth", "conv2d", both),
        blocks=blocks,
        out_channels=2 * inner,
        kernel_size=3,
        padding=1,
        groups=2 * inner,
    )
    found.add(f"{path}.gate", "silu", half, blocks=blocks)
    found.add(f"{path}.gate", "mul", half, half, blocks=blocks)
    found.add(f"{path}.point", "conv2d", half, blocks=blocks, out_channels=channels, kernel_size=1, bias=False)


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
