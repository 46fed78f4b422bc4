"""The GPUs, their number, clock, batch and precision that serve a language model best whose batch is always full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError, named
from ..predictors.board.profile import profile_among
from ..progress import paced
from ..queries.evaluation import held_clocks_mhz
from ..queries.ways import Search, asked_tariff
from ..rendering.described import quantity_name, quantity_text
from .choices import OBJECTIVES, GenerationChoice, GenerationChoices, priced
from .deployment import Deployment, checked_batching, checked_load
from .engines import ENGINES
from .generate import server_of
from .models import find_decoder
from .parallel import boards_of, compared, layouts
from .server import figures_of
from .serving import Lengths, Load
from .towers import find_images

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


def steady_ways(asked: Mapping[str, Any]) -> GenerationChoices:
    """Choose among batches that are always full."""
    objective = asked["objective"]
    tariff = asked_tariff(objective, OBJECTIVES, asked)
    engine, decoder = named("engine", asked["engine"], ENGINES), find_decoder(asked["model"])
    prompt, output = (Lengths.of(name, asked[name]) for name in ("prompt_tokens", "output_tokens"))
    images = find_images(asked["model"], decoder, asked["images"])
    prompt = prompt if images is None else prompt.plus(images.tokens)
    load = checked_load(decoder, 1, prompt, output, checked_batching(None, engine))
    listed = compared(asked["gpus"], asked["counts"])
    batches = asked["batches"] and tuple(replace(load, batch=batch) for batch in sorted(set(asked["batches"])))
    profile = profile_among(asked["calibration"], (gpu.name for _, gpu in listed))
    limits = {name: asked[name] for name in LIMITS if asked[name] is not None}
    search: Search[GenerationChoice] = Search()
    seen: list[Mapping[str, FloatArray]] = []
    ways = [
        (precision, cap, gpu, parallel)
        for precision, cap, (count, gpu) in product(asked["precisions"], asked["power_limit_w"], listed)
        for parallel in layouts(count, gpu, decoder)
    ]
    for precision, cap, gpu, parallel in paced(ways):
        with search.trying(boards_of(parallel.gpus, gpu)):
            here = {"gpu": gpu, "layout": parallel, "precision": precision, "power_limit_w": cap}
            here["calibration"] = profile and profile.of_gpu(gpu.name)
            server = server_of({**asked, **here}, 1, prompt, output, None, images)
            whole = server.deployment
            gpu.running_precision(whole.precisions.products)
            clocks_mhz = held_clocks_mhz(gpu, asked["clocks"], most=CLOCKS).tolist()
            deployments = [replace(whole, total_load=load) for load in _loads(whole, batches)]
            server.prepare(tokens for served in deployments for tokens in served.steps)
            for served in deployments:
                figures = figures_of(served, server, clocks_mhz)
                seen.append(figures)
                for place, clock_mhz in enumerate(clocks_mhz):
                    told: dict[str, Any] = {name: float(values[place]) for name, values in figures.items()}
                    told |= {**told_of(served, clock_mhz, cap), "batch": served.total_load.batch}
                    within = (
                        (told[LIMITS[name]] >= limit) if name.startswith("min_") else (told[LIMITS[name]] <= limit)
                        for name, limit in limits.items()
                    )
                    if all(within):
                        search.add(boards_of(parallel.gpus, gpu), priced(told, objective, tariff))
    if not search.rows:
        raise search.refuse(
            f"no GPU serves {decoder.name} under these conditions",
            "; ".join(_reachable(name, seen) for name in limits if seen) or None,
            "give other GPUs, counts or batches, or wider limits",
        )
    # Caps above the highest of a board are that one.
    return GenerationChoices(dict.fromkeys(search.rows), search.left_out)


def _loads(whole: Deployment, asked: Sequence[Load] | None) -> list[Load]:
    """The loads to compare in a layout, smallest first: each of its groups of GPUs has a sequence, and all fit.

    `asked`: Those to choose from; None for all that fit.
    """
    groups, most, one = whole.parallel.groups, whole.largest_batch, whole.total_load
    batches = {*BATCHES, *(BATCHES[-1] << times for times in range(1, most.bit_length())), most}
    every = [replace(one, batch=batch) for batch in sorted(batches) if batch] if asked is None else asked
    loads = [load for load in every if groups <= load.batch <= most]
    if not loads:
        replace(whole, total_load=(asked or [one])[0]).refuse_shortage()
        raise InputError(
            "there are fewer sequences than groups of GPUs that serve them",
            given=f"batches up to {max(load.batch for load in asked or [one])}",
            allowed=f"{groups} or more",
            hint="give larger batches",
        )
    return loads


def _reachable(name: str, seen: Sequence[Mapping[str, FloatArray]]) -> str:
    """What can be reached of a limit at best, whatever becomes of the others."""
    values = np.concatenate([figures[LIMITS[name]] for figures in seen])
    end, best = ("at least", values.min()) if name.startswith("max_") else ("at most", values.max())
    return f"{quantity_name(LIMITS[name])}: {end} {quantity_text(LIMITS[name], float(best))}"


def told_of(served: Deployment, clock_mhz: float, cap_w: float | None) -> dict[str, Any]:
    """Fields of a choice that follow from how a model is deployed."""
    gpu, parallel = served.gpu, served.parallel
    return {
        "model": served.decoder.name,
        "engine": served.engine.name,
        "gpu": gpu.name,
        "gpus": parallel.gpus,
        "tensor_parallel": parallel.tensor,
        "expert_parallel": parallel.expert,
        "replicas": parallel.replicas,
        "precision": served.precisions.weights,
        "cache_precision": served.precisions.cache,
        "clock_mhz": clock_mhz,
        "default_clock": clock_mhz == gpu.checked_clock_mhz(None),
        "power_limit_w": None if cap_w is None else gpu.checked_power_limit_w(cap_w),
        "max_step_tokens": served.engine.step_tokens,
        "memory_share": served.engine.memory_share,
    }
