"""Denoisers of image pipelines: transformers over patches of the latents, one forward for each step.

Sizes are those of the published configurations. The transformers differ in how text meets the image: MMDiT (Esser et
al., arXiv 2403.03206) and FLUX join both in one attention, PixArt (Chen et al., arXiv 2310.00426) and HunyuanDiT
(arXiv 2405.08748) attend from the image to the text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ...operations.network import Network
from .layers import Layers, Shape


@dataclass(frozen=True)
class TextEncoder:
    """A transformer that reads a prompt once."""

    name: str
    layers: int
    hidden: int
    heads: int
    head_size: int
    inner: int  # Features between the layers of a feed-forward block
    vocabulary: int
    tokens: int  # Number of tokens to which each prompt is padded
    gated: bool = False  # Whether half of the feed-forward's first layer gates the other half (T5 1.1)
    cached_heads: int | None = None  # Number of heads of keys and values; None for as many as query heads

    def network(self, prompts: int, precision: str) -> Network:
        """The operations that encode a number of prompts."""
        found, bias, norm = Layers(precision), not self.gated, "rms_norm" if self.gated else "layer_norm"
        shape, wide = (prompts, self.tokens, self.hidden), (prompts, self.tokens, self.inner)
        queries = (prompts, self.heads, self.tokens, self.head_size)
        keys = (prompts, self.cached_heads or self.heads, *queries[2:])
        sizes = {"num_embeddings": self.vocabulary, "embedding_dim": self.hidden}
        found.add("embeddings", "embedding", (prompts, self.tokens), **sizes)
        layer = found.within("layers.{}", self.layers)
        for place in ("norm1", "norm2"):
            layer.add(place, norm, shape)
        for name, heads in (("q", self.heads), ("k", keys[1]), ("v", keys[1])):
            layer.linear(f"attention.{name}", shape, heads * self.head_size, bias=bias)
        layer.attention("attention", queries, keys)
        layer.linear("attention.out", (*shape[:-1], self.heads * self.head_size), self.hidden, bias=bias)
        layer.add("", "add", shape, shape, each=2)
        for name in ("fc1", "gate")[: 2 if self.gated else 1]:
            layer.linear(f"mlp.{name}", shape, self.inner, bias=bias)
        layer.add("mlp.act", "gelu", wide)
        if self.gated:
            layer.add("mlp", "mul", wide, wide)
        layer.linear("mlp.fc2", wide, self.hidden, bias=bias)
        found.add("final_norm", norm, shape)
        return found.network(self.name, {"input_ids": shape[:-1]})


class Denoiser(Protocol):
    """A network that removes noise from the latents of a batch."""

    @property
    def heads(self) -> int:
        """Number of heads of its attention over the image."""
        ...

    def network(self, images: int, grid: Shape, text_tokens: int, precision: str) -> Network:
        """The operations of one step.

        `images`: Number of images that are computed together; with guidance each image counts twice.
        `grid`: Rows and columns of patches of an image; for a video (latent frames, rows, columns).
        """
        ...


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
        """See `Denoiser.network`."""
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
            double.joined_heads("attention", of_image, of_text, each=3)
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
        """See `Denoiser.network`."""
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
