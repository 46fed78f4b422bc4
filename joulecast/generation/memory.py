"""Device memory of a served model: its weights, the cache of keys and values, and the activations of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..hardware import GPU
from ..predictors.networks.memory import usable_bytes
from .decoder import Activation, Decoder, Logits, Projection
from .engines import Engine
from .serving import Batching, Load, cycle_of
from .steps import Precisions, StepTokens

CACHED_IN: Mapping[str | None, float] = {None: 2.0, "fp8": 1.0}
"""Precision of keys and values -> bytes of an element."""

STATE_BYTES = 4.0  # Of an element of a recurrent state, in fp32.
_LOGITS_BYTES = 3 * 4  # Logits, probabilities and random numbers of each word in fp32.


@dataclass(frozen=True)
class GenerationMemory:
    """Memory of one GPU by its use.

    Args:
        weights_bytes: Bytes of the weights of the model, or of one GPU's part of it.
        cache_bytes: Bytes of the keys and values of the batch.
        activations_bytes: Bytes of the activations of the largest step.
        usable_bytes: Bytes of the board's memory that the engine may use.
    """

    weights_bytes: int
    cache_bytes: int
    activations_bytes: int
    usable_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of weights, cache and activations in bytes."""
        return self.weights_bytes + self.cache_bytes + self.activations_bytes

    @property
    def fits(self) -> bool:
        """Whether this is no more than the engine may use."""
        return self.total_bytes <= self.usable_bytes

    def to_dict(self) -> dict[str, Any]:
        """The figures as a dictionary."""
        return asdict(self)


def weights_bytes(decoder: Decoder, precisions: Precisions) -> int:
    """Bytes of all weights."""
    return round(
        sum(len(modules) * part.parameters * precisions.element_bytes(part) for part, modules in decoder.weighted)
    )


def cached_bytes(decoder: Decoder, tokens: int, precisions: Precisions) -> float:
    """Bytes of the keys and values of one sequence, of which windows drop the oldest, and of its recurrent states."""
    return STATE_BYTES * decoder.state_elements + sum(
        layers * part.cached_elements * min(tokens, part.window or tokens) * CACHED_IN[precisions.cache]
        for part, layers in decoder.attentions
    )


def generation_memory(
    decoder: Decoder, load: Load, gpu: GPU, engine: Engine, precisions: Precisions, batching: Batching
) -> GenerationMemory:
    """The memory of a GPU that serves a load.

    Raises:
        InputError: More sequences than a step of the engine takes tokens.
    """
    return GenerationMemory(
        weights_bytes=weights_bytes(decoder, precisions),
        cache_bytes=round(load.batch * cached_bytes(decoder, load.cached_tokens(batching), precisions)),
        activations_bytes=activations_bytes(decoder, cycle_of(load, engine, batching).largest.tokens),
        usable_bytes=round(usable_bytes(gpu) * engine.memory_share),
    )


def largest_batch(need: Callable[[int], GenerationMemory], most: int) -> int:
    """The largest number of sequences that fit; 0 if not even one fits.

    `need`: Function from a number of sequences to the memory that they need, which has to grow with the number.
    """
    fits, fits_not = 0, most + 1
    while fits_not - fits > 1:
        middle = (fits + fits_not) // 2
        fits, fits_not = (middle, fits_not) if need(middle).fits else (fits, middle)
    return fits


def activations_bytes(decoder: Decoder, tokens: StepTokens) -> int:
    """Bytes of the residual, of the input and output of the widest layer, all in 16 bits, and of the logits."""
    widest = max(part.inputs + part.outputs for part, _ in decoder if isinstance(part, Projection))
    inner = max((part.size for part, _ in decoder if isinstance(part, Activation)), default=0)
    words = max(part.vocabulary for part, _ in decoder if isinstance(part, Logits))
    return 2 * tokens.tokens * (2 * decoder.hidden + widest + inner) + tokens.sampled * words * _LOGITS_BYTES
