"""Transformers in plain PyTorch, whose operations can be measured on machines that have only torch.

They have the sizes and operators of the original models but other names of parameters, so published weights do not fit.
To predict the original models, use `bert_base` and the others of transformers.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (everybody calls it so)

from ...errors import named
from .language_models import EAGER_TRANSFORMERS
from .transformers_models import without_weights


class _Attention(nn.Module):
    """Multi-head attention; with fewer heads of keys and values than of queries, groups of queries share them."""

    def __init__(self, width: int, heads: int, key_heads: int, *, bias: bool, causal: bool) -> None:
        super().__init__()
        self.size, self.heads, self.key_heads, self.causal = width // heads, heads, key_heads, causal
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, self.size * key_heads, bias=bias)
        self.value = nn.Linear(width, self.size * key_heads, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor] | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            project(x).view(batch, length, heads, self.size).transpose(1, 2)
            for project, heads in ((self.query, self.heads), (self.key, self.key_heads), (self.value, self.key_heads))
        )
        if rotary is not None:
            q, k = _rotated(q, *rotary), _rotated(k, *rotary)
        if self.key_heads != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.key_heads, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class _EncoderLayer(nn.Module):
    """Attention and GELU layers, each normalized after its residual (BERT)."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, heads, bias=True, causal=False)
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.dropout = nn.Linear(width, inner), nn.Linear(inner, width), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(self.dropout(self.attention(x)) + x)
        out: torch.Tensor = self.norm(self.dropout(self.down(F.gelu(self.up(x)))) + x)
        return out


class _DecoderLayer(nn.Module):
    """Causal attention with rotary positions and a gated SiLU layer, each on normalized input (Llama)."""

    def __init__(self, width: int, heads: int, key_heads: int, inner: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, key_heads, bias=False, causal=True)
        self.attention_norm, self.norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rotary)
        y = self.norm(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Encoder(nn.Module):
    """A BERT of these sizes: token ids of shape (batch, length) to vectors of shape (batch, length, width)."""

    input_dtype = "int64"

    def __init__(
        self, *, vocabulary: int, width: int, layers: int, heads: int, inner: int, positions: int, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.types = nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(_EncoderLayer(width, heads, inner, dropout) for _ in range(layers))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Run the model; every token sees all others."""
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        x = self.tokens(ids) + self.types(torch.zeros_like(ids)) + self.positions(places)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = x
        return out


class Decoder(nn.Module):
    """A Llama of these sizes: token ids of shape (batch, length) to scores of shape (batch, length, vocabulary)."""

    input_dtype = "int64"

    def __init__(self, *, vocabulary: int, width: int, layers: int, heads: int, key_heads: int, inner: int) -> None:
        super().__init__()
        self.vocabulary, self.size = vocabulary, width // heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(_DecoderLayer(width, heads, key_heads, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Run the model; every token sees the tokens before it."""
        x = self.tokens(ids)
        rotary = self._rotary(ids.shape[1], x)
        for layer in self.layers:
            x = layer(x, rotary)
        out: torch.Tensor = self.head(self.norm(x))
        return out

    def _rotary(self, length: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frequencies = 10000 ** -(torch.arange(0, self.size, 2, device=like.device) / self.size)
        angles = torch.outer(torch.arange(length, device=like.device), frequencies).repeat(1, 2)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


PLAIN_TRANSFORMERS: Mapping[str, Callable[[], Encoder | Decoder]] = {
    # google-bert/bert-base-uncased
    "plain_bert_base": lambda: Encoder(vocabulary=30522, width=768, layers=12, heads=12, inner=3072, positions=512),
    # google/bert_uncased_L-4_H-512_A-8
    "plain_bert_small": lambda: Encoder(vocabulary=30522, width=512, layers=4, heads=8, inner=2048, positions=512),
    # JackFram/llama-68m
    "plain_llama_68m": lambda: Decoder(vocabulary=32000, width=768, layers=2, heads=12, key_heads=12, inner=3072),
    # TinyLlama/TinyLlama-1.1B: grouped queries, and small enough to train on a card of 24 GB.
    "plain_llama_1b": lambda: Decoder(vocabulary=32000, width=2048, layers=22, heads=32, key_heads=4, inner=5632),
}
"""Name -> function that builds the model on the default device."""


def build(name: str, **options: Any) -> torch.nn.Module:
    """Build a transformer with eager attention on the meta device."""
    row = named("transformer with eager attention", name, EAGER_TRANSFORMERS)
    model = without_weights(row, **{"use_cache": False, **options, "attn_implementation": "eager"})
    if row.class_name == "BertModel":
        model.register_forward_pre_hook(_with_mask, with_kwargs=True)
    return model


def _with_mask(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    ids: torch.Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    mask = torch.zeros((len(ids), 1, 1, ids.shape[1]), dtype=module.dtype, device=ids.device)
    return args, {**kwargs, "attention_mask": mask}
