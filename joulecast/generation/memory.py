"""Device memory of a model that is served: weights, the cache of keys and values, and what a step needs besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..hardware import GPU
from ..operations.precisions import ELEMENT_BYTES
from ..predictors.networks.memory import usable_bytes
from .decoder import Activation, Decoder, Logits, Part, Projection
from .engines import Engine
from .serving import Batching, Load, cycle_of
from .steps import Precisions, StepTokens

_CACHED_IN = {None: 2.0, "fp8": 1.0}
_LOGITS_BYTES = 3 * 4  # Logits, probabilities and random numbers in fp32.


@dataclass(frozen=True)
class GenerationMemory:
    """Bytes of one GPU, by what they hold.

    Args:
        weights_bytes: Weights of the model, or of one GPU's part of it.
        cache_bytes: Keys and values of the batch.
        activations_bytes: What the largest step needs besides.
        usable_bytes: What the engine may take of the board's memory.
    """

    weights_bytes: int
    cache_bytes: int
    activations_bytes: int
    usable_bytes: int

    @property
    def total_bytes(self) -> int:
        """All together."""
        return self.weights_bytes + self.cache_bytes + self.activations_bytes

    @property
    def fits(self) -> bool:
        """Whether the board has as much."""
        return self.total_bytes <= self.usable_bytes

    def to_dict(self) -> dict[str, Any]:
        """The figures as a dictionary."""
        return {
            "weights_bytes": self.weights_bytes,
            "cache_bytes": self.cache_bytes,
            "activations_bytes": self.activations_bytes,
            "usable_bytes": self.usable_bytes,
        }


def weights_bytes(decoder: Decoder, precisions: Precisions) -> int:
    """Bytes of all weights."""
    return round(sum(len(modules) * part.parameters * _element(part, precisions) for part, modules in decoder.weighted))


def _element(part: Part, precisions: Precisions) -> float:
    return ELEMENT_BYTES[precisions.weights if part.quantized else precisions.activations]


def cached_bytes(decoder: Decoder, tokens: int, precisions: Precisions) -> float:
    """Bytes of the keys and values of one sequence, of which windows drop the oldest.

    Args:
        decoder: The model, or one GPU's part of it.
        tokens: Length of the sequence.
        precisions: What the model is served in.
    """
    return sum(
        layers * part.cached_elements * min(tokens, part.window or tokens) * _CACHED_IN[precisions.cache]
        for part, layers in decoder.attentions
    )


def generation_memory(
    decoder: Decoder, load: Load, gpu: GPU, engine: Engine, precisions: Precisions, batching: Batching
) -> GenerationMemory:
    """The memory of a GPU that serves a load.

    Args:
        decoder: The model, or one GPU's part of it.
        load: What is asked of it.
        gpu: The GPU.
        engine: The engine.
        precisions: What the model is served in.
        batching: How requests follow each other.

    Raises:
        InputError: More sequences than a step of the engine takes tokens.
    """
    return GenerationMemory(
        weights_bytes=weights_bytes(decoder, precisions),
        cache_bytes=round(load.batch * cached_bytes(decoder, load.cached_tokens(batching), precisions)),
        activations_bytes=_activations_bytes(decoder, cycle_of(load, engine, batching).largest.tokens),
        usable_bytes=round(usable_bytes(gpu) * engine.memory_share),
    )


def largest_batch(need: Callable[[int], GenerationMemory], most: int) -> int:
    """The most sequences that fit; 0 where not even one does.

    Args:
        need: Sequences -> the memory that they need, which grows with them.
        most: Sequences to try at most.
    """
    fits, fits_not = 0, most + 1
    while fits_not - fits > 1:
        middle = (fits + fits_not) // 2
        fits, fits_not = (middle, fits_not) if need(middle).fits else (fits, middle)
    return fits


def _activations_bytes(decoder: Decoder, tokens: StepTokens) -> int:
    """Residual, input and output of the widest layer in 16 bits, and logits."""
    widest = max(part.inputs + part.outputs for part, _ in decoder if isinstance(part, Projection))
    inner = max((part.size for part, _ in decoder if isinstance(part, Activation)), default=0)
    words = max(part.vocabulary for part, _ in decoder if isinstance(part, Logits))
    return 2 * tokens.tokens * (2 * decoder.hidden + widest + inner) + tokens.sampled * words * _LOGITS_BYTES
