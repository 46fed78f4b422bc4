"""Time and energy of any step of an engine, looked up in tables that were predicted once.

A step is the sum of three parts that depend on few numbers each: layers other than attention on the tokens of the step,
logits and sampling on the sequences that sample, and attention on the caches that it reads. Each part is predicted on a
grid (`Server.kernels`), at the requested clock and at those to which the power cap may lower it: the cap holds for a
whole step, whose kernels run at one clock. A look-up takes about five microseconds. Steps that only decode are 0.3 %
off steps that are predicted whole in the mean, steps with prompts 0.6 % in time and 0.4 % in joules
(`benchmarks/traffic_steps.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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

_TILE = 64  # Rows of the tiles into which engines' products are cut: of more than _MANY tokens, twice as many.
_MANY = 2048
_LEAST_CHUNK = 16
_PROMPTS = (1, 2, 4, 8, 16, 32)
_OF_TOKENS = ("mul", "copy")  # Kernels of attention that depend on the tokens of a step alone.
_LOWER = 0.88  # Each clock of the tables over the one before.
_FEW = 64  # Least context of a node, and tokens that are added to a prompt's cache before its logarithm is taken.


_Place = tuple[int, float]


class _Tables(NamedTuple):
    """Parts of steps at one clock, without a power cap: pairs of busy seconds and dynamic joules of one board."""

    static_w: float  # Watts of a board that waits
    layers: tuple[list[float], list[float]]  # Layers without attention, by the number of tokens
    logits: tuple[list[float], list[float]]  # Logits and sampling, by the number of sampled tokens
    decoding: tuple[list[list[float]], list[list[float]]]  # Attention of sequences that decode: number, then context
    # Attention of prompts, as logarithms, by logarithms (base 2) of their number, of the tokens of a chunk, and of its
    # earlier tokens + 64.
    reading: tuple[list[list[list[float]]], list[list[list[float]]]]


@dataclass(frozen=True)
class PredictedSteps:
    """Steps of one replica of a served model."""

    tables: tuple[_Tables, ...]  # At clocks from the requested one downwards, as far as the power cap may lower it
    contexts: list[float]  # Contexts of the columns of `decoding`
    gaps_s: list[float]  # Seconds between the kernels of each part, in the order of `_Tables`
    waiting_s: tuple[float, float]  # Seconds in which the GPU waits for the engine: of a step, and for each sequence
    launching_s: float  # Least seconds of a step that reads prompts
    boards: int  # Boards that do the same at the same time
    cap_w: float  # Power cap of a board
    images: Cost = (0.0, 0.0)  # Of reading the images of a prompt
    drafts: int = 0  # Tokens that are drafted for each sequence and verified in each step
    draft: PredictedSteps | None = None  # Steps of the model that drafts them; None where drafting costs nothing
    prompts: PredictedSteps | None = None  # Steps that read prompts, where boards have another clock or cap meanwhile
    factor: float = 1.0  # Seconds of all steps times this, for the same joules

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
        served, gpu = server.deployment, server.gpu
        engine, cap_w = served.engine, gpu.checked_power_limit_w(server.power_limit_w)
        looked = (0.0, 0.0)
        if served.images is not None:
            looked_s, looked_j = server.cost(StepTokens(images=True), [clock_mhz])[:, 0].tolist()
            looked = looked_s, served.parallel.tensor * looked_j
        clocks = [clock_mhz]
        while clocks[-1] > gpu.min_clock_mhz:
            clocks.append(max(clocks[-1] * _LOWER, float(gpu.min_clock_mhz)))
        static_w = np.array([float(static_power_w(gpu, clock)) for clock in clocks])
        within = np.ones(len(clocks), dtype=bool)
        gaps_s: list[float] = []

        def entries(steps: StepTokens, kinds: Callable[[Part], bool]) -> tuple[Entry, ...]:
            parts = tuple(each for each in served.decoder.parts if kinds(each[0]))
            part = replace(served.decoder, parts=parts)
            return tuple(step_network(part, steps, engine, served.precisions, served.parallel))

        def costs(of: Callable[[StepTokens], Iterable[Entry]], steps: Sequence[StepTokens]) -> FloatArray:
            """Busy seconds and dynamic joules, shape (2, steps, clocks)."""
            busy_s, dynamic_j, gap_s = server.kernels({tokens: Network(tuple(of(tokens))) for tokens in steps}, clocks)
            gaps_s.append(gap_s)
            within[:] &= (dynamic_j <= np.maximum(cap_w - static_w, 1.0) * busy_s).all(axis=0)
            return np.array([busy_s, dynamic_j])

        def layers(tokens: StepTokens) -> Iterator[Entry]:
            yield from entries(tokens, lambda part: not attends(part) and not isinstance(part, Logits))
            yield from (each for each in entries(tokens, attends) if each.operation.kind in _OF_TOKENS)

        def attention(tokens: StepTokens) -> Iterator[Entry]:
            return (each for each in entries(tokens, attends) if each.operation.kind not in _OF_TOKENS)

        def dense(nodes: Sequence[int], values: FloatArray) -> FloatArray:
            """Values at 0, 1, ... up to the last node from those at the nodes; nothing costs nothing."""
            return _between(np.arange(nodes[-1] + 1), (0, *nodes), np.insert(values, 0, 0.0, axis=1))

        def attends(part: Part) -> bool:
            return isinstance(part, Attention | LatentAttention | Recurrence)

        last = sequences * (1 + drafts)  # Tokens of all sequences that decode.
        most = max(engine.step_tokens, last)
        # Products are cut into tiles: their time steps up behind multiples of a tile's rows, and of 8 if there are few.
        ends = [*range(_TILE, _MANY + 1, _TILE), *range(_MANY + 2 * _TILE, most + 2 * _TILE, 2 * _TILE)]
        edges = (edge for end in (*range(16, 257, 8), *ends) for edge in (end, end + 1))
        tokens = sorted({*range(1, 17), *edges})
        by_tokens = dense(tokens, costs(layers, [StepTokens(prompts=1, prompt_tokens=count) for count in tokens]))
        sizes = [*(size for size in tokens if size < last), last]
        words = costs(
            lambda tokens: entries(tokens, lambda part: isinstance(part, Logits)),
            [StepTokens(count, 1, sampled=count) for count in sizes],
        )
        contexts = _doubling(_FEW, context, math.sqrt(2))
        batches = sorted({1, 2, 4, sequences, *(size for size in tokens if size < sequences and size % 8 == 0)})
        attended = costs(attention, [StepTokens(count, seen + 1) for count in batches for seen in contexts])
        chunks, earlier = _doubling(_LEAST_CHUNK, most), [seen - _FEW for seen in _doubling(_FEW, 2 * context)]
        prompts = [
            StepTokens(prompts=count, prompt_tokens=size + 1, prompt_cached=seen)
            for count in _PROMPTS
            for size in chunks
            for seen in earlier
        ]
        read = np.log(costs(attention, prompts)).reshape(2, len(_PROMPTS), len(chunks), len(earlier), -1)
        reached = int(np.argmax([*within, True])) + 1  # The first clock at which all parts are within the cap.
        columns = [
            by_tokens,
            dense(sizes, words),
            _between(np.arange(sequences + 1), batches, attended.reshape(2, len(batches), len(contexts), -1)),
            read,
        ]
        return cls(
            tables=tuple(
                _Tables(watts, *(each[..., at].tolist() for each in columns))
                for at, watts in enumerate(static_w[:reached].tolist())
            ),
            contexts=[seen + 1.0 for seen in contexts],
            gaps_s=gaps_s,
            waiting_s=(engine.step_s, engine.sequence_s),
            launching_s=engine.scan_s * served.decoder.scans,
            boards=served.parallel.tensor,
            cap_w=cap_w,
            images=looked,
            drafts=drafts,
            draft=draft,
        )

    @property
    def idle_w(self) -> float:
        """Watts of all boards of a replica that waits."""
        return self.boards * self.tables[0].static_w

    def decode(self, sequences: int, context: float) -> Cost:
        """A step in which sequences decode.

        `context`: Mean number of keys that they attend to, the new one included.
        """
        tokens = sequences * (1 + self.drafts)
        time_s, energy_j = self._step(tokens, tokens, sequences, context, None, self._waiting_s(sequences))
        return self.factor * time_s, energy_j

    def mixed(self, sequences: int, context: float, prompts: int, tokens: int, pairs: float, sampled: int) -> Cost:
        """A step in which sequences decode and prompts are read.

        `context`: Mean number of keys that they attend to.
        `pairs`: Pairs of query and key in the chunks, as if each attended to half of its own chunk.
        """
        if self.prompts is not None:
            return self.prompts.mixed(sequences, context, prompts, tokens, pairs, sampled)
        more, chunk = sequences * self.drafts, tokens / prompts
        seconds = self.tables[0].reading[0]
        places = (
            _place(math.log2(prompts), len(seconds)),
            _place(math.log2(max(chunk - 1, 1.0) / _LEAST_CHUNK), len(seconds[0])),
            _place(math.log2(max(pairs / tokens - chunk / 2, 0.0) / _FEW + 1), len(seconds[0][0])),
        )
        waiting_s = self._waiting_s(sequences + prompts)
        time_s, energy_j = self._step(sequences + more + tokens, sampled + more, sequences, context, places, waiting_s)
        # Images of a prompt count in the step that reads its end. Of prompts that others read, one token is left.
        looking = sampled - sequences if tokens > prompts else 0
        return self.factor * (time_s + looking * self.images[0]), energy_j + looking * self.images[1]

    def _waiting_s(self, sequences: int) -> float:
        return self.waiting_s[0] + self.waiting_s[1] * sequences

    def _step(
        self,
        computed: int,
        sampled: int,
        sequences: int,
        context: float,
        prompts: tuple[_Place, _Place, _Place] | None,
        waiting_s: float,
    ) -> Cost:
        """Seconds and joules of a step on all boards.

        `computed`, `sampled`: Tokens of layers and of logits.
        `sequences`: Sequences that decode.
        `prompts`: Place of the prompts in the tables.
        """
        gaps_s, cap_w = self.gaps_s[0] + self.gaps_s[1], self.cap_w
        if sequences:
            gaps_s += self.gaps_s[2]
            at = min(max(bisect_right(self.contexts, context), 1), len(self.contexts) - 1)
            part = (context - self.contexts[at - 1]) / (self.contexts[at] - self.contexts[at - 1])
        if prompts is not None:
            gaps_s += self.gaps_s[3]
        before: tuple[float, float, float, float] | None = None  # The same at the next higher clock
        # The clock falls until the whole step is within the cap.
        for static_w, layers, logits, decoding, reading in self.tables:
            busy_s, dynamic_j = layers[0][computed] + logits[0][sampled], layers[1][computed] + logits[1][sampled]
            if sequences:
                row = decoding[0][sequences]
                busy_s += row[at - 1] + part * (row[at] - row[at - 1])
                row = decoding[1][sequences]
                dynamic_j += row[at - 1] + part * (row[at] - row[at - 1])
            if prompts is not None:
                busy_s += _read(reading[0], *prompts)
                dynamic_j += _read(reading[1], *prompts)
            demand = dynamic_j / (max(cap_w - static_w, 1.0) * busy_s)
            if demand <= 1:
                break
            before = busy_s, dynamic_j, static_w, demand
        if demand > 1:  # No clock is low enough.
            dynamic_j /= demand
        elif before is not None:  # In between, seconds and joules follow powers of the clock.
            share = math.log(demand) / math.log(demand / before[3])
            busy_s *= (before[0] / busy_s) ** share
            dynamic_j *= (before[1] / dynamic_j) ** share
            static_w *= (before[2] / static_w) ** share
        least_s = 0.0 if prompts is None else self.launching_s
        seconds = max(busy_s + gaps_s, least_s) + waiting_s
        joules = self.boards * (dynamic_j + static_w * seconds)
        if self.draft is not None:
            # It reads the prompts of the step, too, with the first token that it drafts.
            read = computed - sequences * (1 + self.drafts)
            passes = [(1, read, prompts)] if read else []
            if sequences:
                passes.append((self.drafts - len(passes), 0, None))
            for times, tokens, places in passes:
                drafted_s, drafted_j = self.draft._step(sequences + tokens, sequences, sequences, context, places, 0.0)
                seconds, joules = seconds + times * drafted_s, joules + times * drafted_j
        return seconds, joules


def _place(value: float, count: int) -> _Place:
    """The node below a place on an axis of nodes 0, 1, ..., and the share of the way to the next one."""
    below = min(max(int(value), 0), count - 2)
    return below, max(value - below, 0.0)


def _read(table: list[list[list[float]]], prompts: _Place, chunk: _Place, earlier: _Place) -> float:
    """The number whose logarithm stands at a place of a table."""
    (i, u), (j, v), (k, w) = prompts, chunk, earlier
    (a, b), (c, d) = table[i][j : j + 2], table[i + 1][j : j + 2]
    low = (1 - v) * (a[k] + w * (a[k + 1] - a[k])) + v * (b[k] + w * (b[k + 1] - b[k]))
    high = (1 - v) * (c[k] + w * (c[k + 1] - c[k])) + v * (d[k] + w * (d[k + 1] - d[k]))
    return math.exp((1 - u) * low + u * high)


def _between(wanted: Any, nodes: Sequence[int], values: FloatArray) -> FloatArray:
    """Values at numbers between nodes along the second axis, shape (2, nodes, ...) -> (2, wanted, ...)."""
    at = np.clip(np.searchsorted(nodes, wanted), 1, len(nodes) - 1)
    low, high = np.asarray(nodes)[at - 1], np.asarray(nodes)[at]
    share = np.clip((wanted - low) / (high - low), 0.0, 1.0).reshape(-1, *[1] * (values.ndim - 2))
    found: FloatArray = values[:, at - 1] + share * (values[:, at] - values[:, at - 1])
    return found


def _doubling(first: int, last: int, factor: float = 2.0) -> list[int]:
    """Numbers, each a factor above the one before, until they reach the last; at least two."""
    found = [first]
    while found[-1] < last or len(found) < 2:
        found.append(math.ceil(first * factor ** len(found) - 1e-9))
    return list(dict.fromkeys(found))
