"""Denoisers of videos: transformers over all patches of all frames."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from ...operations.network import Network
from .layers import Layers, Shape


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
        """See `Denoiser.network`."""
        found, hidden, tokens = Layers(precision), self.heads * self.head_size, math.prod(grid)
        shape, text = (images, tokens, hidden), (images, text_tokens, hidden)
        found.linear("x_embed", (images, tokens, self.patch), hidden)
        found.two_linear("text_embed", (images, text_tokens, self.text), hidden, hidden)
        for name, inputs, outputs in (("0", 256, hidden), ("1", hidden, hidden), ("modulation", hidden, 6 * hidden)):
            found.linear(f"time.{name}", (images, inputs), outputs)

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


_CONDITION = 512
"""Features of the time embedding, from which each block computes its scales, shifts and gates."""


@dataclass(frozen=True)
class JointVideoDiT:
    """CogVideoX (Yang et al., arXiv 2408.06072): text and video form one sequence with common weights.

    They have separate scales and shifts.
    """

    layers: int
    heads: int
    head_size: int
    rotary: bool  # Whether there are rotary position embeddings (5B), or positions are added to the patches (2B)
    patch: int = 64  # Elements of a patch: its side squared times the channels of the latents
    text: int = 4096  # Features of a token of the text encoder

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """See `Denoiser.network`."""
        found, hidden, tokens = Layers(precision), self.heads * self.head_size, math.prod(grid)
        video, text, joint = ((images, count, hidden) for count in (tokens, text_tokens, tokens + text_tokens))
        found.linear("x_embed", (images, tokens, self.patch), hidden)
        found.linear("text_embed", (images, text_tokens, self.text), hidden)
        if not self.rotary:
            found.add("positions", "add", joint, (1, *joint[1:]))
        found.linear("time.0", (images, hidden), _CONDITION)
        found.linear("time.1", (images, _CONDITION), _CONDITION)

        block = found.within("blocks.{}", self.layers)
        self._modulated_norm(block.within("norm1"), video, text)
        attention = block.within("attention")
        attention.add("", "cat", text, video, dim=1)
        for name in ("q", "k", "v", "out"):
            attention.linear(name, joint, hidden)
        heads = (images, self.heads, joint[1], self.head_size)
        for name in ("q_norm", "k_norm"):
            attention.add(name, "layer_norm", heads)
        if self.rotary:
            turned = (*heads[:2], tokens, self.head_size)
            attention.rotary("rotary", turned, each=2)
            attention.add("rotary", "copy", turned, each=2)
        attention.attention("", heads, heads)
        self._modulated_norm(block.within("norm2"), video, text)
        block.add("mlp", "cat", text, video, dim=1)
        block.two_linear("mlp", joint, 4 * hidden, hidden)
        for path, shape in product(("attention", "mlp"), (video, text)):
            block.gated_residual(path, shape)

        found.add("norm_final", "layer_norm", joint)
        found.linear("out.modulation", (images, _CONDITION), 2 * hidden)
        found.modulated_norm("out.norm", video)
        found.linear("out.proj", video, self.patch)
        return found.network("denoiser", {"latents": (images, tokens, self.patch)})

    def _modulated_norm(self, found: Layers, video: Shape, text: Shape) -> None:
        """A norm of text and video, each with its own scale and shift, which one layer computes from the condition."""
        found.add("modulation", "silu", (video[0], _CONDITION))
        found.linear("modulation", (video[0], _CONDITION), 6 * video[2])
        for shape in (video, text):
            found.modulated_norm("", shape)
