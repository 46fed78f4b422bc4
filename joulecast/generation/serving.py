"""The steps in which an engine serves a batch: continuous batching in its steady state, and static batching.

Continuous batching (Yu et al., Orca, OSDI 2022): when a sequence ends, the next prompt takes its place at once. So the
batch stays full, its sequences are at all positions of their outputs, and prompts are read in the same steps in which
other sequences decode. A prompt that does not fit into one step is read in pieces ("chunked prefill"; Agrawal et al.,
Sarathi, arXiv 2308.16369). The model describes one cycle, in which as many requests begin and end as the batch has
sequences:

- Each request takes part in one step for each piece of its prompt, the last of which gives the first token, and in one
  step for each further token. A step in which k of the B sequences read a piece of their prompt is one in which a
  sequence decodes with a probability of 1 - k / B: time per output token contains the prompts of the other requests,
  but not the request's own, which is a part of the time to its first token.
- Prompts arrive evenly, so each step reads k or k + 1 pieces, where k is the integer part of the mean.
- Running sequences attend on average to their prompt and what they have written: half of their output if all are
  equally long, and more if lengths vary, because long ones run longer (`Load.of`).
- If the tokens of all requests do not fit into these steps, the cycle has as many full steps as they need, in which
  fewer sequences decode. Requests then wait for their first token until there is room for their prompt.

A request is in the batch for one cycle (Little's law: the batch is the rate of requests times their latency). So time
to first token + (tokens - 1) x time per output token = latency = the time of a cycle.

Static batching reads all prompts first, and then decodes all sequences to their end, while their caches grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..arrays import FloatArray
from ..checked import is_number
from ..errors import InputError
from ..operations.inputs import require_positive_integer
from .engines import Engine
from .steps import StepTokens

Tokens = int | Sequence[float]
"""Tokens of a prompt or output: an int, a pair (mean, standard deviation), or an array of lengths."""


@dataclass(frozen=True)
class Lengths:
    """How many tokens requests have."""

    mean: float
    deviation: float  # Standard deviation of the number of tokens
    longest: float  # The largest number of tokens, or the mean if only mean and deviation are known

    @classmethod
    def of(cls, name: str, value: Any) -> Lengths:
        """Lengths as users give them.

        `value`: A positive integer; a list or tuple of two numbers, which are mean and standard deviation; or an
        array, or a longer list, of the lengths of requests.
        """
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
            require_positive_integer(name, int(value) if isinstance(value, np.integer) else value)
            return cls(int(value), 0.0, int(value))
        items = list(value.ravel()) if isinstance(value, np.ndarray) else list(value)
        is_pair = len(items) == 2 and not isinstance(value, np.ndarray)
        are_numbers = bool(items) and all(is_number(each) and math.isfinite(each) for each in items)
        if not are_numbers or (items[0] if is_pair else min(items)) < 1 or min(items) < 0:
            raise InputError(
                f"{name} has no such lengths",
                given=repr(value)[:100],
                allowed="a positive integer; a mean of at least 1 and a standard deviation of at least 0; or an array "
                "of lengths of at least 1",
                hint="give one number such as 512, two such as 650, 610, or the length of each request",
            )
        if is_pair:
            return cls(float(items[0]), float(items[1]), float(items[0]))
        return cls(float(np.mean(items)), float(np.std(items)), float(max(items)))

    def plus(self, tokens: int) -> Lengths:
        """Requests that are longer by as many tokens each."""
        return replace(self, mean=self.mean + tokens, longest=self.longest + tokens)

    @property
    def lengthened(self) -> float:
        """Mean length as a token of all requests sees it: E[L^2] / E[L], as longer ones have more tokens."""
        return self.mean + self.deviation**2 / self.mean


Batching = Literal["continuous", "static"]
BATCHINGS: tuple[Batching, ...] = ("continuous", "static")

_NONE = 1e-9  # Fewer steps than this are none.


@dataclass(frozen=True)
class Load:
    """Requests that run at the same time."""

    batch: int  # Number of sequences that run at a time
    prompt_tokens: int  # Mean number of tokens of a prompt
    output_tokens: float  # Mean number of tokens that are generated for a prompt
    # Mean number of tokens that a running sequence has written; None if all outputs are equally long.
    seen_tokens: float | None = None
    prompt_deviation: float = 0.0  # Standard deviation of the tokens of prompts

    def __post_init__(self) -> None:
        require_positive_integer("batch", self.batch)

    @classmethod
    def of(cls, batch: int, prompt: Lengths, output: Lengths) -> Load:
        """Requests with lengths that differ.

        A sequence runs as long as its output is, so among running sequences long outputs are more frequent: they have
        written E[L^2] / (2 E[L]) tokens on average, which is half of the mean only if all are equally long.
        """
        seen = output.lengthened / 2 if output.deviation else None
        return cls(batch, round(prompt.mean), output.mean, seen, prompt.deviation)

    @property
    def cached_tokens(self) -> int:
        """Tokens of a sequence in the cache, on average over its output."""
        return self.prompt_tokens + math.ceil(self._written)

    def held_tokens(self, batching: Batching) -> int:
        """Tokens of a sequence in the cache when those of all are most: at the end of one, or in a static batch of all.

        Sequences of a continuous batch are at all positions of their outputs, evenly.
        """
        most = self.output_tokens if batching == "static" else self._written * (1 + 1 / self.batch)
        return self.prompt_tokens + math.ceil(most)

    @property
    def _written(self) -> float:
        return self.seen_tokens or self.output_tokens / 2


@dataclass(frozen=True)
class Steps:
    """Equal steps of a cycle; their numbers are not always whole."""

    tokens: StepTokens  # Tokens of each of these steps
    count: float  # Number of these steps in a cycle
    first: float = 0.0  # How many of them lie between the moment at which a request joins the batch and its first token
    further: float = 0.0  # How many lie between one token of a request and its next one, as a mean


Cycle = tuple[Steps, ...]
"""The steps in which a batch of requests is served."""


@dataclass(frozen=True)
class _Pieces:
    """How prompts are cut into pieces."""

    size: int
    each: int  # Number of pieces of a prompt
    most: int  # Largest number of pieces in a step

    @classmethod
    def of(cls, load: Load, room: int) -> _Pieces:
        each = math.ceil(load.prompt_tokens / room)
        size = math.ceil(load.prompt_tokens / each)
        return cls(size, each, max(1, room // size))

    @classmethod
    def filling(cls, load: Load, read: float) -> _Pieces:
        """Pieces that fill the room for prompts in a step."""
        most = max(1, math.floor(read / load.prompt_tokens))
        size = max(1, math.floor(read / most))
        return cls(size, max(1, round(load.prompt_tokens / size)), most)

    def tokens(self, count: int, decoding: int, cached: int) -> StepTokens:
        """A step that reads `count` pieces while `decoding` sequences with `cached` tokens decode."""
        return StepTokens(
            decoding=decoding,
            cached=cached if decoding else 0,
            prompts=count,
            prompt_tokens=self.size if count else 0,
            prompt_cached=self.size * (self.each - 1) // 2 if count else 0,
            sampled=decoding + math.ceil(count / self.each),
        )


def cycle_of(load: Load, engine: Engine, batching: Batching) -> Cycle:
    """The steps in which an engine serves a load."""
    if load.batch >= engine.step_tokens:
        raise InputError(
            f"the batch has more sequences than {engine.name} computes tokens in a step",
            given=f"batch {load.batch}",
            allowed=f"below {engine.step_tokens}",
            hint='use several replicas, such as gpu="2x H100 SXM"',
        )
    return _continuous(load, engine) if batching == "continuous" else _static(load, engine)


def _continuous(load: Load, engine: Engine) -> Cycle:
    batch, further = load.batch, load.output_tokens - 1
    pieces = _Pieces.of(load, engine.step_tokens - batch)
    cached = load.cached_tokens
    steps = float(further + pieces.each)
    full = batch * (load.prompt_tokens + further) / engine.step_tokens
    mean = batch * pieces.each / steps
    if full > steps or mean > pieces.most:
        return _full(load, max(full, steps), cached)
    fewer = min(math.floor(mean), pieces.most - 1)
    kinds = {fewer: steps * (fewer + 1 - mean), fewer + 1: steps * (mean - fewer)}
    return tuple(
        Steps(
            pieces.tokens(reading, batch - reading, cached),
            count,
            reading / batch * count,
            (1 - reading / batch) * count / further if further else 0.0,
        )
        for reading, count in kinds.items()
        if count > _NONE
    )


def _full(load: Load, steps: float, cached: int) -> Cycle:
    """A cycle of full steps. Prompts are cut wherever a step ends, so their pieces fill the room in the steps."""
    further = load.output_tokens - 1
    pieces = _Pieces.filling(load, load.batch * load.prompt_tokens / steps)
    tokens = pieces.tokens(pieces.most, math.ceil(load.batch * further / steps), cached)
    return (Steps(tokens, steps, steps - further, 1.0 if further else 0.0),)


def in_lockstep(cycle: Cycle, load: Load, ranks: int, most: int) -> Cycle:
    """The cycle of GPUs with sequences of their own that share experts, each of which computes as much as the busiest.

    vLLM pads the tokens of all ranks to the largest number of any of them (`get_dp_padding` of 0.11), so that a step in
    which one of them reads a prompt takes as long, and as many joules, as if all read the longest of their prompts.
    That is one deviation longer than the mean for each unit by which the harmonic number of the prompts is above one,
    as among lengths that are exponentially distributed.

    `ranks`: Number of these GPUs; whether one of them reads does not depend on the others.
    `most`: Largest number of tokens in a step.
    """
    reading = [each for each in cycle if each.tokens.prompts]
    if not reading:
        return cycle
    share = sum(each.count for each in reading) / sum(each.count for each in cycle)
    others = 1 - (1 - share) ** (ranks - 1)
    # Further prompts in a step that reads one: the probability of each number, and the deviations that it adds.
    beside = [
        (math.comb(ranks - 1, n) * share**n * (1 - share) ** (ranks - 1 - n), sum(1 / k for k in range(2, n + 2)))
        for n in range(ranks)
    ]
    longer = load.prompt_deviation * sum(chance * deviations for chance, deviations in beside)

    def lengthened(tokens: StepTokens) -> StepTokens:
        room = (most - tokens.decoding) // max(1, tokens.prompts)
        size = max(tokens.prompt_tokens, min(room, round(tokens.prompt_tokens + longer)))
        return replace(tokens, prompt_tokens=size) if tokens.prompts else tokens

    kinds: dict[StepTokens, FloatArray] = {}
    for each in cycle:
        counts = np.array([each.count, each.first, each.further])
        waiting = 0 * counts if each.tokens.prompts else others * counts
        for found, some in ((each.tokens, counts - waiting), (reading[0].tokens, waiting)):
            tokens = lengthened(found)
            kinds[tokens] = kinds.get(tokens, 0) + some
    return tuple(Steps(tokens, *counts.tolist()) for tokens, counts in kinds.items() if counts[0] > _NONE)


def with_images(cycle: Cycle, load: Load, batching: Batching) -> Cycle:
    """The cycle of a load with images in each prompt, which are read before the step that reads the prompt.

    A request waits for its own images and for those of prompts that begin before its first token, as many as its share
    of the steps says; between its further tokens, it waits for those of all others.
    """
    further = load.output_tokens - 1
    before = load.batch * sum(each.first for each in cycle) / sum(each.count for each in cycle)
    first = max(1.0, before) if further and batching == "continuous" else float(load.batch)
    between = (load.batch - first) / further if further else 0.0
    return (*cycle, Steps(StepTokens(images=True), load.batch, first, between))


def _static(load: Load, engine: Engine) -> Cycle:
    pieces = _Pieces.of(load, engine.step_tokens)
    at_once = min(load.batch, pieces.most)
    count, further = load.batch * pieces.each / at_once, load.output_tokens - 1
    reading = Steps(pieces.tokens(at_once, 0, 0), count, count)
    if not further:
        return (reading,)
    # The time of a step is nearly linear in the length of the cache, so all are as the one in the middle of the output.
    middle = StepTokens(load.batch, load.prompt_tokens + 1 + round((further - 1) / 2), sampled=load.batch)
    return reading, Steps(middle, further, 0.0, 1.0)
