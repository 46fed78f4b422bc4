"""Ways to serve a rate of requests within limits of P99 latency, found by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from ..checked import in_range
from ..errors import InputError
from ..generation.choices import OBJECTIVES, GenerationChoice, GenerationChoices, priced
from ..generation.choosing import told_of
from ..generation.models import find_decoder
from ..generation.parallel import Parallel, boards_of, compared, layouts
from ..generation.serving import Lengths
from ..generation.towers import find_images
from ..hardware import GPU
from ..predictors.board.profile import BoardProfile, profile_among
from ..progress import paced
from ..queries.objectives import Tariff
from ..queries.ways import Search, asked_tariff
from ..units import number
from .requests import Drawn, Trace, at_rate
from .served import Served
from .simulate import DEFAULTS
from .simulation import ServingSimulation

BATCHES = (64, 256)
"""Limits of sequences in a step that are compared unless others are asked for."""
CLOCKS = (1.0, 0.8, 0.67)
"""Clocks that are compared unless others are asked for, relative to the default: the least joules are near the last."""

_ASKED = ("rate_per_s", "p99_ttft_s", "p99_tpot_s", "max_total_power_w", "max_gpus")
_REQUESTS = 1500  # Simulated at each rate; so many that P99 is between the 15 slowest.
_TRIES = 7  # Rates that are tried: the highest that holds is found to 1 % of what a replica can do.
_LEAST = 0.005  # Share of what a replica can do at which each request is nearly alone.
_SENT = 0.8  # Share of the time to first token that reading may take where keys and values are sent afterwards.
_MORE = 3  # Replicas that are added to a split until it holds its limits.


@dataclass(frozen=True)
class _Replica:
    """A replica with a limit of sequences, and the highest rate at which it holds the limits."""

    served: Served
    sequences: int
    rate_per_s: float
    at: Callable[[float], ServingSimulation]


@dataclass(frozen=True)
class _Question:
    """What does not depend on the GPU."""

    asked: Mapping[str, Any]
    lengths: tuple[Lengths, Lengths]
    once: Trace  # The requests at one per second; at other rates the same ones are quicker or slower after each other
    tariff: Tariff
    profile: BoardProfile | None

    @classmethod
    def of(cls, asked: Mapping[str, Any], context: float, tariff: Tariff, profile: BoardProfile | None) -> _Question:
        seeds = np.random.SeedSequence(asked["seed"]).spawn(3)
        images = find_images(asked["model"], find_decoder(asked["model"]), asked["images"])
        more = 0 if images is None else images.tokens
        prompts = Drawn("prompt_tokens", asked["prompt_tokens"], seeds[0], more)
        outputs = Drawn("output_tokens", asked["output_tokens"], seeds[1])
        once = at_rate(1.0, asked["burstiness"], float(_REQUESTS), prompts, outputs, context, seeds[2])
        return cls(asked, (prompts.lengths, outputs.lengths), once, tariff, profile)

    def requests(self, rate_per_s: float) -> Trace:
        """The requests at a mean rate; all at once if it is infinite."""
        return replace(self.once, arrival_s=self.once.arrival_s / rate_per_s)

    def served(
        self, precision: str, cap_w: float | None, drafts: int, gpu: GPU, parallel: Parallel, clock: float | None
    ) -> Served:
        return Served.of(
            {
                **DEFAULTS,
                **self.asked,
                "gpu": gpu,
                "layout": parallel,
                "clock": clock,
                "precision": precision,
                "power_limit_w": cap_w,
                "draft_tokens": drafts,
                "max_sequences": self.batches[-1],
                "calibration": self.profile and self.profile.of_gpu(gpu.name),
            },
            *self.lengths,
        )

    @property
    def batches(self) -> list[int]:
        return sorted(set(BATCHES if self.asked["batches"] is None else self.asked["batches"]))

    def clocks(self, gpu: GPU) -> list[float]:
        if self.asked["clocks"] is not None:
            return [gpu.checked_clock_mhz(clock) for clock in self.asked["clocks"]]
        return [max(float(gpu.min_clock_mhz), round(share * gpu.boost_clock_mhz)) for share in CLOCKS]

    def keeps(self, found: ServingSimulation, ttft_s: float | None, tpot_s: float | None) -> bool:
        limits = (found.known("ttft_s", 0.99), ttft_s), (found.known("tpot_s", 0.99), tpot_s)
        return all(limit is None or value is None or value <= limit for value, limit in limits)

    def replica(self, served: Served, sequences: int, part: str = "") -> _Replica:
        """A replica with the highest rate that it holds.

        `part`: "reading" if it only reads prompts, "decoding" if others do; empty if it does both.
        """
        ttft_s, tpot_s = self.asked["p99_ttft_s"], self.asked["p99_tpot_s"]
        if part == "reading":
            ttft_s, tpot_s = None if ttft_s is None else _SENT * ttft_s, None
        elif part == "decoding":
            ttft_s, served = None, served.after_reading

        @cache
        def at(rate_per_s: float) -> ServingSimulation:
            trace = self.requests(rate_per_s)
            trace = replace(trace, output=np.ones(len(trace.output))) if part == "reading" else trace
            return served.simulated(served.replicas(trace, count=1, sequences=sequences))

        def holds(rate_per_s: float) -> bool:
            return self.keeps(at(rate_per_s), ttft_s, tpot_s)

        # What a replica can do at most; a queue that is never empty grows without end.
        most = 0.95 * at(math.inf).tokens_per_s / (1.0 if part == "reading" else self.lengths[1].mean)
        low, high = _LEAST * most, most
        if not holds(low):
            alone = at(low)
            raise InputError(
                f"a request alone takes {alone.ttft_s(0.99):.3g} s to its first token and "
                f"{alone.known('tpot_s', 0.99) or 0.0:.3g} s for a further one",
                given=f"up to {sequences} sequences",
                allowed="limits that one request keeps",
                hint="give wider limits, a higher clock, or more GPUs for each replica (counts)",
            )
        if holds(high):
            low = high
        for _ in range(_TRIES if low < high else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return _Replica(served, sequences, low, at)

    def ways(self, replica: _Replica, search: Search[GenerationChoice], boards: str) -> Iterator[GenerationChoice]:
        """The way with as many of these replicas as are needed, if it is within the limits."""
        low, each = replica.rate_per_s, replica.served.server.deployment.parallel.gpus
        rate, watts = self.asked["rate_per_s"], self.asked["max_total_power_w"]
        most = self.asked["max_gpus"] // each
        if rate is None:
            count = min(most, int(watts / replica.at(low).power_w))
            total = count * low
        else:
            count, total = math.ceil(rate / low), rate
        one_w = replica.at(low).power_w
        held = f"a replica with {replica.sequences} sequences holds {number(low)} requests/s at {one_w:.0f} W"
        if not 1 <= count <= most:
            at_most = f"{held}, so the highest on {self.asked['max_gpus']} GPUs is {number(most * low)} requests/s"
            search.leave(boards, at_most, most * low)
            return
        found = replica.at(total / count)
        if watts is not None and count * found.power_w > watts * 1.001:
            search.leave(boards, f"{held}, and {count} replicas would draw {count * found.power_w:.0f} W", low)
            return
        yield from self._told(replica, found, count, total, count * low, times=count)

    def split(
        self, readers: Sequence[_Replica], decoders: Sequence[_Replica], search: Search[GenerationChoice], boards: str
    ) -> Iterator[GenerationChoice]:
        """The way in which some replicas only read prompts, and others decode, that needs the fewest joules."""

        def joules(each: _Replica) -> float:
            return each.at(each.rate_per_s).power_w / each.rate_per_s

        reader, decoder = min(readers, key=joules), min(decoders, key=joules)
        rate, each = self.asked["rate_per_s"], reader.served.server.deployment.parallel.gpus
        reading, decoding = (math.ceil(rate / one.rate_per_s) for one in (reader, decoder))
        found = None
        for _ in range(_MORE):
            if (reading + decoding) * each > self.asked["max_gpus"]:
                search.leave(boards, "prompts apart: more GPUs than max_gpus", 0.0)
                return
            trace = self.requests(rate)
            replayed = decoder.served.divided(trace, reader.served, reading, "round_robin", decoding)
            found = decoder.served.simulated(replayed)
            if self.keeps(found, self.asked["p99_ttft_s"], None):
                if self.keeps(found, None, self.asked["p99_tpot_s"]):
                    break
                decoding += 1
            else:
                reading += 1
        else:
            return
        highest = min(reading * reader.rate_per_s, decoding * decoder.rate_per_s)
        watts = self.asked["max_total_power_w"]
        if watts is None or found.power_w <= watts:
            yield from self._told(decoder, found, reading + decoding, rate, max(highest, rate), reading, reader)

    def _told(
        self,
        replica: _Replica,
        found: ServingSimulation,
        count: int,
        rate: float,
        highest: float,
        reading: int = 0,
        reader: _Replica | None = None,
        times: int = 1,
    ) -> Iterator[GenerationChoice]:
        """A way with what was simulated, so many times."""
        served = replica.served
        told = told_of(served.server.deployment, served.clock_mhz, served.server.power_limit_w)
        told |= {
            "gpus": count * told["gpus"],
            "replicas": count,
            "batch": (count - reading) * replica.sequences,
            "time_to_first_token_s": found.mean("ttft_s"),
            "time_per_output_token_s": found.mean("tpot_s"),
            "latency_s": found.mean("latency_s"),
            "tokens_per_s": times * found.tokens_per_s,
            "power_w": times * found.power_w,
            "energy_per_token_j": found.energy_per_token_j,
            "rate_per_s": rate,
            "highest_rate_per_s": highest,
            "ttft_p99_s": found.ttft_s(0.99),
            "tpot_p99_s": found.known("tpot_s", 0.99) or 0.0,
            "prefill_replicas": reading,
            "draft_tokens": served.limits.step_tokens - 1,
            "prefill_clock_mhz": None if reader is None else reader.served.clock_mhz,
        }
        if self.asked["rate_per_s"] is None:
            told["value"] = -rate
        yield from priced(told, self.asked["objective"], self.tariff)


def ways_at_a_rate(asked: Mapping[str, Any]) -> GenerationChoices:
    """Choose among replicas that serve requests at a rate."""
    tariff, decoder = asked_tariff(asked["objective"], OBJECTIVES, asked), find_decoder(asked["model"])
    listed = compared(asked["gpus"], sorted(set(asked["counts"])))
    profile = profile_among(asked["calibration"], (gpu.name for _, gpu in listed))
    question = _Question.of(asked, decoder.context or math.inf, tariff, profile)
    for batch in question.batches or [0]:
        in_range("batches", batch, 1, 8192, whole=True)
    search: Search[GenerationChoice] = Search()
    ways = [
        (*way, gpu, parallel)
        for count, gpu in listed
        for parallel in layouts(count, gpu, decoder)
        if parallel.groups == 1
        for way in product(asked["precisions"], asked["power_limit_w"], {0, asked["draft_tokens"]})
    ]
    for precision, cap, drafts, gpu, parallel in paced(ways):
        boards = boards_of(parallel.gpus, gpu)
        phases: dict[str, list[_Replica]] = {"reading": [], "decoding": []}
        for clock in question.clocks(gpu):
            with search.trying(boards):
                served = question.served(precision, cap, drafts, gpu, parallel, clock)
                for sequences in question.batches:
                    with search.trying(boards):
                        search.add(boards, question.ways(question.replica(served, sequences), search, boards))
                if asked["prefill_split"] and asked["rate_per_s"] is not None:
                    for part, found in phases.items():
                        found.append(question.replica(served, question.batches[-1], part))
        if all(phases.values()):
            with search.trying(boards):
                search.add(boards, question.split(phases["reading"], phases["decoding"], search, boards))
    if not search.rows:
        raise search.refuse(
            f"no number of these GPUs serves {decoder.name} so",
            search.nearest or "limits that some of them hold",
            "give other GPUs, counts or batches, a larger max_gpus, or wider limits",
            ", ".join(f"{name}={asked[name]:g}" for name in _ASKED if asked[name]) if search.nearest else None,
        )
    # Caps above the highest of a board are that one.
    return GenerationChoices(dict.fromkeys(search.rows), search.left_out)
