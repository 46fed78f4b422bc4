"""One replica of an engine that serves requests: continuous batching, replayed over predicted steps.

The scheduler is vLLM's (version 1 of its engine): every step decodes one token of each running sequence, and fills what
is left of its tokens with prompts in the order of arrival, cut into chunks. A sequence whose cache no longer fits takes
the place of the youngest one, which is computed again later (preemption by recomputing). Between two events, in which
a request arrives, begins or ends, all steps are alike but for one more key of each sequence, so they are added up in
one jump. All work for a request is a few look-ups, whatever the number of sequences beside it.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from .step_costs import PredictedSteps

_JUMP = 512  # Most steps that are added up at the context in their middle.


@dataclass(frozen=True)
class Cache:
    """Memory for keys and values of one replica, in tokens."""

    tokens: float  # Tokens that fit, in bytes of a token of all layers
    # Share of the bytes of a long sequence's token that some layers keep, and the window of these layers in tokens
    # (infinite without one); shares add up to 1.
    layers: tuple[tuple[float, float], ...] = ((1.0, math.inf),)
    block: int = 16  # Tokens of a block; half of one is lost at the end of each sequence, on average

    def used(self, sequences: int, tokens: float) -> float:
        """Tokens that sequences take. No less than their sum where windows drop old ones, as all are taken equal."""
        if len(self.layers) == 1 and self.layers[0][1] >= tokens:
            return tokens + sequences * self.block / 2
        mean = tokens / max(sequences, 1) + self.block / 2
        return sequences * sum(share * min(mean, window) for share, window in self.layers)


@dataclass(frozen=True)
class Limits:
    """What a step of the engine may contain."""

    sequences: int  # Largest number of running sequences
    tokens: int  # Largest number of tokens of a step
    cached_share: float = 0.0  # Share of each prompt that the prefix cache holds
    # Tokens that a step computes for each sequence that decodes, more than 1 where a draft is checked.
    step_tokens: int = 1
    tokens_per_step: float = 1.0  # Tokens that a sequence gets in a step, on average
    # Whether sequences that decode wait while prompts are read, and do not share steps with them.
    prompts_first: bool = False


class Log:
    """What a replica did: an entry for each jump of equal steps, and one for each time without work.

    It has a column for the start in seconds, seconds, steps (0 while it waits for requests), sequences that decoded,
    tokens of prompts, prompts that were completed, joules, tokens in the cache, requests that waited, joules of the
    sequences that decoded, and sequences that waited for the prompts of others.
    """

    NAMES = (
        *("start_s", "time_s", "steps", "decoding", "prompt_tokens", "completed", "energy_j", "cached", "waiting"),
        *("decoding_j", "stalled"),
    )

    def __init__(self) -> None:
        """An empty log."""
        self._columns = tuple(array("d") for _ in self.NAMES)

    def add(self, *values: float) -> None:
        """Add an entry with a value for each column."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """Name of a column -> its values, shape (entries,)."""
        return {name: np.array(column) for name, column in zip(self.NAMES, self._columns, strict=True)}


@dataclass
class Requests:
    """All requests and what became of them; a request is an index into these lists.

    Attributes:
        arrival_s, prompt, output: Seconds of arrival, tokens of the prompt, tokens to generate.
        first_s, end_s: Seconds at the first and the last token; NaN until then.
        energy_j: Joules of its share of the steps that it took part in.
        preempted: How often it was put back.
        prefix, shared: The group of requests whose prompts begin alike, -1 for none, and how many tokens do.
    """

    arrival_s: array[float] = field(default_factory=lambda: array("d"))
    prompt: array[int] = field(default_factory=lambda: array("q"))
    output: array[int] = field(default_factory=lambda: array("q"))
    first_s: array[float] = field(default_factory=lambda: array("d"))
    end_s: array[float] = field(default_factory=lambda: array("d"))
    energy_j: array[float] = field(default_factory=lambda: array("d"))
    preempted: array[int] = field(default_factory=lambda: array("q"))
    prefix: array[int] = field(default_factory=lambda: array("q"))
    shared: array[int] = field(default_factory=lambda: array("q"))

    def add(self, arrival_s: float, prompt: int, output: int, prefix: int = -1, shared: int = 0) -> int:
        """Add a request, and return its index."""
        self.arrival_s.append(arrival_s)
        for column, value in (
            *((self.prompt, prompt), (self.output, output), (self.preempted, 0)),
            *((self.prefix, prefix), (self.shared, shared)),
        ):
            column.append(value)
        for seconds in (self.first_s, self.end_s):
            seconds.append(math.nan)
        self.energy_j.append(0.0)
        return len(self.arrival_s) - 1


@dataclass(slots=True)
class _Reading:
    """A prompt that is being read: its request, all of its tokens, and those that are in the cache."""

    request: int
    whole: int
    done: int


class _Decoding(NamedTuple):
    """A sequence that decodes: steps of its last token and at its begin, tokens and joules of a sequence then."""

    end: int
    begin: int
    whole: int
    each_j: float


class Replica:
    """A replica with its queue. Requests have to be added in the order of their arrival."""

    def __init__(
        self,
        costs: PredictedSteps,
        cache: Cache,
        limits: Limits,
        requests: Requests,
        ended: Callable[[Replica, float], None] = lambda replica, now: None,
    ) -> None:
        """A replica without requests.

        `ended`: Called at the end of each request with the time; it may add a request.
        """
        self.costs, self.cache, self.limits, self.requests, self.ended = costs, cache, limits, requests, ended
        self.log = Log()
        self.now = 0.0
        self.waiting: deque[int] = deque()
        self._reading: deque[_Reading] = deque()
        self._read = 0  # Tokens of prompts in the cache that are not read to their end.
        self._decoding: dict[int, _Decoding] = {}
        self._ends: list[tuple[int, int]] = []  # Heap: step of the last token, request; some were put back since.
        self._began: list[int] = []  # Requests in the order in which they began to decode; some have ended.
        self._written: dict[int, int] = {}  # Request that was put back -> tokens that it has generated.
        self._step = 0
        self._context = 0.0  # Tokens in the cache of the sequences that decode.
        self._each_j = 0.0  # Joules of a sequence that has decoded since the beginning.
        self._prefixes: dict[int, int] = {}  # Prefix in free memory -> its tokens; the one used longest ago is first.
        self._kept = 0  # Tokens of all of them.

    @property
    def outstanding(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self._reading) + len(self._decoding)

    def add(self, request: int) -> None:
        """Put a request at the end of the queue."""
        arrival_s = self.requests.arrival_s[request]
        if not self.outstanding:
            self.idle(arrival_s)
        self.waiting.append(request)

    def idle(self, until_s: float) -> None:
        """Wait without work until a time."""
        waited_s = until_s - self.now
        if waited_s > 0:
            self.log.add(self.now, waited_s, 0, 0, 0, 0, waited_s * self.costs.idle_w, 0, 0, 0, 0)
            self.now = until_s

    def advance(self, until_s: float) -> None:
        """Run all steps that begin before a time."""
        while self.now < until_s and self.outstanding:
            grown = self._context + len(self._decoding) * self.limits.tokens_per_step + self._read
            while len(self._decoding) + len(self._reading) > 1 and not self._fits(grown):
                grown -= self._put_back()
            chunks = self._admitted() if self._reading or self.waiting else []
            if chunks:
                self._mixed(chunks)
            elif self._decoding:
                self._jump(until_s)
            else:  # Prompts that are read have taken the memory from each other.
                self._put_back()

    def _fits(self, tokens: float, more: int = 0) -> bool:
        sequences = len(self._decoding) + len(self._reading) + more
        return self.cache.used(sequences, tokens) <= self.cache.tokens

    def _put_back(self) -> float:
        """Put the youngest sequence back to the queue, and return the number of its tokens in the cache."""
        if self._reading:
            reading = self._reading.pop()
            request, freed = reading.request, float(reading.done)
            self._read -= reading.done
        else:
            request = self._began.pop()
            while request not in self._decoding:
                request = self._began.pop()
            freed = self._leave(request)
            self._written[request] = min(
                int(freed) - self.requests.prompt[request] + 1, self.requests.output[request] - 1
            )
        self.requests.preempted[request] += 1
        self.waiting.appendleft(request)
        return freed

    def _leave(self, request: int) -> float:
        """Take a sequence out of those that decode, and return the number of its tokens in the cache."""
        found = self._decoding.pop(request)
        freed = found.whole + (self._step - found.begin) * self.limits.tokens_per_step
        self._context = self._context - freed if self._decoding else 0.0
        self.requests.energy_j[request] += self._each_j - found.each_j
        return freed

    def _admitted(self) -> list[tuple[_Reading, int]]:
        """The prompts of the next step, each with the number of its tokens that are read."""
        chunks: list[tuple[_Reading, int]] = []
        decoding, limits = len(self._decoding), self.limits
        room = limits.tokens - (0 if limits.prompts_first else decoding * limits.step_tokens)
        tokens = self._context + decoding * limits.tokens_per_step + self._read
        for reading in self._reading:
            count = min(room, reading.whole - reading.done)
            if count <= 0 or not self._fits(tokens + count):
                return chunks
            chunks.append((reading, count))
            room, tokens = room - count, tokens + count
        while self.waiting and room > 0 and decoding + len(self._reading) < limits.sequences:
            request = self.waiting[0]
            whole = self.requests.prompt[request] + self._written.get(request, 0)
            begun = min(max(int(whole * limits.cached_share), self._found(request)), whole - 1)
            count = min(room, whole - begun)
            if not self._fits(tokens + begun + count, 1):
                break
            self.waiting.popleft()
            reading = _Reading(request, whole, begun)
            self._reading.append(reading)
            self._read += begun
            chunks.append((reading, count))
            room, tokens = room - count, tokens + begun + count
        return chunks

    def _mixed(self, chunks: Sequence[tuple[_Reading, int]]) -> None:
        """One step that reads chunks of prompts, beside the sequences that decode unless prompts come first."""
        requests = self.requests
        decoding = 0 if self.limits.prompts_first else len(self._decoding)
        context = self._context / decoding + 1 if decoding else 0.0
        tokens = sum(count for _, count in chunks)
        pairs = sum(count * (reading.done + count / 2) for reading, count in chunks)
        ready = sum(reading.done + count == reading.whole for reading, count in chunks)
        time_s, energy_j = self.costs.mixed(decoding, context, len(chunks), tokens, pairs, decoding + ready)
        alone_j = min(self.costs.decode(decoding, context)[1], energy_j) if decoding else 0.0
        self._count(1, decoding, time_s, energy_j, alone_j, tokens, ready)
        for reading, count in chunks:
            requests.energy_j[reading.request] += (energy_j - alone_j) * count / tokens
            reading.done += count
            self._read += count
        while self._reading and self._reading[0].done == self._reading[0].whole:
            reading = self._reading.popleft()
            request, self._read = reading.request, self._read - reading.whole
            self._keep(request, reading.whole)
            if math.isnan(requests.first_s[request]):
                requests.first_s[request] = self.now
            left = requests.output[request] - self._written.pop(request, 0) - 1
            if not left:
                self._end(request)
                continue
            end = self._step + math.ceil(left / self.limits.tokens_per_step)
            self._decoding[request] = _Decoding(end, self._step, reading.whole, self._each_j)
            self._context += reading.whole
            self._began.append(request)
            heappush(self._ends, (end, request))
        self._end_due()

    def _jump(self, until_s: float) -> None:
        """Steps in which the same sequences decode, until one ends, memory gets short, or a request may arrive."""
        decoding, each = len(self._decoding), self.limits.tokens_per_step
        context = self._context / decoding + 1
        free = self.cache.tokens - self.cache.used(decoding + len(self._reading), self._context + self._read)
        count = max(1, min(self._ends[0][0] - self._step, _JUMP, int(free / (decoding * each))))
        middle = context + (count - 1) / 2 * each
        time_s, energy_j = self.costs.decode(decoding, middle)
        if count * time_s > until_s - self.now:
            count = max(1, min(count, math.ceil((until_s - self.now) / time_s)))
            time_s, energy_j = self.costs.decode(decoding, context + (count - 1) / 2 * each)
        self._count(count, decoding, count * time_s, count * energy_j, count * energy_j, 0, 0)
        self._end_due()

    def _count(
        self, steps: int, decoding: int, time_s: float, energy_j: float, alone_j: float, tokens: int, ready: int
    ) -> None:
        """Account for steps; `alone_j` are the joules of the sequences that decode."""
        running = len(self._decoding)
        if decoding:
            self._context += decoding * steps * self.limits.tokens_per_step
            self._each_j += alone_j / decoding
            self._step += steps
        used = self.cache.used(running + len(self._reading), self._context + self._read + tokens)
        waiting, stalled = len(self.waiting), running - decoding
        self.log.add(self.now, time_s, steps, decoding, tokens, ready, energy_j, used, waiting, alone_j, stalled)
        self.now += time_s

    def _found(self, request: int) -> int:
        """Tokens at the beginning of a prompt that are in the cache, because a request with its prefix was here."""
        shared = self.requests.shared[request]
        if not shared:
            return 0
        kept = min(self._prefixes.get(self.requests.prefix[request], 0), shared)
        return kept - kept % (self.cache.block or 1)

    def _keep(self, request: int, tokens: int) -> None:
        """Keep a sequence in memory that is free, for requests with its prefix; those used longest ago are dropped."""
        prefix, kept = self.requests.prefix[request], self._prefixes
        if prefix < 0:
            return
        before = kept.pop(prefix, 0)
        kept[prefix] = max(before, tokens)
        self._kept += kept[prefix] - before
        running = len(self._decoding) + len(self._reading)
        free = self.cache.tokens - self.cache.used(running, self._context + self._read)
        while self._kept > free and kept:
            self._kept -= kept.pop(next(iter(kept)))

    def _end_due(self) -> None:
        while self._ends:
            end, request = self._ends[0]
            found = self._decoding.get(request)
            current = found is not None and found.end == end  # Otherwise it was put back since.
            if current and end > self._step:
                break
            heappop(self._ends)
            if current:
                self._leave(request)
                self._end(request)

    def _end(self, request: int) -> None:
        self.requests.end_s[request] = self.now
        self._keep(request, self.requests.prompt[request] + self.requests.output[request])
        self.ended(self, self.now)
