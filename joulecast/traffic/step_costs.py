"""Time and energy of any step of an engine, looked up in tables that were predicted once.

A step is the sum of three parts that depend on few numbers each: layers other than attention on the tokens of the step,
logits and sampling on the sequences that sample, and attention on the caches that it reads. Each part is predicted on a
grid (`Server`), and a look-up takes about a microsecond. Steps that only decode are 0.3 % off steps that are predicted
whole in the mean, steps with prompts 1.2 % (`tests/traffic/test_step_costs.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ..arrays import FloatArray
from ..generation.decoder import Attention, LatentAttention, Logits, Part, Recurrence
from ..generation.server import Server
from ..generation.steps import StepTokens, step_network
from ..operations.entry import Entry
from ..operations.network import Network
from ..predictors.physics.energy import static_power_w

Cost = tuple[float, float]
"""Seconds and joules."""

_TILE = 128  # Rows of the tiles into which engines' products are cut.
_LEAST_CHUNK = 16
_PROMPTS = (1, 2, 4, 8, 16, 32)
_OF_TOKENS = ("mul", "copy")  # Kernels of attention that depend on the tokens of a step alone.
_FEW = 64  # Least context of a node, and tokens that are added to a prompt's cache before its logarithm is taken.


class StepCosts(Protocol):
    """What the scheduler asks about steps."""

    @property
    def idle_w(self) -> float:
        """Watts of all boards of a replica that waits."""

    def decode(self, sequences: int, context: float) -> Cost:
        """A step in which sequences decode.

        `context`: Mean number of keys that they attend to, the new one included.
        """

    def mixed(self, sequences: int, context: float, prompts: int, tokens: int, pairs: float, sampled: int) -> Cost:
        """A step in which sequences decode and prompts are read.

        `context`: Mean number of keys that they attend to.
        `pairs`: Pairs of query and key in the chunks, as if each attended to half of its own chunk.
        """


@dataclass(frozen=True)
class OtherSteps:
    """Steps of a replica whose boards have another clock or cap while they read prompts, or which take longer."""

    decoding: StepCosts  # Steps in which sequences decode and no prompt is read
    reading: StepCosts
    factor: float = 1.0  # Seconds of all steps times this, for the same joules

    @property
    def idle_w(self) -> float:
        """See `StepCosts`."""
        return self.decoding.idle_w

    def decode(self, sequences: int, context: float) -> Cost:
        """See `StepCosts`."""
        seconds, joules = self.decoding.decode(sequences, context)
        return self.factor * seconds, joules

    def mixed(self, *sizes: Any) -> Cost:
        """See `StepCosts`."""
        seconds, joules = self.reading.mixed(*sizes)
        return self.factor * seconds, joules


@dataclass(frozen=True)
class PredictedSteps:
    """Steps of one replica of a served model."""

    layers: tuple[list[float], list[float]]  # Seconds and joules of layers without attention, by the number of tokens
    logits: tuple[list[float], list[float]]  # The same of logits and sampling, by the number of sampled tokens
    contexts: list[float]  # Contexts of the columns of `decoding`
    padded: list[int]  # Sequences that a step computes in which a number of sequences decode and no prompt is read
    # Seconds and joules of attention of decoding sequences, by their number, then context.
    decoding: tuple[list[list[float]], list[list[float]]]
    # Logarithms of seconds and joules of attention of prompts, by logarithms (base 2) of their number, of the tokens of
    # a chunk, and of its earlier tokens + 64.
    reading: tuple[list[list[list[float]]], list[list[list[float]]]]
    # Seconds in which the GPU waits for the engine: of a step, for each sequence, and more if it reads prompts.
    waiting_s: tuple[float, float, float]
    idle_w: float  # Watts of all boards that wait
    cap_w: float  # Power cap of all boards
    drafts: int = 0  # Tokens that are drafted for each sequence and verified in each step
    draft: PredictedSteps | None = None  # Steps of the model that drafts them; None where drafting costs nothing

    @classmethod
    def of(
        cls,
        server: Server,
        clock_mhz: float,
        sequences: int,
        context: int,
        drafts: int = 0,
        draft: PredictedSteps | None = None,
    ) -> PredictedSteps:
        """Predict the tables.

        `draft`: Steps of the model that drafts them; None where drafting costs nothing.
        """
        served = server.deployment
        engine, boards = served.engine, served.parallel.tensor

        def entries(steps: StepTokens, kinds: Callable[[Part], bool]) -> tuple[Entry, ...]:
            parts = tuple(each for each in served.decoder.parts if kinds(each[0]))
            # Steps with prompts do not pad the attention of sequences that decode.
            exact = replace(engine, captured=())
            return tuple(
                step_network(replace(served.decoder, parts=parts), steps, exact, served.precisions, served.parallel)
            )

        def costs(of: Callable[[StepTokens], Iterable[Entry]], steps: Sequence[StepTokens]) -> list[FloatArray]:
            time_s, energy_j = server.kernels({tokens: Network(tuple(of(tokens))) for tokens in steps}, clock_mhz)
            return [time_s, boards * energy_j]

        def layers(tokens: StepTokens) -> Iterator[Entry]:
            yield from entries(tokens, lambda part: not attends(part) and not isinstance(part, Logits))
            yield from (each for each in entries(tokens, attends) if each.operation.kind in _OF_TOKENS)

        def attention(tokens: StepTokens) -> Iterator[Entry]:
            return (each for each in entries(tokens, attends) if each.operation.kind not in _OF_TOKENS)

        def dense(nodes: Sequence[int], values: FloatArray, count: int) -> list[float]:
            found: list[float] = np.interp(np.arange(count + 1), (0, *nodes), (0.0, *values)).tolist()
            return found

        def edges(tile: int) -> tuple[int, ...]:
            return *range(tile + 1, tile + _TILE, _TILE // 4), tile + _TILE

        def attends(part: Part) -> bool:
            return isinstance(part, Attention | LatentAttention | Recurrence)

        last = sequences * (1 + drafts)  # Tokens of all sequences that decode.
        most = max(engine.step_tokens, last)
        captured = [size for size in engine.captured if size <= most]
        # Products of more tokens are cut into tiles: their time steps up at multiples of a tile's rows.
        tiles = range(captured[-1] // _TILE * _TILE if captured else 0, most, _TILE)
        tokens = [*captured, *(edge for tile in tiles for edge in (tile + 1, tile + _TILE) if edge not in captured)]
        steps = [StepTokens(prompts=1, prompt_tokens=count) for count in tokens]
        every = costs(layers, steps)
        place = np.searchsorted(captured, np.arange(most + 1)).tolist()
        padded = [captured[at] if at < len(captured) else count for count, at in enumerate(place)]
        by_tokens = [dense(tokens, each, tokens[-1]) for each in every]
        sizes = _doubling(1, padded[last])
        words = costs(
            lambda tokens: entries(tokens, lambda part: isinstance(part, Logits)),
            [StepTokens(count, 1, sampled=count) for count in sizes],
        )
        contexts = _doubling(_FEW, context, math.sqrt(2))
        batches = [size for size in captured if size < sequences] + _doubling(padded[sequences], padded[sequences])
        attended = costs(attention, [StepTokens(count, seen + 1) for count in batches for seen in contexts])
        rows = [
            [
                np.interp(np.arange(padded[sequences] + 1), batches, column)
                for column in each.reshape(len(batches), -1).T
            ]
            for each in attended
        ]
        chunks, earlier = _doubling(_LEAST_CHUNK, most), [seen - _FEW for seen in _doubling(_FEW, 2 * context)]
        prompts = [
            StepTokens(prompts=count, prompt_tokens=size + 1, prompt_cached=seen)
            for count in _PROMPTS
            for size in chunks
            for seen in earlier
        ]
        read = [np.log(each).reshape(len(_PROMPTS), len(chunks), -1).tolist() for each in costs(attention, prompts)]
        return cls(
            layers=_pair(each if not engine.pads_prompts else [each[count] for count in padded] for each in by_tokens),
            logits=_pair(dense(sizes, each, padded[last]) for each in words),
            contexts=[seen + 1.0 for seen in contexts],
            padded=padded[: last + 1],
            decoding=_pair(np.transpose(each).tolist() for each in rows),
            reading=_pair(read),
            waiting_s=(engine.step_s, engine.sequence_s, engine.scan_s * served.decoder.scans),
            idle_w=boards * float(static_power_w(server.gpu, clock_mhz)),
            cap_w=boards * server.gpu.checked_power_limit_w(server.power_limit_w),
            drafts=drafts,
            draft=draft,
        )

    def decode(self, sequences: int, context: float) -> Cost:
        """See `StepCosts`."""
        computed = self.padded[sequences * (1 + self.drafts)]
        attention = self._decoding(max(computed // (1 + self.drafts), sequences), context)
        return self._waiting(self._kernels(attention, computed, computed, sequences, context), sequences)

    def mixed(self, sequences: int, context: float, prompts: int, tokens: int, pairs: float, sampled: int) -> Cost:
        """See `StepCosts`."""
        read = self._reading(prompts, tokens, pairs)
        if sequences:
            seconds, joules = self._decoding(sequences, context)
            read = read[0] + seconds, read[1] + joules
        more = sequences * self.drafts
        kernels = self._kernels(read, sequences + more + tokens, sampled + more, sequences, context)
        return self._waiting(kernels, sequences + prompts, self.waiting_s[2])

    def _kernels(self, attention: Cost, tokens: int, sampled: int, sequences: int, context: float) -> Cost:
        seconds = attention[0] + self.layers[0][tokens] + self.logits[0][sampled]
        joules = min(attention[1] + self.layers[1][tokens] + self.logits[1][sampled], self.cap_w * seconds)
        if self.draft is not None and sequences:
            computed = self.draft.padded[sequences]
            drafted = self.draft._kernels(self.draft._decoding(computed, context), computed, computed, 0, 0.0)
            return seconds + self.drafts * drafted[0], joules + self.drafts * drafted[1]
        return seconds, joules

    def _waiting(self, kernels: Cost, sequences: int, more_s: float = 0.0) -> Cost:
        waiting_s = self.waiting_s[0] + self.waiting_s[1] * sequences + more_s
        return kernels[0] + waiting_s, kernels[1] + self.idle_w * waiting_s

    def _decoding(self, sequences: int, context: float) -> Cost:
        at = min(max(bisect_right(self.contexts, context), 1), len(self.contexts) - 1)
        low, high = self.contexts[at - 1], self.contexts[at]
        share = (context - low) / (high - low)
        seconds, joules = self.decoding[0][sequences], self.decoding[1][sequences]
        return (
            seconds[at - 1] + share * (seconds[at] - seconds[at - 1]),
            joules[at - 1] + share * (joules[at] - joules[at - 1]),
        )

    def _reading(self, prompts: int, tokens: int, pairs: float) -> Cost:
        chunk = tokens / prompts
        earlier = max(pairs / tokens - chunk / 2, 0.0)
        seconds, joules = self.reading
        i, u = _place(math.log2(prompts), len(seconds))
        j, v = _place(math.log2(max(chunk - 1, 1.0) / _LEAST_CHUNK), len(seconds[0]))
        k, w = _place(math.log2(earlier / _FEW + 1), len(seconds[0][0]))

        def at(table: list[list[list[float]]]) -> float:
            (a, b), (c, d) = table[i][j : j + 2], table[i + 1][j : j + 2]
            low = (1 - v) * (a[k] + w * (a[k + 1] - a[k])) + v * (b[k] + w * (b[k + 1] - b[k]))
            high = (1 - v) * (c[k] + w * (c[k + 1] - c[k])) + v * (d[k] + w * (d[k + 1] - d[k]))
            return math.exp((1 - u) * low + u * high)

        return at(seconds), at(joules)


def _place(value: float, count: int) -> tuple[int, float]:
    """The node below a place on an axis of nodes 0, 1, ..., and the share of the way to the next one."""
    below = min(max(int(value), 0), count - 2)
    return below, max(value - below, 0.0)


def _doubling(first: int, last: int, factor: float = 2.0) -> list[int]:
    """Numbers, each a factor above the one before, until they reach the last; at least two."""
    found = [first]
    while found[-1] < last or len(found) < 2:
        found.append(math.ceil(first * factor ** len(found) - 1e-9))
    return list(dict.fromkeys(found))


def _pair(values: Iterable[Any]) -> tuple[Any, Any]:
    seconds, joules = values
    return seconds, joules
