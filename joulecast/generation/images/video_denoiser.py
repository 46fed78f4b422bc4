"""The denoiser of Wan 2.1 (Wan Team, arXiv 2503.20314): a transformer over all patches of all frames of a video."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers, Shape


@dataclass(frozen=True)
class VideoDiT:
    """A transformer whose blocks have attention over the whole video and then cross-attention to the text."""

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
