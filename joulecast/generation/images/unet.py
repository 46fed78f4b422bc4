"""The denoiser of Stable Diffusion 1.5 and XL: a U-Net with attention (arXiv 2112.10752 and 2307.01952)."""

from __future__ import annotations

from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers, Shape


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
        """See `Denoiser.network`. A patch is a pixel of the lowest resolution."""
        found, lowest = Layers(precision), len(self.channels) - 1
        shape = (images, self.latent_channels, *(side * 2**lowest for side in grid))
        latents, text = shape, (images, text_tokens, self.text)
        embedding = 4 * self.channels[0]
        for name, inputs in (("time", self.channels[0]), *((("added", self.added),) if self.added else ())):
            found.two_linear(name, (images, inputs), embedding, embedding, "silu")
        shape = _conv(found, "conv_in", shape, self.channels[0])
        passed = [shape]
        for level, outputs in enumerate(self.channels):
            for i in range(self.resnets):
                shape = self._block(found, f"down.{level}.{i}", shape, outputs, level, text)
                passed.append(shape)
            if level < lowest:
                shape = _conv(found, f"down.{level}.sampler", shape, outputs, stride=2)
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
                shape = _conv(found, f"up.{level}.sampler", larger, shape[1])
        _normed(found, "norm_out", shape)
        _conv(found, "conv_out", shape, self.latent_channels)
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
                found.add(name, "conv2d", shape, out_channels=hidden, kernel_size=1)
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
    _normed(found, f"{path}.norm1", shape)
    _conv(found, f"{path}.conv1", shape, outputs)
    found.add(f"{path}.time", "silu", time)
    found.linear(f"{path}.time", time, outputs)
    found.add(f"{path}.time", "add", after, (shape[0], outputs, 1, 1))
    _normed(found, f"{path}.norm2", after)
    _conv(found, f"{path}.conv2", after, outputs)
    if shape[1] != outputs:
        found.add(f"{path}.shortcut", "conv2d", shape, out_channels=outputs, kernel_size=1)
    found.add(path, "add", after, after)
    found.add(path, "div", after)
    return after


def _normed(found: Layers, path: str, shape: Shape) -> None:
    found.add(path, "group_norm", shape, num_groups=32)
    found.add(path, "silu", shape)


def _conv(found: Layers, path: str, shape: Shape, outputs: int, stride: int = 1) -> Shape:
    found.add(path, "conv2d", shape, out_channels=outputs, kernel_size=3, padding=1, stride=stride)
    return (shape[0], outputs, *(side // stride for side in shape[2:]))
