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


# Sizes of the published configurations: openai/clip-vit-large-patch14, laion/CLIP-ViT-bigG-14, google/t5-v1_1-xxl,
# google/mt5-xl (its encoder), Tencent's BERT of HunyuanDiT, google/umt5-xxl (its encoder),
# google/gemma-2-2b-it, the text model of xtuner/llava-llama-3-8b-v1_1.
CLIP_L = TextEncoder("clip_l", 12, 768, 12, 64, 3072, 49408, 77)
CLIP_G = TextEncoder("clip_g", 32, 1280, 20, 64, 5120, 49408, 77)
HUNYUAN_BERT = TextEncoder("hunyuan_bert", 24, 1024, 16, 64, 4096, 47020, 77)


def t5_xxl(tokens: int) -> TextEncoder:
    """The encoder of T5 v1.1 XXL for prompts that are padded to a number of tokens."""
    return TextEncoder("t5_xxl", 24, 4096, 64, 64, 10240, 32128, tokens, gated=True)


def mt5_xl(tokens: int) -> TextEncoder:
    """The encoder of mT5 XL for prompts that are padded to a number of tokens."""
    return TextEncoder("mt5_xl", 24, 2048, 32, 64, 5120, 250112, tokens, gated=True)


def umt5_xxl(tokens: int) -> TextEncoder:
    """The encoder of UMT5 XXL for prompts that are padded to a number of tokens."""
    return TextEncoder("umt5_xxl", 24, 4096, 64, 64, 10240, 256384, tokens, gated=True)


def gemma_2_2b(tokens: int) -> TextEncoder:
    """Gemma 2 2B without its head for prompts that are padded to a number of tokens."""
    return TextEncoder("gemma_2_2b", 26, 2304, 8, 256, 9216, 256000, tokens, gated=True, cached_heads=4)


def llama_3_8b(tokens: int) -> TextEncoder:
    """Llama 3 8B without its head for prompts that are padded to a number of tokens."""
    return TextEncoder("llama_3_8b", 32, 4096, 32, 128, 14336, 128320, tokens, gated=True, cached_heads=8)
