"""Listings of GPUs, models and zoo entries as plain lists and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from ..errors import unknown_name
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..extraction.templates import store
from ..generation.engines import ENGINES
from ..generation.images.pipelines import PIPELINES
from ..hardware import GPU, gpus
from ..hardware.host import USUAL, hosts
from ..predictors.networks.execution import EXECUTIONS
from ..queries.carbon import grids
from ..system.resources import shipped
from ..zoo import entries
from ..zoo.entries.cards import load_card
from ..zoo.entries.measured import measured_gpus
from ..zoo.rendering import markdown

# Example for a size of the input that a template leaves open, used if the template is valid for it.
_USUAL_SIZES: Mapping[str, int] = {"batch": 32, "height": 224, "width": 224, "tokens": 128}
_FALLBACK = 224


def gpu_summary(gpu: GPU) -> dict[str, Any]:
    """A GPU as a row of the catalogue."""
    measured = measured_gpus()
    return {
        "name": gpu.name,
        "short_name": gpu.aliases[0],
        "aliases": list(gpu.aliases),
        "architecture": gpu.architecture,
        "memory_bytes": gpu.memory_bytes,
        "memory_bandwidth": gpu.memory_bandwidth,
        "min_clock_mhz": gpu.min_clock_mhz,
        "boost_clock_mhz": gpu.boost_clock_mhz,
        "max_clock_mhz": gpu.max_clock_mhz,
        "power_limit_w": gpu.power_limit_w,
        "precisions": list(gpu.peak_flops),
        "measured": str(measured[gpu.name]) if gpu.name in measured else None,
        "predictors": [entry for entry in entries() if entry.startswith(f"{gpu.slug}/")],
    }


def all_gpus() -> dict[str, Any]:
    """The catalogue."""
    return {"gpus": [gpu_summary(gpu) for gpu in gpus().values()]}


def one_gpu(gpu: GPU) -> dict[str, Any]:
    """All figures of a GPU."""
    return {**asdict(gpu), **gpu_summary(gpu), "sources": list(gpu.sources)}


def ways_to_run() -> dict[str, Any]:
    """How a network can be run, the hosts and engines that are known by name, and grids with their carbon intensity."""
    named_hosts = [
        {"name": host.name, "factor": host.factor, "source": host.source} for host in (USUAL, *hosts().values())
    ]
    return {
        "executions": list(EXECUTIONS),
        "hosts": named_hosts,
        "engines": [engine.name for engine in ENGINES.values() if engine.fused],
        "grids": [
            {"code": grid.code, "name": grid.name, "carbon_g_per_kwh": grid.carbon_g_per_kwh}
            for grid in grids().values()
        ],
    }


@cache
def _models() -> tuple[dict[str, Any], ...]:
    return tuple(row for row in map(_model, store.names()) if row is not None)


def _model(name: str) -> dict[str, Any] | None:
    model = store.load(name)
    if model is None:
        return None
    title, shape = next(iter(model.inputs.items()))
    setting = model.settings.get("inference") or next(iter(model.settings.values()))
    low_high = {
        size: (min(regime.ranges[i][0] for regime in setting.regimes), max(r.ranges[i][1] for r in setting.regimes))
        for i, size in enumerate(model.size_names)
    }
    family = "image" if len(shape) == 4 else "tokens" if len(shape) == 2 else "features"
    usual = {**_USUAL_SIZES, **({"batch": 8} if family != "image" else {})}
    return {
        "name": name,
        "family": family,
        "input_shape": [
            n if isinstance(n, int) else min(max(usual.get(n, _FALLBACK), low_high[n][0]), low_high[n][1])
            for n in shape
        ],
        "input_names": [title] if title else [],
    }


def all_models(search: str = "", *, others: bool = False) -> dict[str, Any]:
    """Models with templates, language models and image pipelines whose names contain a text."""
    wanted = search.lower()
    rows = [row for row in _models() if wanted in row["name"]]
    # Names that begin with it come first.
    return {
        "models": sorted(rows, key=lambda row: not row["name"].startswith(wanted)),
        "language_models": [name for name in LANGUAGE_MODELS if wanted in name],
        "pipelines": [name for name in PIPELINES if wanted in name],
        "others": others,
    }


def zoo_card(name: str) -> dict[str, Any]:
    """The model card of an entry, with the card as text under "markdown".

    Raises:
        UnknownNameError: There is no such entry.
        ZooError: The entry is damaged.
    """
    names = entries()
    if name not in names:
        raise unknown_name("predictor", name, names)
    card = load_card(shipped("zoo") / name)
    return {**card, "name": name, "markdown": markdown(card)}
