"""Values that a shell completes: models, GPUs, precisions, engines, objectives (`joulecast --install-completion`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, get_args

Values = Callable[[], Iterable[str]]


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(f"...{module}", __name__), name)


def _gpus() -> Iterable[str]:
    # Without spaces, and in the case that is typed: shells would split a name, and typer drops what begins otherwise.
    names = [gpu.aliases[0].replace(" ", "-") for gpu in _imported("hardware", "gpus")().values()]
    return [*names, *map(str.lower, names)]


def _precisions() -> Iterable[str]:
    return get_args(_imported("operations.attributes", "RequestedPrecision"))


def _precisions_of_runs() -> Iterable[str]:
    return [*_precisions(), _imported("runs.predict", "FP8"), *_imported("runs.predict", "AUTOCAST")]


VALUES: Mapping[str, Values] = {
    "gpus": _gpus,
    "models": lambda: _imported("extraction.models.spelling", "known_names")(),
    "precisions": _precisions,
    "precisions_of_runs": _precisions_of_runs,
    "precisions_of_pipelines": lambda: ("bf16", "fp16", "fp32"),
    "weights": lambda: _imported("generation.deployment", "WEIGHTS"),
    "engines": lambda: _imported("generation.engines", "ENGINES"),
    "language_models": lambda: _imported("extraction.models.language_models", "LANGUAGE_MODELS"),
    "pipelines": lambda: _imported("generation.images.pipelines", "PIPELINES"),
    "routers": lambda: _imported("traffic.replay", "ROUTERS"),
    "objectives": lambda: _imported("queries.objectives", "OBJECTIVES"),
    "objectives_of_serving": lambda: _imported("generation.choices", "OBJECTIVES"),
    "objectives_of_runs": lambda: _imported("runs.choosing", "OBJECTIVES"),
}
"""Name in options.toml -> the values, imported when they are asked for."""


def completing(values: Values) -> Callable[[str], list[str]]:
    """A function from what was typed to the values that begin so; after a comma, as what follows it."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + value for value in values() if value.startswith(last)]

    return complete
