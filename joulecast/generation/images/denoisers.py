"""Denoisers that attend from the image, or video, to the text: transformers over patches of the latents, and a U-Net.

Sizes are those of the published configurations. All are counted as `diffusers` runs them, one forward for each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers, Shape


@dataclass(frozen=True)
class CrossDiT:
    """A transformer over the image whose blocks have cross-attention to the text."""

    layers: int
    hidden: int
    heads: int
    inner: int  # Features between the layers of a feed-forward block
    patch: int  # Elements of a patch: its side squared times the channels of the latents
    patch_out: int  # Elements that are predicted for a patch; twice as many if their variance is predicted as well
    text: int  # Features of a token of the text encoder
    projected: bool = True  # Whether text is projected to the image's features once, before all blocks (PixArt)
    # Whether each block computes its scale and shift from the condition by a layer of its own.
    own_modulation: bool = False
    # Number of blocks that also read the output of a much earlier block, by a layer of its own (HunyuanDiT).
    skips: int = 0

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """See `ImagePipeline.denoiser`."""
        found, hidden, tokens = Layers(precision), self.hidden, math.prod(grid)
        shape, text = (images, tokens, hidden), (images, text_tokens, hidden if self.projected else self.text)
        found.linear("x_embed", (images, tokens, self.patch), hidden)
        if self.projected:
            found.two_linear("text_embed", (images, text_tokens, self.text), hidden, hidden)
        found.linear("time.0", (images, 256), hidden)
        found.linear("time.1", (images, hidden), hidden)
        block = found.within("blocks.{}", self.layers)
        if self.own_modulation:
            block.linear("modulation", (images, hidden), hidden)
        else:
            found.linear("blocks.0.modulation", (images, hidden), 6 * hidden)
        heads, keys = ((images, self.heads, count, hidden // self.heads) for count in (tokens, text_tokens))
        block.add("norm", "layer_norm", shape, each=3 if self.own_modulation else 2, affine=False)
        block.modulation("norm", shape, each=2)
        block.projections("self", shape, hidden)
        block.linear("self.out", shape, hidden)
        block.attention("self", heads, heads)
        for name, read in (("q", shape), ("out", shape), ("k", text), ("v", text)):
            block.linear(f"cross.{name}", read, hidden)
        block.attention("cross", heads, keys)
        block.two_linear("mlp", shape, self.inner, hidden)
        block.add("", "mul", shape, (images, 1, hidden), each=2)
        block.add("", "add", shape, shape, each=3)
        # Results of attention are divided by a factor, also where it is one.
        block.add("", "div", shape, each=2)
        if self.skips:
            skip, double = found.within("skips.{}", self.skips), (images, tokens, 2 * hidden)
            skip.add("", "cat", shape, shape, dim=2)
            skip.add("norm", "layer_norm", double)
            skip.linear("", double, hidden)
        found.add("out.norm", "layer_norm", shape, affine=False)
        found.linear("out.proj", shape, self.patch_out)
        return found.network("denoiser", {"latents": (images, tokens, self.patch)})


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
        """See `ImagePipeline.denoiser`."""
        found, hidden, tokens = Layers(precision), self.heads * self.head_size, math.prod(grid)
        image, prompt = (images, tokens, self.latent_channels), (images, text_tokens, self.text)
        shape, text = _embedded(found, image, prompt, hidden, normed=True)

        block, heads = found.within("blocks.{}", self.layers), (images, self.heads, self.head_size, tokens)
        block.modulated_norm("norm", shape, each=2, affine=False)
        block.projections("self", shape, hidden, bias=False)
        for read in (shape, shape, shape, text) if self.normed else ():
            block.rms_norm("qk_norm", read)
        block.add("self", "relu", heads, each=2)
        block.within("self").linear_attention(heads)
        # Queries and keys are copied for the products, whose other operands are transposed.
        block.wide.add("self", "copy", heads, each=2)
        block.strided_linear("self.out", shape, hidden)

        queries = (images, self.cross_heads, tokens, hidden // self.cross_heads)
        for name, read in (("q", shape), ("k", text), ("v", text), ("out", shape)):
            block.linear(f"cross.{name}", read, hidden)
        block.attention("cross", queries, (*queries[:2], text_tokens, queries[3]))
        block.add("cross", "div", shape)

        block.within("mlp").convolutional_feed_forward((images, hidden, *grid), round(self.expansion * hidden))
        # Gates of attention and feed-forward, and the residuals.
        block.add("", "mul", shape, (images, 1, hidden), each=2)
        block.add("", "add", shape, shape, each=3)

        found.modulated_norm("out.norm", shape, affine=False)
        found.linear("out.proj", shape, self.latent_channels)
        return found.network("denoiser", {"latents": (images, self.latent_channels, *grid)})


@dataclass(frozen=True)
class VideoDiT:
    """Wan 2.1 (Wan Team, arXiv 2503.20314): blocks attend to the whole video, and then to the text."""

    layers: int
    heads: int
    head_size: int
    inner: int  # Features between the layers of a feed-forward block
    patch: int = 64  # Elements of a patch: its side squared times the channels of the latents
    text: int = 4096  # Features of a token of the text encoder

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """See `ImagePipeline.denoiser`."""
        found, hidden, tokens = Layers(precision), self.heads * self.head_size, math.prod(grid)
        shape, text = _embedded(found, (images, tokens, self.patch), (images, text_tokens, self.text), hidden)

        block = found.within("blocks.{}", self.layers)
        _modulated_norm(block.within("norm1"), shape)
        self._attention(block.within("self"), shape, shape)
        _gated_residual(block.within("self"), shape)

        norm = block.within("norm2")
        norm.wide.add("", "copy", shape)
        norm.wide.transposed("", shape)
        norm.wide.add("", "layer_norm", shape)
        norm.add("", "copy", shape)
        self._attention(block.within("cross"), shape, text)
        block.add("cross", "add", shape, shape)
        block.transposed("cross", shape)

        _modulated_norm(block.within("norm3"), shape)
        block.two_linear("mlp", shape, self.inner, hidden)
        _gated_residual(block.within("mlp"), shape)

        _modulated_norm(found.within("out.norm"), shape)
        found.linear("out.proj", shape, self.patch)
        return found.network("denoiser", {"latents": (images, tokens, self.patch)})

    def _attention(self, found: Layers, shape: Shape, read: Shape) -> None:
        """Attention of the video to itself, with rotary position embeddings, or to the text."""
        for name, inputs in (("q", shape), ("k", read), ("v", read), ("out", shape)):
            found.linear(name, inputs, shape[-1])
        for name, inputs in (("q_norm", shape), ("k_norm", read)):
            found.add(name, "rms_norm", inputs)
        queries, keys = ((each[0], self.heads, each[1], self.head_size) for each in (shape, read))
        if read == shape:
            # Even and odd features of queries and keys, each from two products and their sum.
            half, angles = (*queries[:-1], queries[-1] // 2), (1, 1, queries[2], queries[3] // 2)
            found.wide.add("rotary", "mul", half, angles, each=8)
            found.wide.add("rotary", "add", half, half, each=4)
            found.add("rotary", "copy", half, each=4)
        found.attention("", queries, keys)


def _embedded(found: Layers, image: Shape, text: Shape, hidden: int, *, normed: bool = False) -> tuple[Shape, Shape]:
    """The layers that embed patches, text and time; shapes of the embedded patches and text."""
    found.linear("x_embed", image, hidden)
    found.two_linear("text_embed", text, hidden, hidden)
    if normed:
        found.rms_norm("text_embed.norm", (*text[:2], hidden))
    for name, inputs, outputs in (("0", 256, hidden), ("1", hidden, hidden), ("modulation", hidden, 6 * hidden)):
        found.linear(f"time.{name}", (image[0], inputs), outputs)
    return (*image[:2], hidden), (*text[:2], hidden)


def _modulated_norm(found: Layers, shape: Shape) -> None:
    """A norm in fp32 with a scale and shift from the condition."""
    found.wide.add("", "copy", shape)
    found.wide.transposed("", shape)
    found.wide.modulated_norm("", shape, affine=False)
    found.add("", "copy", shape)


def _gated_residual(found: Layers, shape: Shape) -> None:
    """Adding the output of a block in fp32, multiplied with a gate from the condition."""
    found.wide.add("", "copy", shape)
    found.wide.gated_residual("", shape)
    found.wide.transposed("", shape)
    found.add("", "copy", shape)


@dataclass(frozen=True)
class UNet:
    """`UNet2DConditionModel`: resolutions down and up again, whose outputs on the way down are inputs on the way up.

    Operations are those of diffusers 0.42.1; what it computes in fp32 to embed the time is left out.
    """

    channels: tuple[int, ...]  # At each resolution, from the latents down; each further one has half the sides
    blocks: tuple[int, ...]  # Number of transformer blocks after each residual block of a resolution; 0 for none
    attention_heads: tuple[int, ...]
    text: int  # Features of a token of the text encoders
    added: int = 0  # Features of the pooled text and of sizes in pixels, which condition each residual block (XL)
    linear: bool = True  # Whether linear layers enclose the transformer blocks, not convolutions of 1 x 1 (1.5)
    resnets: int = 2  # Residual blocks of a resolution on the way down; one more on the way up
    latent_channels: int = 4
    heads: int = 0  # That GPUs can share: none

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """See `ImagePipeline.denoiser`. A patch is a pixel of the lowest resolution."""
        found, lowest = Layers(precision), len(self.channels) - 1
        shape = (images, self.latent_channels, *(side * 2**lowest for side in grid))
        latents, text = shape, (images, text_tokens, self.text)
        embedding = 4 * self.channels[0]
        for name, inputs in (("time", self.channels[0]), *((("added", self.added),) if self.added else ())):
            found.two_linear(name, (images, inputs), embedding, embedding, "silu")
        shape = found.conv("conv_in", shape, self.channels[0])
        passed = [shape]
        for level, outputs in enumerate(self.channels):
            for i in range(self.resnets):
                shape = self._block(found, f"down.{level}.{i}", shape, outputs, level, text)
                passed.append(shape)
            if level < lowest:
                shape = found.conv(f"down.{level}.sampler", shape, outputs, stride=2)
                passed.append(shape)
        shape = _resnet(found, "mid.0", shape, shape[1], embedding)
        self._transformer(found.within("mid.attention"), shape, lowest, self.blocks[lowest] or 1, text)
        shape = _resnet(found, "mid.1", shape, shape[1], embedding)
        for level in range(lowest, -1, -1):
            for i in range(self.resnets + 1):
                skip = passed.pop()
                found.add(f"up.{level}.{i}", "cat", shape, skip, dim=1)
                wide = (images, shape[1] + skip[1], *shape[2:])
                shape = self._block(found, f"up.{level}.{i}", wide, self.channels[level], level, text)
            if level:
                larger = (*shape[:2], *(2 * side for side in shape[2:]))
                found.add(f"up.{level}.sampler", "interpolate", shape, output_size=larger[2:])
                shape = found.conv(f"up.{level}.sampler", larger, shape[1])
        found.normed("norm_out", shape)
        found.conv("conv_out", shape, self.latent_channels)
        return found.network("denoiser", {"latents": latents})

    def _block(self, found: Layers, path: str, shape: Shape, outputs: int, level: int, text: Shape) -> Shape:
        after = _resnet(found, path, shape, outputs, 4 * self.channels[0])
        if self.blocks[level]:
            self._transformer(found.within(f"{path}.attention"), after, level, self.blocks[level], text)
        return after

    def _transformer(self, found: Layers, shape: Shape, level: int, blocks: int, text: Shape) -> None:
        """Transformer blocks over the pixels of a resolution, each with attention to the text as well."""
        images, hidden, pixels = shape[0], shape[1], shape[2] * shape[3]
        tokens, inner = (images, pixels, hidden), (images, pixels, 4 * hidden)
        heads, size = self.attention_heads[level], hidden // self.attention_heads[level]
        found.add("norm", "group_norm", shape, num_groups=32)
        for name in ("in", "out"):
            found.add("", "copy", tokens if name == "in" else shape)
            if self.linear:
                found.linear(name, tokens, hidden)
            else:
                found.conv(name, shape, hidden, 1)
        block = found.within("{}", blocks)
        block.add("norm", "layer_norm", tokens, each=3)
        for name, read in (("self", tokens), ("cross", text)):
            for part, inputs in (("q", tokens), ("k", read), ("v", read)):
                block.linear(f"{name}.{part}", inputs, hidden, bias=False)
            block.attention(name, (images, heads, pixels, size), (images, heads, read[1], size))
            block.add(name, "copy", (images, pixels, heads, size))
            block.linear(f"{name}.out", tokens, hidden)
            block.add(name, "div", tokens)  # By a factor that is one.
        block.linear("mlp.0", tokens, 8 * hidden)
        block.add("mlp", "gelu", inner)
        block.add("mlp", "mul", inner, inner)
        block.linear("mlp.1", inner, hidden)
        block.add("", "add", tokens, tokens, each=3)
        found.add("", "add", shape, shape)


def _resnet(found: Layers, path: str, shape: Shape, outputs: int, embedding: int) -> Shape:
    """A residual block, to which the embedding of the time is added."""
    after, time = (shape[0], outputs, *shape[2:]), (shape[0], embedding)
    found.normed(f"{path}.norm1", shape)
    found.conv(f"{path}.conv1", shape, outputs)
    found.add(f"{path}.time", "silu", time)
    found.linear(f"{path}.time", time, outputs)
    found.add(f"{path}.time", "add", after, (shape[0], outputs, 1, 1))
    found.normed(f"{path}.norm2", after)
    found.conv(f"{path}.conv2", after, outputs)
    if shape[1] != outputs:
        found.conv(f"{path}.shortcut", shape, outputs, 1)
    found.add(path, "add", after, after)
    found.add(path, "div", after)
    return after
