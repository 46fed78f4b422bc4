"""Which steps an engine takes to serve a batch: continuous batching in its steady state, and static batching.

Continuous batching (Yu et al., Orca, OSDI 2022): a sequence that ends makes room for the next prompt at once, so the
batch stays full, its sequences stand at all places of their output, and prompts are read beside sequences that decode.
A prompt that is longer than what a step has room for is read in pieces (Agrawal et al., Sarathi, arXiv 2308.16369).
The model looks at a cycle, in which as many requests begin and end as the batch has sequences:

- each request takes part in as many steps as its prompt has pieces, the last of which gives the first token, and one
  more for each further token;
- prompts arrive evenly, so steps read k or k + 1 pieces, with k the integer part of the mean;
- running sequences see on average their prompt and half of their output;
- where the pieces of all requests do not fit into these steps, the cycle has more of them, and fewer sequences decode.

Static batching reads all prompts, then decodes all sequences to their end, with caches that grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import InputError
from .engines import Engine
from .steps import StepTokens

Batching = Literal["continuous", "static"]
BATCHINGS: tuple[Batching, ...] = ("continuous", "static")

# Simpson's rule over the output: attention's time bends little while a cache grows.
_SIMPSON = ((0.0, 1 / 6), (0.5, 4 / 6), (1.0, 1 / 6))


@dataclass(frozen=True)
class Load:
    """What is asked of an engine.

    Args:
        batch: Sequences at a time.
        prompt_tokens: Tokens of each prompt.
        output_tokens: Tokens that are written for each.
    """

    batch: int
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name in ("batch", "prompt_tokens", "output_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} is a positive integer", given=repr(value)[:100])

    def cached_tokens(self, batching: Batching) -> int:
        """Tokens that a sequence has in the cache: on average while it is written, or in a static batch at its end."""
        written = self.output_tokens if batching == "static" else math.ceil(self.output_tokens / 2)
        return self.prompt_tokens + written


@dataclass(frozen=True)
class Steps:
    """Steps of a cycle that are alike.

    Args:
        tokens: What each of them works on.
        count: How many there are in a cycle; not always a whole number.
    """

    tokens: StepTokens
    count: float


@dataclass(frozen=True)
class Cycle:
    """The steps in which a batch of requests is served.

    Args:
        steps: Steps by what they work on.
        first_token: Steps that a request waits for its first token, of these kinds and counts; in continuous batching
            half a mean step more, because it arrives in the middle of one.
        next_tokens: Steps between its first and last token, over all tokens after the first.
    """

    steps: tuple[Steps, ...]
    first_token: tuple[Steps, ...]
    next_tokens: tuple[Steps, ...]

    @property
    def largest(self) -> Steps:
        """The steps with most tokens."""
        return max(self.steps, key=lambda each: each.tokens.tokens)


@dataclass(frozen=True)
class _Pieces:
    """How prompts are cut into pieces.

    Args:
        size: Tokens of a piece.
        each: Pieces of a prompt.
        most: Pieces that a step has room for.
    """

    size: int
    each: int
    most: int

    @classmethod
    def of(cls, load: Load, room: int) -> _Pieces:
        each = math.ceil(load.prompt_tokens / room)
        size = math.ceil(load.prompt_tokens / each)
        return cls(size, each, max(1, room // size))

    def tokens(self, count: int, decoding: int, cached: int) -> StepTokens:
        """A step that reads so many pieces."""
        return StepTokens(
            decoding=decoding,
            cached=cached if decoding else 0,
            prompts=count,
            prompt_tokens=self.size if count else 0,
            prompt_cached=self.size * (self.each - 1) // 2 if count else 0,
            sampled=decoding + math.ceil(count / self.each),
        )


def cycle_of(load: Load, engine: Engine, batching: Batching) -> Cycle:
    """The steps in which an engine serves a load.

    Raises:
        InputError: More sequences than a step of the engine takes tokens.
    """
    if load.batch >= engine.step_tokens:
        raise InputError(
            f"a step of {engine.name} takes fewer tokens than the batch has sequences",
            given=f"batch {load.batch}",
            allowed=f"below {engine.step_tokens}",
            hint="serve it by several replicas",
        )
    return _continuous(load, engine) if batching == "continuous" else _static(load, engine)


def _continuous(load: Load, engine: Engine) -> Cycle:
    batch = load.batch
    pieces = _Pieces.of(load, engine.step_tokens - batch)
    steps = max(load.output_tokens - 1 + pieces.each, batch * pieces.each / pieces.most)
    mean = batch * pieces.each / steps
    decoding = batch * (load.output_tokens - 1) / steps
    cached = load.cached_tokens("continuous")
    fewer = min(math.floor(mean), pieces.most - 1)

    def of(count: int) -> StepTokens:
        return pieces.tokens(count, math.ceil(decoding), cached)

    without, with_one_more = Steps(of(fewer), steps * (fewer + 1 - mean)), Steps(of(fewer + 1), steps * (mean - fewer))
    all_steps = tuple(each for each in (without, with_one_more) if each.count > 1e-9)
    waiting = tuple(Steps(each.tokens, 0.5 * each.count / steps) for each in all_steps)
    return Cycle(
        steps=all_steps,
        first_token=(*waiting, Steps(with_one_more.tokens, float(pieces.each))),
        next_tokens=tuple(Steps(each.tokens, each.count / steps) for each in all_steps),
    )


def _static(load: Load, engine: Engine) -> Cycle:
    pieces = _Pieces.of(load, engine.step_tokens)
    at_once = min(load.batch, pieces.most)
    reading = Steps(pieces.tokens(at_once, 0, 0), load.batch * pieces.each / at_once)
    decoding = tuple(_growing(load))
    further = load.output_tokens - 1
    return Cycle(
        steps=(reading, *decoding),
        first_token=(reading,),
        next_tokens=tuple(Steps(each.tokens, each.count / further) for each in decoding),
    )


def _growing(load: Load) -> Iterator[Steps]:
    """Steps of decoding, at the beginning, middle and end of the output."""
    further = load.output_tokens - 1
    for place, weight in _SIMPSON if further else ():
        cached = load.prompt_tokens + 1 + round(place * (further - 1))
        yield Steps(StepTokens(load.batch, cached, sampled=load.batch), weight * further)
