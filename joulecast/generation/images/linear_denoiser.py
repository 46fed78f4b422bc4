"""The denoiser of SANA (Xie et al., arXiv 2410.10629), whose cost is linear in the number of pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers, Shape
from .linear_attention import convolutional_feed_forward, linear_attention


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
        found, n, hidden = Layers(precision), self.layers, self.heads * self.head_size
        tokens = math.prod(grid)
        shape, text = (images, tokens, hidden), (images, text_tokens, hidden)
        found.linear("x_embed", (images, tokens, self.latent_channels), hidden)
        found.projected_text((images, text_tokens, self.text), hidden)
        found.rms_norm("text_embed.norm", text)
        found.linear("time.0", (images, 256), hidden)
        found.linear("time.1", (images, hidden), hidden)
        found.linear("time.modulation", (images, hidden), 6 * hidden)

        one = (images, 1, hidden)
        found.modulated_norm("blocks.{}.norm", shape, blocks=n, each=2, affine=False)
        heads = (images, self.heads, self.head_size, tokens)
        found.projections("blocks.{}.self", shape, hidden, blocks=n, bias=False)
        for read in (shape, shape, shape, text) if self.normed else ():
            found.rms_norm("blocks.{}.qk_norm", read, blocks=n)
        found.add("blocks.{}.self", "relu", heads, blocks=n, each=2)
        linear_attention(found, "blocks.{}.self", heads, blocks=n)
        # Queries and keys are copied for the products, whose other operands are transposed.
        Layers("fp32", found.calls).add("blocks.{}.self", "copy", heads, blocks=n, each=2)
        found.strided_linear("blocks.{}.self.out", shape, hidden, blocks=n)

        queries = (images, self.cross_heads, tokens, hidden // self.cross_heads)
        for name, read in (("q", shape), ("k", text), ("v", text), ("out", shape)):
            found.linear(f"blocks.{{}}.cross.{name}", read, hidden, blocks=n)
        found.attention("blocks.{}.cross", queries, (*queries[:2], text_tokens, queries[3]), blocks=n)
        found.add("blocks.{}.cross", "div", shape, blocks=n)

        image = (images, hidden, *grid)
        convolutional_feed_forward(found, "blocks.{}.mlp", image, round(self.expansion * hidden), blocks=n)
        # Gates of attention and feed-forward, and the residuals.
        found.add("blocks.{}", "mul", shape, one, blocks=n, each=2)
        found.add("blocks.{}", "add", shape, shape, blocks=n, each=3)

        found.modulated_norm("out.norm", shape, affine=False)
        found.linear("out.proj", shape, self.latent_channels)
        return found.network("denoiser", {"latents": (images, self.latent_channels, *grid)})
