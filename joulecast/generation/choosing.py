"""The GPUs, their number, clock, batch and precision that serve a language model best whose batch is always full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ..errors import InputError
from ..hardware import GPU
from ..predictors.board.profile import BoardProfile, profile_among
from ..progress import paced
from ..queries.evaluation import held_clocks_mhz, prefetch
from ..queries.ways import Search, asked_tariff
from ..rendering.notebook import quantity_name, quantity_text
from .choices import OBJECTIVES, GenerationChoice, GenerationChoices, priced
from .decoder import Decoder
from .deployment import Deployment, checked_batching, checked_load, checked_precisions
from .engines import Engine, checked_sampling, find_engine
from .models import find_decoder
from .parallel import Parallel, boards_of, compared, layouts
from .server import Figures, Server, figures_of
from .serving import Lengths, Load
from .towers import Images, find_images

BATCHES = (1, 4, 16, 32, 64, 128, 256, 512)
"""Batches that are compared unless others are asked for; beside them their doubles, up to the largest that fits."""
CLOCKS = 8
"""Clocks of each GPU that are compared unless others are asked for."""

LIMITS = {
    "max_time_to_first_token_s": "time_to_first_token_s",
    "max_time_per_output_token_s": "time_per_output_token_s",
    "min_tokens_per_s": "tokens_per_s",
}
"""Arguments of `best_generation` that are limits of full batches -> what they limit."""

_FIGURES = (*LIMITS.values(), "latency_s", "power_w", "energy_per_token_j")


def steady_ways(asked: Mapping[str, Any]) -> GenerationChoices:
    """Choose among batches that are always full."""
    objective = asked["objective"]
    tariff = asked_tariff(objective, OBJECTIVES, asked)
    engine, decoder = find_engine(asked["engine"]), find_decoder(asked["model"])
    found = replace(engine, sampling=checked_sampling(None, engine, decoder))
    prompt, output = (Lengths.of(name, asked[name]) for name in ("prompt_tokens", "output_tokens"))
    images = find_images(asked["model"], decoder, asked["images"])
    prompt = prompt if images is None else prompt.plus(images.tokens)
    load = checked_load(decoder, 1, prompt, output, checked_batching(None, found))
    listed = compared(asked["gpus"], asked["counts"])
    batches = asked["batches"] and tuple(replace(load, batch=batch) for batch in sorted(set(asked["batches"])))
    profile = profile_among(asked["calibration"], (gpu.name for _, gpu in listed))
    question = _Question(asked, decoder, found, load, batches, profile, images)
    limits = {name: asked[name] for name in LIMITS if asked[name] is not None}
    search: Search[GenerationChoice] = Search()
    seen: list[Figures] = []
    for precision, cap in product(dict.fromkeys(asked["precisions"]), asked["power_limit_w"]):
        for count in sorted({count for count, _ in listed}):
            boards = [gpu for number, gpu in listed if number == count]
            for served, clocks_mhz, figures in question.figures(boards, count, precision, cap, search):
                seen.append(figures)
                for place, clock_mhz in enumerate(clocks_mhz):
                    told = {name: float(getattr(figures, name)[place]) for name in _FIGURES}
                    told |= told_of(served, clock_mhz, cap)
                    within = (
                        (told[LIMITS[name]] >= limit) if name.startswith("min_") else (told[LIMITS[name]] <= limit)
                        for name, limit in limits.items()
                    )
                    if all(within):
                        way = priced({**told, "batch": served.total_load.batch}, objective, tariff)
                        search.add(boards_of(count, served.gpu), way)
    if not search.rows:
        raise search.refuse(
            f"no GPU serves {decoder.name} under these conditions",
            "; ".join(_reachable(name, seen) for name in limits if seen) or None,
            "give other GPUs, counts or batches, or wider limits",
        )
    return GenerationChoices(search.rows, search.left_out)


@dataclass(frozen=True)
class _Question:
    """The part of a question that does not depend on the GPU."""

    asked: Mapping[str, Any]
    decoder: Decoder
    engine: Engine
    one: Load  # A load with one sequence
    loads: Sequence[Load] | None  # Those to choose from; None for all that fit
    profile: BoardProfile | None
    images: Images | None

    def figures(
        self, boards: Sequence[GPU], count: int, precision: str, cap_w: float | None, search: Search[GenerationChoice]
    ) -> Iterator[tuple[Deployment, Sequence[float], Figures]]:
        """The figures of each GPU in each layout with each batch that fits, at its clocks."""
        precisions = checked_precisions(precision, self.asked["cache_precision"], self.engine)
        batching = checked_batching(None, self.engine)
        servers: list[tuple[Server, list[Deployment]]] = []
        ways = ((gpu, parallel) for gpu in boards for parallel in layouts(count, gpu, self.decoder))
        for gpu, parallel in ways:
            with search.trying(boards_of(count, gpu)):
                whole = Deployment.of(self.decoder, gpu, self.engine, precisions, parallel, batching, self.one)
                whole = replace(whole, images=self.images)
                gpu.running_precision(precisions.products)
                profile = self.profile and self.profile.of_gpu(gpu.name)
                server = Server.of(self.asked["model"], whole, cap_w, None, profile=profile)
                servers.append((server, [replace(whole, total_load=load) for load in self._loads(whole)]))
        alike_by: dict[tuple[Parallel, bool, bool], list[tuple[Server, list[Deployment]]]] = {}
        for server, fitting in servers:
            served = server.deployment
            kernels = served.parallel, served.engine.grouped_experts, served.engine.pads_experts
            alike_by.setdefault(kernels, []).append((server, fitting))
        for alike in alike_by.values():
            yield from self._alike(alike, search)

    def _alike(
        self, servers: Sequence[tuple[Server, list[Deployment]]], search: Search[GenerationChoice]
    ) -> Iterator[tuple[Deployment, Sequence[float], Figures]]:
        """The same for GPUs that run the same operations, which are predicted for all of them at once."""
        one, count = servers[0][0], servers[0][0].deployment.parallel.gpus
        # The largest batch of each GPU is its own, so its steps are predicted on this GPU alone.
        asked = dict.fromkeys(
            one.padded(tokens)
            for _, fitting in servers
            for served in (fitting if len(servers) == 1 else fitting[:-1] or fitting)
            for tokens in served.steps
        )
        steps = one.networks(asked)
        if self.engine.fused:
            prefetch([server.predictor for server, _ in servers], steps.together)
        for server, fitting in servers:
            with search.trying(boards_of(count, server.gpu)):
                server.take(steps)
                clocks = held_clocks_mhz(server.gpu, self.asked["clocks"], most=CLOCKS).tolist()
                for served in paced(fitting):
                    yield served, clocks, figures_of(served, server, clocks)

    def _loads(self, whole: Deployment) -> list[Load]:
        """The loads to compare in a layout, smallest first: each of its groups of GPUs has a sequence, and all fit."""
        groups, most, compared = whole.parallel.groups, whole.largest_batch, self.loads
        if compared is None:
            batches = {*BATCHES, *(BATCHES[-1] << times for times in range(1, most.bit_length())), most}
            compared = [replace(self.one, batch=batch) for batch in sorted(batches) if batch]
        loads = [load for load in compared if groups <= load.batch <= most]
        if not loads:
            replace(whole, total_load=(self.loads or [self.one])[0]).refuse_shortage()
            raise InputError(
                "there are fewer sequences than groups of GPUs that serve them",
                given=f"batches up to {max(load.batch for load in self.loads or [self.one])}",
                allowed=f"{groups} or more",
                hint="give larger batches",
            )
        return loads


def _reachable(name: str, seen: Sequence[Figures]) -> str:
    """What can be reached of a limit at best, whatever becomes of the others."""
    values = np.concatenate([getattr(figures, LIMITS[name]) for figures in seen])
    end, best = ("at least", values.min()) if name.startswith("max_") else ("at most", values.max())
    return f"{quantity_name(LIMITS[name])}: {end} {quantity_text(LIMITS[name], float(best))}"


def told_of(served: Deployment, clock_mhz: float, cap_w: float | None) -> dict[str, Any]:
    """Fields of a choice that follow from how a model is deployed."""
    gpu, parallel = served.gpu, served.parallel
    return {
        "model": served.decoder.name,
        "gpu": gpu.name,
        "gpus": parallel.gpus,
        "tensor_parallel": parallel.tensor,
        "expert_parallel": parallel.expert,
        "replicas": parallel.replicas,
        "precision": served.precisions.weights,
        "cache_precision": served.precisions.cache,
        "clock_mhz": clock_mhz,
        "default_clock": clock_mhz == gpu.checked_clock_mhz(None),
        "power_limit_w": cap_w,
        "max_step_tokens": served.engine.step_tokens,
        "memory_share": served.engine.memory_share,
    }
