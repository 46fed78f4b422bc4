"""Denoisers of videos: transformers over all patches of all frames."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
        found, n, hidden = Layers(precision), self.layers, self.heads * self.head_size
        tokens = math.prod(grid)
        shape, text = (images, tokens, hidden), (images, text_tokens, hidden)
        found.linear("x_embed", (images, tokens, self.patch), hidden)
        found.projected_text((images, text_tokens, self.text), hidden)
        for name, inputs, outputs in (("0", 256, hidden), ("1", hidden, hidden), ("modulation", hidden, 6 * hidden)):
            found.linear(f"time.{name}", (images, inputs), outputs)

        self._modulated_norm(found, "blocks.{}.norm1", shape, n)
        self._attention(found, "blocks.{}.self", shape, shape, n)
        self._gated_residual(found, "blocks.{}.self", shape, n)

        wide = Layers("fp32", found.calls)
        wide.add("blocks.{}.norm2", "copy", shape, blocks=n)
        wide.transposed("blocks.{}.norm2", shape, blocks=n)
        wide.add("blocks.{}.norm2", "layer_norm", shape, blocks=n)
        found.add("blocks.{}.norm2", "copy", shape, blocks=n)
        self._attention(found, "blocks.{}.cross", shape, text, n)
        found.add("blocks.{}.cross", "add", shape, shape, blocks=n)
        found.transposed("blocks.{}.cross", shape, blocks=n)

        self._modulated_norm(found, "blocks.{}.norm3", shape, n)
        found.linear("blocks.{}.mlp.0", shape, self.inner, blocks=n)
        found.add("blocks.{}.mlp.act", "gelu", (images, tokens, self.inner), blocks=n)
        found.linear("blocks.{}.mlp.1", (images, tokens, self.inner), hidden, blocks=n)
        self._gated_residual(found, "blocks.{}.mlp", shape, n)

        self._modulated_norm(found, "out.norm", shape, 1)
        found.linear("out.proj", shape, self.patch)
        return found.network("denoiser", {"latents": (images, tokens, self.patch)})

    def _attention(self, found: Layers, path: str, shape: Shape, read: Shape, blocks: int) -> None:
        """Attention of the video to itself, with rotary position embeddings, or to the text."""
        hidden = shape[-1]
        for name, inputs in (("q", shape), ("k", read), ("v", read), ("out", shape)):
            found.linear(f"{path}.{name}", inputs, hidden, blocks=blocks)
        for name, inputs in (("q_norm", shape), ("k_norm", read)):
            found.add(f"{path}.{name}", "rms_norm", inputs, blocks=blocks)
        queries, keys = ((each[0], self.heads, each[1], self.head_size) for each in (shape, read))
        if read == shape:
            _rotary(found, f"{path}.rotary", queries, blocks)
        found.attention(path, queries, keys, blocks=blocks)

    def _modulated_norm(self, found: Layers, path: str, shape: Shape, blocks: int) -> None:
        """A norm in fp32 with a scale and shift from the condition."""
        wide = Layers("fp32", found.calls)
        wide.add(path, "copy", shape, blocks=blocks)
        wide.transposed(path, shape, blocks=blocks)
        wide.modulated_norm(path, shape, blocks=blocks, affine=False)
        found.add(path, "copy", shape, blocks=blocks)

    def _gated_residual(self, found: Layers, path: str, shape: Shape, blocks: int) -> None:
        """Adding the output of a block in fp32, multiplied with a gate from the condition."""
        wide = Layers("fp32", found.calls)
        wide.add(path, "copy", shape, blocks=blocks)
        wide.add(path, "mul", shape, (shape[0], 1, shape[2]), blocks=blocks)
        wide.add(path, "add", shape, shape, blocks=blocks)
        wide.transposed(path, shape, blocks=blocks)
        found.add(path, "copy", shape, blocks=blocks)


def _rotary(found: Layers, path: str, shape: Shape, blocks: int) -> None:
    """Rotary position embeddings of queries and keys: even and odd features each from two products and their sum."""
    wide, half, angles = Layers("fp32", found.calls), (*shape[:-1], shape[-1] // 2), (1, 1, shape[2], shape[3] // 2)
    wide.add(path, "mul", half, angles, blocks=blocks, each=8)
    wide.add(path, "add", half, half, blocks=blocks, each=4)
    found.add(path, "copy", half, blocks=blocks, each=4)


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
        found, n, hidden = Layers(precision), self.layers, self.heads * self.head_size
        tokens = math.prod(grid)
        video, text = (images, tokens, hidden), (images, text_tokens, hidden)
        joint = (images, tokens + text_tokens, hidden)
        inner = (*joint[:2], 4 * hidden)
        found.linear("x_embed", (images, tokens, self.patch), hidden)
        found.linear("text_embed", (images, text_tokens, self.text), hidden)
        if not self.rotary:
            found.add("positions", "add", joint, (1, *joint[1:]))
        found.linear("time.0", (images, hidden), _CONDITION)
        found.linear("time.1", (images, _CONDITION), _CONDITION)

        self._modulated_norm(found, "blocks.{}.norm1", video, text)
        found.add("blocks.{}.attention", "cat", text, video, blocks=n, dim=1)
        for name in ("q", "k", "v", "out"):
            found.linear(f"blocks.{{}}.attention.{name}", joint, hidden, blocks=n)
        heads = (images, self.heads, joint[1], self.head_size)
        for name in ("q_norm", "k_norm"):
            found.add(f"blocks.{{}}.attention.{name}", "layer_norm", heads, blocks=n)
        if self.rotary:
            turned = (*heads[:2], tokens, self.head_size)
            found.rotary("blocks.{}.attention.rotary", turned, blocks=n, each=2)
            found.add("blocks.{}.attention.rotary", "copy", turned, blocks=n, each=2)
        found.attention("blocks.{}.attention", heads, heads, blocks=n)
        self._gated_residuals(found, "blocks.{}.attention", video, text)

        self._modulated_norm(found, "blocks.{}.norm2", video, text)
        found.add("blocks.{}.mlp", "cat", text, video, blocks=n, dim=1)
        found.linear("blocks.{}.mlp.0", joint, 4 * hidden, blocks=n)
        found.add("blocks.{}.mlp.act", "gelu", inner, blocks=n)
        found.linear("blocks.{}.mlp.1", inner, hidden, blocks=n)
        self._gated_residuals(found, "blocks.{}.mlp", video, text)

        found.add("norm_final", "layer_norm", joint)
        found.linear("out.modulation", (images, _CONDITION), 2 * hidden)
        found.modulated_norm("out.norm", video)
        found.linear("out.proj", video, self.patch)
        return found.network("denoiser", {"latents": (images, tokens, self.patch)})

    def _modulated_norm(self, found: Layers, path: str, video: Shape, text: Shape) -> None:
        """A norm of text and video, each with its own scale and shift, which one layer computes from the condition."""
        images, n = video[0], self.layers
        found.add(f"{path}.modulation", "silu", (images, _CONDITION), blocks=n)
        found.linear(f"{path}.modulation", (images, _CONDITION), 6 * video[2], blocks=n)
        for shape in (video, text):
            found.modulated_norm(path, shape, blocks=n)

    def _gated_residuals(self, found: Layers, path: str, video: Shape, text: Shape) -> None:
        for shape in (video, text):
            found.add(path, "mul", shape, (shape[0], 1, shape[2]), blocks=self.layers)
            found.add(path, "add", shape, shape, blocks=self.layers)
