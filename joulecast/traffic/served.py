"""A model as it is asked to be served: its steps as tables, and its memory for keys and values."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..generation.deployment import CACHED_IN, STATE_BYTES, cached_bytes, weights_bytes
from ..generation.generate import notes_of, server_of
from ..generation.intervals import HOST_S, factors
from ..generation.models import find_decoder
from ..generation.server import Server
from ..generation.serving import Lengths
from ..generation.steps import StepTokens
from ..generation.towers import find_images
from ..hardware.host import USUAL
from ..progress import PACE
from ..units import si
from .requests import Trace
from .scheduler import Cache, Limits, Replica, Request
from .simulation import ServingSimulation
from .step_costs import PredictedSteps

ROUTERS = ("round_robin", "least_loaded", "prefix")
"""How requests are given to replicas: in turn, to the one with the fewest, or those with a prefix to the same one."""

_REQUESTS_BETWEEN_STOPS = 1000  # A service may stop a simulation after so many requests.


Replayed = tuple[list[Replica], list[Request]]
"""Replicas, and all requests that they have served."""

_REQUEST_COLUMNS = (
    *("arrival_s", "prompt_tokens", "output_tokens", "first_token_s", "end_s", "energy_j", "preemptions"),
)

_APART = (
    "GPUs that share experts are simulated one by one; in vLLM each of their steps is as long as that of the busiest, "
    "which predict_generation counts"
)


@dataclass(frozen=True)
class Served:
    """A model that is served, with its steps predicted."""

    server: Server  # A GPU of a replica
    clock_mhz: float  # Requested graphics clock in MHz
    cache: Cache  # Memory of a replica for keys and values
    limits: Limits
    costs: PredictedSteps  # Time and energy of its steps

    @classmethod
    def of(cls, asked: Mapping[str, Any], prompt: Lengths, output: Lengths, concurrency: int | None = None) -> Served:
        """Predict the steps of a model.

        `concurrency`: Requests at a time on all GPUs; None for any number.
        """
        means = Lengths(prompt.mean, 0.0, prompt.mean), Lengths(output.mean, 0.0, output.mean)
        images = find_images(asked["model"], find_decoder(asked["model"]), asked["images"])
        server = server_of(asked, 1, *means, "continuous", images)
        served = server.deployment
        sequences = asked["max_sequences"]
        if concurrency is not None:
            sequences = min(sequences, math.ceil(concurrency / served.parallel.groups))
        drafts, model = asked["draft_tokens"], asked["draft_model"]
        # Leviathan et al., arXiv 2211.17192, equation 1: drafts are accepted up to the first that is not.
        accepted = math.fsum(asked["acceptance"] ** each for each in range(drafts + 1))
        limits = Limits(
            *(sequences, served.engine.step_tokens, asked["prefix_hit_rate"], 1 + drafts, accepted),
            prompts_first=asked["priority"] == "prompts",
        )
        if sequences * limits.step_tokens >= limits.tokens:
            raise InputError(
                "a step has fewer tokens than sequences",
                given=f"{limits.tokens} tokens, {sequences} sequences of {limits.step_tokens}",
                allowed="more tokens than sequences",
                hint="give a larger max_step_tokens, or a smaller max_sequences",
            )
        clock_mhz = served.gpu.checked_clock_mhz(asked["clock"])
        drafting = None
        if drafts and model is not None:
            drafting = server_of({**asked, "model": model}, 1, *means, "continuous")
        cache = cache_of(server, sequences, drafting)
        context = math.inf if served.decoder.context is None else served.decoder.context
        usual = max(512.0, *(4 * (each.mean + each.deviation) for each in (prompt, output)))
        longest = math.ceil(min(usual, context, cache.tokens))
        draft = None if drafting is None else PredictedSteps.of(drafting, clock_mhz, sequences, longest)
        costs = PredictedSteps.of(server, clock_mhz, sequences, longest, drafts, draft)
        return cls(server, clock_mhz, cache, limits, costs)

    def spreads(self, level: float, sequences: float, context: float) -> Mapping[str, tuple[float, float]] | None:
        """Factors on "time", "energy" and "power" between which a share of runs lies; None if no errors are known.

        Raises InputError: the level is not between 0 and 1.
        """
        step = _decoding(sequences, context)
        sigmas = self.server.sigmas(step, self.server.predict(step, self.clock_mhz))
        if sigmas is None:
            return None
        step_s, joules = self.costs.decode(step.decoding, context)
        idle_share = self.costs.idle_w * step_s / joules
        known_host = not self.server.deployment.engine.wait_sigma or self.server.predictor.host.execution.host != USUAL
        return factors(level, sigmas, step_s, idle_share, 0.0 if known_host else HOST_S)

    def notes(self, asked: Mapping[str, Any], sequences: float, context: float) -> tuple[str, ...]:
        """What is assumed of the model and its GPUs as they were asked for, and of what its prompts and drafts take."""
        drafts, name = asked["draft_tokens"], asked["draft_model"]
        by = "for nothing, as from n-grams," if name is None else f"by {find_decoder(name).name}"
        drafted = (
            f"assumed: {drafts} tokens of each sequence are drafted {by} before each step, and one is accepted with a "
            f"probability of {asked['acceptance']:g} if those before it were"
        )
        hits = f"assumed: {100 * asked['prefix_hit_rate']:g} % of each prompt is in the prefix cache"
        return (
            *((drafted,) if drafts else ()),
            *((hits,) if asked["prefix_hit_rate"] else ()),
            *notes_of(self.server, asked, self.server.predict(_decoding(sequences, context), self.clock_mhz)),
        )

    def stretched(self, factor: float) -> Served:
        """The same with steps that take longer by a factor."""
        return replace(self, costs=replace(self.costs, factor=factor))

    def replicas(
        self,
        requests: Trace | Iterator[tuple[int, int]],
        *,
        router: str = "round_robin",
        concurrency: int | None = None,
        duration_s: float | None = None,
        count: int | None = None,
        sequences: int | None = None,
    ) -> Replayed:
        """Replay requests to their end.

        `requests`: The requests as they arrive; or their lengths, one begins when another one ends.
        `duration_s`: Seconds in which requests arrive; None for all of a trace.
        `count`: Number of replicas; None for those of the GPUs.
        `sequences`: Largest number of sequences in a step; None for that of the limits.
        Raises InputError: a request does not fit into the memory.
        """
        served, every, until_s = self.server.deployment, list[Request](), math.inf if duration_s is None else duration_s
        limits = self.limits if sequences is None else replace(self.limits, sequences=sequences)
        number = served.parallel.groups if count is None else count
        replicas = [Replica(self.costs, self.cache, limits) for _ in range(number)]
        if isinstance(requests, Trace):
            self._refuse_beyond_memory(float((requests.prompt + requests.output).max()))
            integers = (requests.prompt, requests.output, requests.prefix, requests.shared)
            columns = (requests.arrival_s.tolist(), *(each.astype(int).tolist() for each in integers))
            for place, request in enumerate(itertools.starmap(Request, zip(*columns, strict=True))):
                if place % _REQUESTS_BETWEEN_STOPS == 0:
                    PACE.get()()
                every.append(request)
                if router == "least_loaded":
                    for replica in replicas:
                        replica.advance(request.arrival_s)
                    chosen = min(replicas, key=lambda each: each.outstanding)
                else:
                    turn = request.prefix if router == "prefix" and request.prefix >= 0 else place
                    chosen = replicas[turn % number]
                    chosen.advance(request.arrival_s)
                chosen.add(request)
        else:

            def begin(replica: Replica, now: float) -> None:
                lengths = next(requests, None) if now < until_s else None
                if lengths is not None:
                    self._refuse_beyond_memory(sum(lengths))
                    every.append(Request(now, *lengths))
                    replica.add(every[-1])

            for replica in replicas:
                replica.ended = begin
            for place in range(concurrency or 0):
                begin(replicas[place % number], 0.0)
        for replica in replicas:
            while replica.outstanding:
                PACE.get()()
                replica.advance(replica.now + 60.0)
        end_s = max(replica.now for replica in replicas)
        for replica in replicas:
            replica.idle(end_s if math.isinf(until_s) else max(end_s, until_s))
        return replicas, every

    def _refuse_beyond_memory(self, tokens: float) -> None:
        """Refuse requests if the longest of them alone is larger than the memory for keys and values."""
        if self.cache.used(1, tokens) > self.cache.tokens:
            served = self.server.deployment
            raise InputError(
                f"a request of {served.decoder.name} does not fit into the memory of {served.gpu.name}",
                given=f"{tokens:g} tokens of prompt and output",
                allowed=f"up to {self.cache.tokens:.0f} tokens of keys and values",
                hint="use more GPUs, GPUs with more memory, or cache_precision='fp8'",
            )

    def simulated(self, replayed: Replayed, **told: Any) -> ServingSimulation:
        """The result of replicas that have served all of their requests.

        `told`: Fields of `ServingSimulation` that do not follow from the model and its GPUs.
        """
        served, (replicas, requests) = self.server.deployment, replayed
        told = {**told, "duration_s": told.get("duration_s") or max(replica.now for replica in replicas)}
        made = ServingSimulation(
            model=served.decoder.name,
            gpu=served.gpu.name,
            gpus=served.parallel.gpus,
            engine=served.engine.name,
            precision=served.precisions.weights,
            clock_mhz=self.clock_mhz,
            power_limit_w=served.gpu.checked_power_limit_w(self.server.power_limit_w),
            cache_tokens=served.parallel.groups * self.cache.tokens,
            requests={name: np.array([getattr(each, name) for each in requests]) for name in _REQUEST_COLUMNS},
            logs=tuple(replica.log for replica in replicas),
            **{"layout": "", "seed": 0, "rate_per_s": None, "concurrency": None, "warmup_s": 0.0, **told},
        )
        apart = (_APART,) if served.engine.pads_ranks and served.parallel.senders > 1 else ()
        return replace(made, notes=(*made.overload(), *made.notes, *apart))

    @property
    def after_reading(self) -> Served:
        """The same for prompts whose keys and values come from others: it computes their last token again."""
        return replace(self, limits=replace(self.limits, cached_share=1.0))

    def divided(self, trace: Trace, reader: Served, readers: int, router: str, decoders: int | None = None) -> Replayed:
        """Replay requests whose prompts are read by replicas of their own, which send keys and values to the others.

        A replica that decodes computes the last token of each prompt again, as vLLM does, which gives the first token
        of the output. Requests are returned in the order of the trace.

        `decoders`: Number of replicas that decode; None for all other GPUs. Raises InputError: a request does not fit
        into the memory.
        """
        served = self.server.deployment
        prompts = replace(trace, output=np.ones(len(trace.prompt)))
        reading, read = reader.replicas(prompts, router=router, count=readers)
        lengths, place = np.unique(trace.prompt, return_inverse=True)
        sent = np.array([cached_bytes(served.decoder, int(each), served.precisions) for each in lengths])
        # Each GPU sends its part to another node, over an adapter that is as fast as its PCI Express slot.
        there_s = np.array([each.end_s for each in read]) + sent[place] / (served.gpu.pcie_bandwidth or _PCIE)
        order = np.argsort(there_s, kind="stable")
        arrived = replace(trace, arrival_s=there_s).of(order)
        others = served.parallel.groups - readers if decoders is None else decoders
        decoding, decoded = self.after_reading.replicas(arrived, router=router, count=others)
        requests = [decoded[here] for here in np.argsort(order).tolist()]
        for first, second in zip(read, requests, strict=True):
            second.arrival_s = first.arrival_s
            second.energy_j += first.energy_j
            second.preemptions += first.preemptions
        together = [*reading, *decoding]
        for replica in together:
            replica.idle(max(each.now for each in together))
        return together, requests


def _decoding(sequences: float, context: float) -> StepTokens:
    """A step in which a mean number of sequences decodes, each with so many tokens in the cache."""
    batch = max(1, round(sequences))
    return StepTokens(batch, max(1, round(context)), sampled=batch)


_PCIE = 32e9  # Bytes per second of a slot with 16 lanes of PCI Express 4.0, for boards whose own is not known.


def cache_of(server: Server, sequences: int, drafting: Server | None = None) -> Cache:
    """The memory for keys and values that a replica of a model leaves.

    `sequences`: Largest number of sequences in a step.
    `drafting`: A model that drafts tokens, with weights, keys and values of its own; None without one.
    """
    served, decoder = server.deployment, server.deployment.decoder
    memory = served.memory_of(sequences)
    free = memory.usable_bytes - memory.weights_bytes - memory.activations_bytes
    by_window: dict[float, float] = defaultdict(float)
    for each in (decoder,) if drafting is None else (decoder, drafting.deployment.decoder):
        if each.state_elements:
            by_window[1.0] += STATE_BYTES * each.state_elements  # As much as a single token that never leaves.
        for part, layers in each.attentions:
            by_window[part.window or math.inf] += layers * part.cached_elements * CACHED_IN[served.precisions.cache]
    if drafting is not None:
        free -= weights_bytes(drafting.deployment.decoder, served.precisions)
    token_bytes = sum(by_window.values())
    if free <= 0:
        served.refuse_shortage()
        raise InputError(
            f"{decoder.name} leaves no memory for keys and values on {served.gpu.name}",
            given=f"{si(memory.usable_bytes - free, 'B')} of weights and activations",
            allowed=f"less than {si(memory.usable_bytes, 'B')}",
            hint="use more GPUs, narrower weights, or a smaller max_step_tokens",
        )
    return Cache(
        free / token_bytes, tuple((share / token_bytes, window) for window, share in sorted(by_window.items()))
    )
