"""The denoiser of CogVideoX (Yang et al., arXiv 2408.06072): text and video form one sequence with common weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers, Shape

_CONDITION = 512
"""Features of the time embedding, from which each block computes its scales, shifts and gates."""


@dataclass(frozen=True)
class JointVideoDiT:
    """A transformer over the text and all patches of all frames, with separate scales and shifts for text and video."""

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
