"""Text encoders of image pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from ...operations.network import Network
from .layers import Layers


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
