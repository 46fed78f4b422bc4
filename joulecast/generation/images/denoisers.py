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
        found, n = Layers(precision), self.layers
        shape = (prompts, self.tokens, self.hidden)
        wide = (prompts, self.tokens, self.inner)
        heads = (prompts, self.heads, self.tokens, self.head_size)
        keys = (prompts, self.cached_heads or self.heads, self.tokens, self.head_size)
        bias = not self.gated
        found.add(
            "embeddings",
            "embedding",
            (prompts, self.tokens),
            num_embeddings=self.vocabulary,
            embedding_dim=self.hidden,
        )
        norm = "rms_norm" if self.gated else "layer_norm"
        for place in ("norm1", "norm2"):
            found.add(f"layers.{{}}.{place}", norm, shape, blocks=n)
        queries = self.heads * self.head_size
        found.linear("layers.{}.attention.q", shape, queries, blocks=n, bias=bias)
        for name in ("k", "v"):
            found.linear(f"layers.{{}}.attention.{name}", shape, keys[1] * self.head_size, blocks=n, bias=bias)
        found.attention("layers.{}.attention", heads, keys, blocks=n)
        found.linear("layers.{}.attention.out", (*shape[:-1], queries), self.hidden, blocks=n, bias=bias)
        found.add("layers.{}", "add", shape, shape, blocks=n, each=2)
        for name in ("fc1", "gate")[: 2 if self.gated else 1]:
            found.linear(f"layers.{{}}.mlp.{name}", shape, self.inner, blocks=n, bias=bias)
        found.add("layers.{}.mlp.act", "gelu", wide, blocks=n)
        if self.gated:
            found.add("layers.{}.mlp", "mul", wide, wide, blocks=n)
        found.linear("layers.{}.mlp.fc2", wide, self.hidden, blocks=n, bias=bias)
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
        image_tokens = math.prod(grid)
        found, hidden = Layers(precision), self.hidden
        found.linear("x_embed", (images, image_tokens, self.patch), hidden)
        found.linear("context_embed", (images, text_tokens, self.text), hidden)
        self._condition(found, images)
        if self.refined:
            self._refine(found, (images, text_tokens, hidden))
        joint = (images, self.heads, image_tokens + text_tokens, hidden // self.heads)
        own = (images, self.heads, image_tokens, hidden // self.heads)
        found.attention("double.{}.attention", joint, joint, blocks=self.double)
        text = (*own[:2], text_tokens, own[3])
        if self.convolved and not self.single:
            found.joined_heads("double.{}.attention", own, text, blocks=self.double, each=3)
        else:
            found.add("double.{}.attention", "cat", own, text, blocks=self.double, each=3, dim=2)
        for stream, tokens, blocks in (
            ("image", image_tokens, self.double),
            ("text", text_tokens, self.double if self.last_context else self.double - 1),
        ):
            transposed = self.convolved and stream == "image"
            self._stream(found, f"double.{{}}.{stream}", (images, tokens, hidden), blocks, transposed)
        if not self.last_context:
            # Without it, only queries, keys and values of the text are computed in the last block.
            last = (images, text_tokens, hidden)
            self._modulated(found, "last.text", last, 1, (images, hidden), 2)
            found.projections("last.text", last, hidden)
            found.rms_norm("last.text.qk_norm", (images, self.heads, text_tokens, hidden // self.heads), each=2)
        if self.single:
            found.rotary("double.{}.rotary", joint, blocks=self.double, each=2)
        if self.dual:
            shape = (images, image_tokens, hidden)
            found.linear("double.{}.dual.modulation", (images, hidden), 3 * hidden, blocks=self.dual)
            found.modulation("double.{}.dual", shape, blocks=self.dual)
            found.projections("double.{}.dual", shape, hidden, blocks=self.dual)
            found.rms_norm("double.{}.dual.qk_norm", own, blocks=self.dual, each=2)
            found.attention("double.{}.dual", own, own, blocks=self.dual)
            found.linear("double.{}.dual.out", shape, hidden, blocks=self.dual)
            self._gated_residual(found, "double.{}.dual", shape, self.dual, self.convolved)
        if self.single:
            self._single(found, (images, image_tokens + text_tokens, hidden), joint)
        self._modulated(found, "out", (images, image_tokens, hidden), 1, (images, hidden), 2)
        if self.convolved and not self.single:
            found.transposed("out", (images, image_tokens, hidden))
        found.linear("out.proj", (images, image_tokens, hidden), self.patch)
        return found.network("denoiser", {"latents": (images, image_tokens, self.patch)})

    def _condition(self, found: Layers, images: int) -> None:
        """The embeddings of time, pooled text and guidance."""
        for name, inputs in (("time", 256), ("pooled", self.pooled), *((("guidance", 256),) if self.guided else ())):
            found.linear(f"{name}.0", (images, inputs), self.hidden)
            found.add(f"{name}.act", "silu", (images, self.hidden))
            found.linear(f"{name}.1", (images, self.hidden), self.hidden)

    def _refine(self, found: Layers, shape: tuple[int, int, int]) -> None:
        """The transformer over the text, whose gates are computed from the time and the mean of the text."""
        (images, tokens, hidden), n = shape, self.refined
        heads, inner = (images, self.heads, tokens, hidden // self.heads), (images, tokens, 4 * hidden)
        for name, features in (("time.0", 256), ("time.1", hidden), ("text.0", self.text), ("text.1", hidden)):
            found.linear(f"refiner.{name}", (images, features), hidden)
        found.linear("refiner.{}.gates", (images, hidden), 2 * hidden, blocks=n)
        found.add("refiner.{}.norm", "layer_norm", shape, blocks=n, each=2)
        found.projections("refiner.{}", shape, hidden, blocks=n)
        found.attention("refiner.{}", heads, heads, blocks=n)
        for name, wide, features in (("out", shape, hidden), ("mlp.0", shape, 4 * hidden), ("mlp.1", inner, hidden)):
            found.linear(f"refiner.{{}}.{name}", wide, features, blocks=n)
        found.add("refiner.{}", "silu", inner, blocks=n)
        for _ in ("attention", "mlp"):
            self._gated_residual(found, "refiner.{}", shape, n, False)

    def _modulated(
        self, found: Layers, path: str, shape: tuple[int, int, int], blocks: int, vector: tuple[int, int], parts: int
    ) -> None:
        """Norms with a scale and shift, and the layer that computes these from the condition."""
        found.add(f"{path}.modulation", "silu", vector, blocks=blocks)
        found.linear(f"{path}.modulation", vector, parts * self.hidden, blocks=blocks)
        norms = 2 if parts == 6 else 1
        found.modulated_norm(f"{path}.norm", shape, blocks=blocks, each=norms, affine=False)

    def _stream(self, found: Layers, path: str, shape: tuple[int, int, int], blocks: int, transposed: bool) -> None:
        """The operations of the double blocks on image tokens, or on text tokens."""
        images, tokens, hidden = shape
        inner = (images, tokens, 4 * hidden)
        heads = (images, self.heads, tokens, hidden // self.heads)
        self._modulated(found, path, shape, blocks, (images, hidden), 6)
        if transposed:
            found.transposed(path, shape, blocks=blocks, each=2)
        found.projections(path, shape, hidden, blocks=blocks)
        found.rms_norm(f"{path}.qk_norm", heads, blocks=blocks, each=2)
        found.strided_linear(f"{path}.out", shape, hidden, blocks=blocks)
        found.linear(f"{path}.mlp.0", shape, 4 * hidden, blocks=blocks)
        found.add(f"{path}.mlp.act", "gelu", inner, blocks=blocks)
        found.linear(f"{path}.mlp.1", inner, hidden, blocks=blocks)
        for _ in ("attention", "mlp"):
            self._gated_residual(found, path, shape, blocks, transposed)

    def _gated_residual(
        self, found: Layers, path: str, shape: tuple[int, int, int], blocks: int, transposed: bool
    ) -> None:
        found.add(path, "mul", shape, (shape[0], 1, shape[2]), blocks=blocks)
        found.add(path, "add", shape, shape, blocks=blocks)
        if transposed:
            found.transposed(path, shape, blocks=blocks)

    def _single(self, found: Layers, shape: tuple[int, int, int], heads: tuple[int, int, int, int]) -> None:
        images, tokens, hidden = shape
        n, wide = self.single, (images, tokens, 5 * hidden)
        self._modulated(found, "single.{}", shape, n, (images, hidden), 3)
        found.projections("single.{}", shape, hidden, blocks=n)
        found.linear("single.{}.mlp", shape, 4 * hidden, blocks=n)
        found.add("single.{}.mlp", "gelu", (images, tokens, 4 * hidden), blocks=n)
        found.rms_norm("single.{}.qk_norm", heads, blocks=n, each=2)
        found.rotary("single.{}.rotary", heads, blocks=n, each=2)
        found.attention("single.{}.attention", heads, heads, blocks=n)
        found.add("single.{}", "cat", shape, (images, tokens, 4 * hidden), blocks=n, dim=2)
        found.linear("single.{}.out", wide, hidden, blocks=n)
        self._gated_residual(found, "single.{}", shape, n, False)


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
        image_tokens = math.prod(grid)
        found, n, hidden = Layers(precision), self.layers, self.hidden
        shape, wide = (images, image_tokens, hidden), (images, image_tokens, self.inner)
        text = (images, text_tokens, hidden if self.projected else self.text)
        found.linear("x_embed", (images, image_tokens, self.patch), hidden)
        if self.projected:
            found.projected_text((images, text_tokens, self.text), hidden)
        found.linear("time.0", (images, 256), hidden)
        found.linear("time.1", (images, hidden), hidden)
        modulation = hidden if self.own_modulation else 6 * hidden
        found.linear("blocks.{}.modulation", (images, hidden), modulation, blocks=n if self.own_modulation else 1)
        heads = (images, self.heads, image_tokens, hidden // self.heads)
        keys = (images, self.heads, text_tokens, hidden // self.heads)
        norms = 3 if self.own_modulation else 2
        found.add("blocks.{}.norm", "layer_norm", shape, blocks=n, each=norms, affine=False)
        found.modulation("blocks.{}.norm", shape, blocks=n, each=2)
        found.projections("blocks.{}.self", shape, hidden, blocks=n)
        found.linear("blocks.{}.self.out", shape, hidden, blocks=n)
        found.attention("blocks.{}.self", heads, heads, blocks=n)
        for name in ("q", "out"):
            found.linear(f"blocks.{{}}.cross.{name}", shape, hidden, blocks=n)
        for name in ("k", "v"):
            found.linear(f"blocks.{{}}.cross.{name}", text, hidden, blocks=n)
        found.attention("blocks.{}.cross", heads, keys, blocks=n)
        found.linear("blocks.{}.mlp.0", shape, self.inner, blocks=n)
        found.add("blocks.{}.mlp.act", "gelu", wide, blocks=n)
        found.linear("blocks.{}.mlp.1", wide, hidden, blocks=n)
        found.add("blocks.{}", "mul", shape, (images, 1, hidden), blocks=n, each=2)
        found.add("blocks.{}", "add", shape, shape, blocks=n, each=3)
        # Results of attention are divided by a factor, also where it is one.
        found.add("blocks.{}", "div", shape, blocks=n, each=2)
        if self.skips:
            double = (images, image_tokens, 2 * hidden)
            found.add("skips.{}", "cat", shape, shape, blocks=self.skips, dim=2)
            found.add("skips.{}.norm", "layer_norm", double, blocks=self.skips)
            found.linear("skips.{}", double, hidden, blocks=self.skips)
        found.add("out.norm", "layer_norm", shape, affine=False)
        found.linear("out.proj", shape, self.patch_out)
        return found.network("denoiser", {"latents": (images, image_tokens, self.patch)})
