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
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ..arrays import FloatArray
from ..generation.deployment import BLOCK
from .step_costs import PredictedSteps

_JUMP = 512  # Most steps that are added up at the context in their middle.


@dataclass(frozen=True)
class Cache:
    """Memory for keys and values of one replica, in tokens."""

    tokens: float  # Tokens that fit, in bytes of a token of all layers
    # Share of the bytes of a long sequence's token that some layers keep, and the window of these layers in tokens
    # (infinite without one); shares add up to 1.
    layers: tuple[tuple[float, float], ...] = ((1.0, math.inf),)
    block: int = BLOCK  # Tokens of a block

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


@dataclass(slots=True, eq=False)
class Request:
    """A request and what becomes of it."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    prefix: int = -1  # Group of requests whose prompts begin alike; -1 for none
    shared: int = 0  # Tokens that do
    first_token_s: float = math.nan  # Seconds at the first and at the last token
    end_s: float = math.nan
    energy_j: float = 0.0  # Its share of the steps that it took part in
    preemptions: int = 0  # How often it was put back
    written: int = 0  # Tokens that it had generated when it was put back
    whole: int = 0  # Tokens that are read before it decodes: its prompt, and what it had written
    read: int = 0  # Those of them that are in the cache
    begin: int = 0  # Steps of its first and of its last token; the latter is -1 while it does not decode
    end: int = -1
    before_j: float = 0.0  # Joules of a sequence that has decoded since the beginning, at its first token
    number: int = 0  # Its place in the order in which its replica got them


LOG = (
    *("start_s", "time_s", "steps", "decoding", "prompt_tokens", "completed", "energy_j", "cached", "waiting"),
    *("decoding_j", "stalled"),
)
"""Columns of the log of a replica, which has an entry for each jump of equal steps, and one for each time without work.

