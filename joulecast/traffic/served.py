"""A model as it is asked to be served: its steps as tables, and its memory for keys and values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from ..generation.generate import server_of
from ..generation.lengths import Lengths
from ..generation.memory import CACHED_IN, activations_bytes, weights_bytes
from ..generation.server import Server
from ..generation.steps import StepTokens
from ..predictors.networks.memory import usable_bytes
from ..units import si
from .replay import Replay, refuse_beyond_memory
from .requests import Trace
from .scheduler import Cache, Limits, Replica, Requests
from .step_costs import PredictedSteps


@dataclass(frozen=True)
class Served:
    """A model that is served, with its steps predicted.

    Args:
        server: A GPU of a replica.
        clock_mhz: Requested graphics clock in MHz.
        cache: Memory of a replica for keys and values.
        limits: Limits of its steps.
        costs: Time and energy of its steps.
    """

    server: Server
    clock_mhz: float
    cache: Cache
    limits: Limits
    costs: PredictedSteps

    @classmethod
    def of(cls, asked: Mapping[str, Any], prompt: Lengths, output: Lengths, concurrency: int | None = None) -> Served:
        """Predict the steps of a model.

        Args:
            asked: Arguments of `simulate_serving` by name.
            prompt: Lengths of prompts.
            output: Lengths of outputs.
            concurrency: Requests at a time on all GPUs; None for any number.

        Raises:
            JoulecastError: See `simulate_serving`.
        """
        means = [Lengths(each.mean, 0.0, each.mean) for each in (prompt, output)]
        server = server_of(asked, 1, means[0], means[1], "continuous", asked["max_step_tokens"])
        served = server.deployment
        sequences = asked["max_sequences"]
        if concurrency is not None:
            sequences = min(sequences, math.ceil(concurrency / served.parallel.groups))
        limits = Limits(sequences, served.engine.step_tokens, asked["prefix_hit_rate"])
        if sequences >= limits.tokens:
            raise InputError(
                "a step has fewer tokens than sequences",
                given=f"{limits.tokens} tokens, {sequences} sequences",
                allowed="more tokens than sequences",
                hint="give a larger max_step_tokens, or a smaller max_sequences",
            )
        clock_mhz = served.gpu.checked_clock_mhz(asked["clock"])
        cache = cache_of(server, sequences)
        context = math.inf if served.decoder.context is None else served.decoder.context
        usual = max(512.0, *(4 * (each.mean + each.deviation) for each in (prompt, output)))
        longest = math.ceil(min(usual, context, cache.tokens))
        return cls(server, clock_mhz, cache, limits, PredictedSteps.of(server, clock_mhz, sequences, longest))

    def replicas(
        self,
        requests: Trace | Iterator[tuple[int, int]],
        *,
        router: str = "round_robin",
        concurrency: int | None = None,
        duration_s: float | None = None,
        count: int | None = None,
        sequences: int | None = None,
    ) -> Sequence[Replica]:
        """Replay requests to their end.

        Args:
            requests: The requests as they arrive; or their lengths, one begins when another one ends.
            router: A name of `ROUTERS`.
            concurrency: Requests at a time.
            duration_s: Seconds in which requests arrive; None for all of a trace.
            count: Number of replicas; None for those of the GPUs.
            sequences: Largest number of sequences in a step; None for that of the limits.

        Raises:
            InputError: A request does not fit into the memory.
        """
        served = self.server.deployment
        replay = Replay([], router, iter(()), math.inf if duration_s is None else duration_s)
        limits = self.limits if sequences is None else replace(self.limits, sequences=sequences)
        every = Requests()
        for _ in range(served.parallel.groups if count is None else count):
            replay.replicas.append(Replica(self.costs, self.cache, limits, every, replay.ended))
        if isinstance(requests, Trace):
            refuse_beyond_memory(requests.prompt + requests.output, self.cache, served.decoder.name, served.gpu.name)
            replay.open(requests)
        else:
            replay.drawn = requests
            replay.closed(concurrency or 0)
        return replay.replicas


def cache_of(server: Server, sequences: int) -> Cache:
    """The memory for keys and values that a replica of a model leaves.

    Args:
        server: A GPU of the replica.
        sequences: Largest number of sequences in a step; memory for activations is kept for a full step of them.

    Raises:
        InputError: The weights alone do not fit.
    """
    served, decoder = server.deployment, server.deployment.decoder
    most = served.engine.step_tokens
    largest = StepTokens(sequences, 1, 1, most - sequences, sampled=sequences)
    usable = usable_bytes(served.gpu) * served.engine.memory_share
    free = usable - weights_bytes(decoder, served.precisions) - activations_bytes(decoder, largest)
    by_window: dict[float, float] = defaultdict(float)
    for part, layers in decoder.attentions:
        by_window[part.window or math.inf] += layers * part.cached_elements * CACHED_IN[served.precisions.cache]
    each = sum(by_window.values())
    if free <= 0:
        served.refuse_shortage()
        raise InputError(
            f"{decoder.name} leaves no memory for keys and values on {served.gpu.name}",
            given=f"{si(usable - free, 'B')} of weights and activations",
            allowed=f"less than {si(usable, 'B')}",
            hint="use more GPUs, narrower weights, or a smaller max_step_tokens",
        )
    return Cache(free / each, tuple((share / each, window) for window, share in sorted(by_window.items())))
