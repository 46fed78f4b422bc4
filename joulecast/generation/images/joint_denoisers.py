"""Denoisers whose text and image, or video, meet in one attention, with separate weights or common ones.

Sizes are those of the published configurations. One forward computes one step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from ...operations.network import Network
from .layers import JOINED, Layers, Shape


@dataclass(frozen=True)
class JointDiT:
    """MMDiT: a transformer in which image and text have separate weights, with attention over both together."""

    double: int  # Number of blocks with separate weights for image and text
    hidden: int
    heads: int
    single: int = 0  # Number of further blocks with common weights and a feed-forward parallel to the attention (FLUX)
    dual: int = 0  # Number of blocks with a second attention among image tokens (SD 3.5 medium)
    patch: int = 64  # Elements of a patch: its side squared times the channels of the latents
    text: int = 4096  # Features of a token of the text encoder
    pooled: int = 2048  # Features of the pooled text that conditions each block
    # Whether guidance is an input, learned by distillation, so that there is one forward per step.
    guided: bool = False
    # Whether the last of the double blocks computes its text output, although nothing reads it.
    last_context: bool = False
    refined: int = 0  # Number of blocks of a transformer over the text alone, before all others (HunyuanVideo)
    # Whether a convolution computes the patches (see `Layers.transposed`), not a linear layer (FLUX).
    convolved: bool = True

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """See `ImagePipeline.denoiser`."""
        found, hidden, tokens = Layers(precision), self.hidden, math.prod(grid)
        image, text, joint = ((images, count, hidden) for count in (tokens, text_tokens, tokens + text_tokens))
        of_image, of_text, of_both = map(self._heads, (image, text, joint))
        found.linear("x_embed", (images, tokens, self.patch), hidden)
        found.linear("context_embed", (images, text_tokens, self.text), hidden)
        for name, inputs in (("time", 256), ("pooled", self.pooled), *((("guidance", 256),) if self.guided else ())):
            found.two_linear(name, (images, inputs), hidden, hidden, "silu")
        if self.refined:
            self._refine(found, text)
        double = found.within("double.{}", self.double)
        double.attention("attention", of_both, of_both)
        if self.convolved and not self.single:
            # Views of (images, tokens, heads, elements).
            double.within("attention").add(JOINED, "cat", of_image, of_text, each=3, dim=2)
        else:
            double.add("attention", "cat", of_image, of_text, each=3, dim=2)
        self._stream(double.within("image"), image, self.convolved)
        self._stream(found.within("double.{}.text", self.double - (not self.last_context)), text, False)
        if not self.last_context:
            # Without it, only queries, keys and values of the text are computed in the last block.
            last = found.within("last.text")
            self._modulated(last, text, 2)
            last.projections("", text, hidden)
            last.rms_norm("qk_norm", of_text, each=2)
        if self.single:
            double.rotary("rotary", of_both, each=2)
            self._single(found.within("single.{}", self.single), joint)
        if self.dual:
            dual = found.within("double.{}.dual", self.dual)
            dual.linear("modulation", (images, hidden), 3 * hidden)
            dual.modulation("", image)
            dual.projections("", image, hidden)
            dual.rms_norm("qk_norm", of_image, each=2)
            dual.attention("", of_image, of_image)
            dual.linear("out", image, hidden)
            dual.gated_residual("", image)
            if self.convolved:
                dual.transposed("", image)
        self._modulated(found.within("out"), image, 2)
        if self.convolved and not self.single:
            found.transposed("out", image)
        found.linear("out.proj", image, self.patch)
        return found.network("denoiser", {"latents": (images, tokens, self.patch)})

    def _heads(self, shape: Shape) -> Shape:
        return (shape[0], self.heads, shape[1], self.hidden // self.heads)

    def _refine(self, found: Layers, shape: Shape) -> None:
        """The transformer over the text, whose gates are computed from the time and the mean of the text."""
        images, hidden = shape[0], self.hidden
        for name, features in (("time.0", 256), ("time.1", hidden), ("text.0", self.text), ("text.1", hidden)):
            found.linear(f"refiner.{name}", (images, features), hidden)
        block = found.within("refiner.{}", self.refined)
        block.linear("gates", (images, hidden), 2 * hidden)
        block.add("norm", "layer_norm", shape, each=2)
        block.projections("", shape, hidden)
        block.attention("", self._heads(shape), self._heads(shape))
        block.linear("out", shape, hidden)
        block.two_linear("mlp", shape, 4 * hidden, hidden, "silu")
        for _ in ("attention", "mlp"):
            block.gated_residual("", shape)

    def _modulated(self, found: Layers, shape: Shape, parts: int) -> None:
        """Norms with a scale and shift, and the layer that computes these from the condition."""
        found.add("modulation", "silu", (shape[0], self.hidden))
        found.linear("modulation", (shape[0], self.hidden), parts * self.hidden)
        found.modulated_norm("norm", shape, each=2 if parts == 6 else 1, affine=False)

    def _stream(self, found: Layers, shape: Shape, transposed: bool) -> None:
        """The operations of the double blocks on image tokens, or on text tokens."""
        self._modulated(found, shape, 6)
        found.projections("", shape, self.hidden)
        found.rms_norm("qk_norm", self._heads(shape), each=2)
        found.strided_linear("out", shape, self.hidden)
        found.two_linear("mlp", shape, 4 * self.hidden, self.hidden)
        for _ in ("attention", "mlp"):
            found.gated_residual("", shape)
        if transposed:
            found.transposed("", shape, each=4)

    def _single(self, found: Layers, shape: Shape) -> None:
        heads, inner = self._heads(shape), (*shape[:-1], 4 * self.hidden)
        self._modulated(found, shape, 3)
        found.projections("", shape, self.hidden)
        found.linear("mlp", shape, 4 * self.hidden)
        found.add("mlp", "gelu", inner)
        found.rms_norm("qk_norm", heads, each=2)
        found.rotary("rotary", heads, each=2)
        found.attention("attention", heads, heads)
        found.add("", "cat", shape, inner, dim=2)
        found.linear("out", (*shape[:-1], 5 * self.hidden), self.hidden)
        found.gated_residual("", shape)


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
        """See `ImagePipeline.denoiser`."""
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