They are the start in seconds, seconds, steps (0 while it waits for requests), sequences that decoded, tokens of
prompts, prompts that were completed, joules, tokens in the cache, requests that waited, joules of the sequences that
decoded, and sequences that waited for the prompts of others."""


class Replica:
    """A replica with its queue. Requests have to be added in the order of their arrival."""

    def __init__(
        self,
        costs: PredictedSteps,
        cache: Cache,
        limits: Limits,
        ended: Callable[[Replica, float], None] = lambda replica, now: None,
    ) -> None:
        """A replica without requests.

        `ended`: Called at the end of each request with the time; it may add a request.
        """
        self.costs, self.cache, self.limits, self.ended = costs, cache, limits, ended
        self.now = 0.0
        self._log = array("d")  # One entry after the other.
        self._added = 0  # Number of requests so far.
        self._waiting: deque[Request] = deque()
        self._reading: deque[Request] = deque()
        self._read = 0  # Tokens of prompts in the cache that are not read to their end.
        self._decoding = 0  # Number of sequences that decode.
        self._ends: list[tuple[int, int, Request]] = []  # Heap: step of the last token; some were put back since.
        self._began: list[Request] = []  # Requests in the order in which they began to decode; some have ended.
        self._step = 0
        self._context = 0.0  # Tokens in the cache of the sequences that decode.
        self._each_j = 0.0  # Joules of a sequence that has decoded since the beginning.
        self._prefixes: dict[int, int] = {}  # Prefix in free memory -> its tokens; the one used longest ago is first.
        self._kept = 0  # Tokens of all of them.

    @property
    def log(self) -> dict[str, FloatArray]:
        """What it did: name of a column of `LOG` -> its values, shape (entries,)."""
        return dict(zip(LOG, np.array(self._log).reshape(-1, len(LOG)).T.copy(), strict=True))

    @property
    def outstanding(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._reading) + self._decoding

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        if not self.outstanding:
            self.idle(request.arrival_s)
        self._added += 1
        request.number = self._added
        self._waiting.append(request)

    def idle(self, until_s: float) -> None:
        """Wait without work until a time."""
        waited_s = until_s - self.now
        if waited_s > 0:
            self._log.extend((self.now, waited_s, 0, 0, 0, 0, waited_s * self.costs.idle_w, 0, 0, 0, 0))
            self.now = until_s

    def advance(self, until_s: float) -> None:
        """Run all steps that begin before a time."""
        while self.now < until_s and self.outstanding:
            grown = self._context + self._decoding * self.limits.tokens_per_step + self._read
            while self._decoding + len(self._reading) > 1 and not self._fits(grown):
                grown -= self._put_back()
            chunks = self._admitted() if self._reading or self._waiting else []
            if chunks:
                self._mixed(chunks)
            elif self._decoding:
                self._jump(until_s)
            else:  # Prompts that are read have taken the memory from each other.
                self._put_back()

    def _used(self, tokens: float, more: int = 0) -> float:
        return self.cache.used(self._decoding + len(self._reading) + more, tokens)

    def _fits(self, tokens: float, more: int = 0) -> bool:
        return self._used(tokens, more) <= self.cache.tokens

    def _put_back(self) -> float:
        """Put the youngest sequence back to the queue, and return the number of its tokens in the cache."""
        if self._reading:
            request = self._reading.pop()
            freed = float(request.read)
            self._read -= request.read
        else:
            request = self._began.pop()
            while request.end < 0:
                request = self._began.pop()
            freed = self._leave(request)
            request.written = min(int(freed) - request.prompt_tokens + 1, request.output_tokens - 1)
        request.preemptions += 1
        self._waiting.appendleft(request)
        return freed

    def _leave(self, request: Request) -> float:
        """Take a sequence out of those that decode, and return the number of its tokens in the cache."""
        request.end, self._decoding = -1, self._decoding - 1
        freed = request.whole + (self._step - request.begin) * self.limits.tokens_per_step
        self._context = self._context - freed if self._decoding else 0.0
        request.energy_j += self._each_j - request.before_j
        return freed

    def _admitted(self) -> list[tuple[Request, int]]:
        """The prompts of the next step, each with the number of its tokens that are read."""
        chunks: list[tuple[Request, int]] = []
        decoding, limits = self._decoding, self.limits
        room = limits.tokens - (0 if limits.prompts_first else decoding * limits.step_tokens)
        tokens = self._context + decoding * limits.tokens_per_step + self._read
        for request in self._reading:
            count = min(room, request.whole - request.read)
            if count <= 0 or not self._fits(tokens + count):
                return chunks
            chunks.append((request, count))
            room, tokens = room - count, tokens + count
        while self._waiting and room > 0 and decoding + len(self._reading) < limits.sequences:
            request = self._waiting[0]
            whole = request.prompt_tokens + request.written
            begun = min(max(int(whole * limits.cached_share), self._found(request)), whole - 1)
            count = min(room, whole - begun)
            if not self._fits(tokens + begun + count, 1):
                break
            request.whole, request.read = whole, begun
            self._reading.append(self._waiting.popleft())
            self._read += begun
            chunks.append((request, count))
            room, tokens = room - count, tokens + begun + count
        return chunks

    def _mixed(self, chunks: Sequence[tuple[Request, int]]) -> None:
        """One step that reads chunks of prompts, beside the sequences that decode unless prompts come first."""
        decoding = 0 if self.limits.prompts_first else self._decoding
        context = self._context / decoding + 1 if decoding else 0.0
        tokens = sum(count for _, count in chunks)
        pairs = sum(count * (request.read + count / 2) for request, count in chunks)
        ready = sum(request.read + count == request.whole for request, count in chunks)
        time_s, energy_j = self.costs.mixed(decoding, context, len(chunks), tokens, pairs, decoding + ready)
        alone_j = min(self.costs.decode(decoding, context)[1], energy_j) if decoding else 0.0
        self._count(1, decoding, time_s, energy_j, alone_j, tokens, ready)
        for request, count in chunks:
            request.energy_j += (energy_j - alone_j) * count / tokens
            request.read += count
            self._read += count
        while self._reading and self._reading[0].read == self._reading[0].whole:
            request = self._reading.popleft()
            self._read -= request.whole
            self._keep(request, request.whole)
            if math.isnan(request.first_token_s):
                request.first_token_s = self.now
            left = request.output_tokens - request.written - 1
            request.written = 0
            if not left:
                self._end(request)
                continue
            request.begin, request.before_j = self._step, self._each_j
            request.end = self._step + math.ceil(left / self.limits.tokens_per_step)
            self._decoding += 1
            self._context += request.whole
            self._began.append(request)
            heappush(self._ends, (request.end, request.number, request))
        self._end_due()

    def _jump(self, until_s: float) -> None:
        """Steps in which the same sequences decode, until one ends, memory gets short, or a request may arrive."""
        decoding, each = self._decoding, self.limits.tokens_per_step
        context = self._context / decoding + 1
        free = self.cache.tokens - self._used(self._context + self._read)
        count = max(1, min(self._ends[0][0] - self._step, _JUMP, int(free / (decoding * each))))
        time_s, energy_j = self.costs.decode(decoding, context + (count - 1) / 2 * each)
        if count * time_s > until_s - self.now:
            count = max(1, min(count, math.ceil((until_s - self.now) / time_s)))
            time_s, energy_j = self.costs.decode(decoding, context + (count - 1) / 2 * each)
        self._count(count, decoding, count * time_s, count * energy_j, count * energy_j, 0, 0)
        self._end_due()

    def _count(
        self, steps: int, decoding: int, time_s: float, energy_j: float, alone_j: float, tokens: int, ready: int
    ) -> None:
        """Account for steps; `alone_j` are the joules of the sequences that decode."""
        if decoding:
            self._context += decoding * steps * self.limits.tokens_per_step
            self._each_j += alone_j / decoding
            self._step += steps
        used, stalled = self._used(self._context + self._read + tokens), self._decoding - decoding
        did = self.now, time_s, steps, decoding, tokens, ready, energy_j, used, len(self._waiting), alone_j, stalled
        self._log.extend(did)
        self.now += time_s

    def _found(self, request: Request) -> int:
        """Tokens at the beginning of a prompt that are in the cache, because a request with its prefix was here."""
        kept = min(self._prefixes.get(request.prefix, 0), request.shared)
        return kept - kept % (self.cache.block or 1)

    def _keep(self, request: Request, tokens: int) -> None:
        """Keep a sequence in memory that is free, for requests with its prefix; those used longest ago are dropped."""
        if request.prefix < 0:
            return
        kept = self._prefixes
        before = kept.pop(request.prefix, 0)
        kept[request.prefix] = max(before, tokens)
        self._kept += kept[request.prefix] - before
        free = self.cache.tokens - self._used(self._context + self._read)
        while self._kept > free and kept:
            self._kept -= kept.pop(next(iter(kept)))

    def _end_due(self) -> None:
        while self._ends:
            end, _, request = self._ends[0]
            if request.end == end > self._step:
                break
            heappop(self._ends)
            if request.end == end:  # Otherwise it was put back since.
                self._leave(request)
                self._end(request)

    def _end(self, request: Request) -> None:
        request.end_s = self.now
        self._keep(request, request.prompt_tokens + request.output_tokens)
        self.ended(self, self.now)
