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
        found, hidden, tokens = Layers(precision), self.heads * self.head_size, math.prod(grid)
        shape, text = (images, tokens, hidden), (images, text_tokens, hidden)
        found.linear("x_embed", (images, tokens, self.latent_channels), hidden)
        found.two_linear("text_embed", (images, text_tokens, self.text), hidden, hidden)
        found.rms_norm("text_embed.norm", text)
        for name, inputs, outputs in (("0", 256, hidden), ("1", hidden, hidden), ("modulation", hidden, 6 * hidden)):
            found.linear(f"time.{name}", (images, inputs), outputs)

        block, heads = found.within("blocks.{}", self.layers), (images, self.heads, self.head_size, tokens)
        block.modulated_norm("norm", shape, each=2, affine=False)
        block.projections("self", shape, hidden, bias=False)
        for read in (shape, shape, shape, text) if self.normed else ():
            block.rms_norm("qk_norm", read)
        block.add("self", "relu", heads, each=2)
        linear_attention(block.within("self"), heads)
        # Queries and keys are copied for the products, whose other operands are transposed.
        block.wide.add("self", "copy", heads, each=2)
        block.strided_linear("self.out", shape, hidden)

        queries = (images, self.cross_heads, tokens, hidden // self.cross_heads)
        for name, read in (("q", shape), ("k", text), ("v", text), ("out", shape)):
            block.linear(f"cross.{name}", read, hidden)
        block.attention("cross", queries, (*queries[:2], text_tokens, queries[3]))
        block.add("cross", "div", shape)

        convolutional_feed_forward(block.within("mlp"), (images, hidden, *grid), round(self.expansion * hidden))
        # Gates of attention and feed-forward, and the residuals.
        block.add("", "mul", shape, (images, 1, hidden), each=2)
        block.add("", "add", shape, shape, each=3)

        found.modulated_norm("out.norm", shape, affine=False)
        found.linear("out.proj", shape, self.latent_channels)
        return found.network("denoiser", {"latents": (images, self.latent_channels, *grid)})


def linear_attention(found: Layers, shape: Shape) -> None:
    """Record attention without a softmax: keys times values come first, so that the cost is linear in the tokens.

    `diffusers` computes it in fp32. A row of ones below the values gives the sums that results are divided by.

    `shape`: Shape of queries, keys and values: images, heads, features of a head, tokens.
    """
    images, heads, features, tokens = shape
    wide, row = found.wide, (images, heads, 1, tokens)
    context = (images, heads, features + 1, features)
    wide.add("", "copy", shape, each=3)
    wide.add("", "cat", shape, row, dim=2)
    wide.add("", "matmul", (*context[:-1], tokens), (images, heads, tokens, features))
    wide.add("", "matmul", context, shape)
    wide.add("", "add", row)
    wide.add("", "div", shape, row)
    found.add("", "copy", shape)


def convolutional_feed_forward(found: Layers, shape: Shape, inner: int) -> None:
    """Record a feed-forward block with a depthwise convolution over neighbouring tokens.

    `shape`: Shape of its input and output: images, channels, height, width.
    """
    images, channels, high, wide = shape
    half, both = (images, inner, high, wide), (images, 2 * inner, high, wide)
    depthwise = {"out_channels": 2 * inner, "kernel_size": 3, "padding": 1, "groups": 2 * inner}
    found.add("inverted", "conv2d", shape, out_channels=2 * inner, kernel_size=1)
    found.add("inverted", "silu", both)
    found.add("depth", "conv2d", both, **depthwise)
    found.add("gate", "silu", half)
    found.add("gate", "mul", half, half)
    found.add("point", "conv2d", half, out_channels=channels, kernel_size=1, bias=False)


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
                part = found.within(f"up.{level}.{block}")
                if level < self.attending:
                    self._attention(part.within("attention"), shape)
                    convolutional_feed_forward(part.within("mlp"), shape, 4 * outputs)
                    part.rms_norm("mlp.norm", (images, high, wide, outputs))
                    part.add("mlp", "add", shape, shape)
                else:
                    _residual(part, shape)
            inputs = outputs
        found.rms_norm("norm_out", (images, high, wide, inputs))
        found.add("norm_out", "relu", (images, inputs, high, wide))
        _conv(found, "conv_out", (images, inputs, high, wide), 3)
        return found.network("vae", {"latents": latents})

    def _upsample(self, found: Layers, path: str, shape: Shape, outputs: int) -> None:
        """Doubling the sides by interpolation and a convolution; a shortcut rearranges channels to pixels."""
        images, inputs, high, wide = shape
        after = (images, outputs, high, wide)
        found.add(path, "interpolate", (images, inputs, high // 2, wide // 2), output_size=(high, wide))
        _conv(found, f"{path}.conv", shape, outputs)
        found.add(path, "copy", after, each=2)
        found.add(path, "add", after, after)

    def _attention(self, found: Layers, shape: Shape) -> None:
        """Linear attention with a second set of queries, keys and values, computed from the first by a convolution."""
        images, channels, high, wide = shape
        last, triple = (images, high, wide, channels), (images, 3 * channels, high, wide)
        found.projections("", last, channels, bias=False)
        found.add("", "cat", last, last, last, dim=3)
        for name, side, groups in (("depth", 5, 3 * channels), ("point", 1, 3 * channels // self.head_size)):
            sizes = {"out_channels": 3 * channels, "kernel_size": side, "padding": side // 2, "groups": groups}
            found.add(f"aggregate.{name}", "conv2d", triple, **sizes, bias=False)
        found.add("", "cat", triple, triple, dim=1)
        heads = (images, 2 * channels // self.head_size, self.head_size, high * wide)
        found.wide.add("", "relu", heads, each=2)
        linear_attention(found, heads)
        found.linear("out", (*last[:-1], 2 * channels), channels, bias=False)
        found.rms_norm("norm", last)
        found.add("", "add", shape, shape)


def _residual(found: Layers, shape: Shape) -> None:
    images, channels, high, wide = shape
    _conv(found, "conv1", shape, channels)
    found.add("conv1", "silu", shape)
    _conv(found, "conv2", shape, channels, bias=False)
    found.rms_norm("norm", (images, high, wide, channels))
    found.add("", "add", shape, shape)


def _conv(found: Layers, path: str, shape: Shape, outputs: int, *, bias: bool = True) -> None:
    found.add(path, "conv2d", shape, out_channels=outputs, kernel_size=3, padding=1, bias=bias)
