"""Values that a shell completes: models, GPUs, precisions, engines, objectives (`joulecast --install-completion`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Annotated, get_args

Values = Callable[[], Iterable[str]]


def _gpus() -> Iterable[str]:
    from ..hardware import gpus

    # Without spaces, and in the case that is typed: shells would split a name, and typer drops what begins otherwise.
    names = [gpu.aliases[0].replace(" ", "-") for gpu in gpus().values()]
    return [*names, *map(str.lower, names)]


def _models() -> Iterable[str]:
    from ..extraction.models.spelling import known_names

    return known_names()


def _precisions() -> Iterable[str]:
    from ..operations.attributes import RequestedPrecision

    return get_args(RequestedPrecision)


def _precisions_of_runs() -> Iterable[str]:
    from ..runs.predict import AUTOCAST, FP8

    return [*_precisions(), FP8, *AUTOCAST]


def _engines() -> Iterable[str]:
    from ..generation.engines import ENGINES

    return ENGINES


def _objectives() -> Iterable[str]:
    from ..queries.objectives import OBJECTIVES

    return OBJECTIVES


def _language_models() -> Iterable[str]:
    from ..extraction.models.language_models import LANGUAGE_MODELS

    return LANGUAGE_MODELS


def _precisions_of_weights() -> Iterable[str]:
    from ..generation.deployment import WEIGHTS

    return WEIGHTS


def _objectives_of_serving() -> Iterable[str]:
    from ..generation.choices import OBJECTIVES

    return OBJECTIVES


def _objectives_of_runs() -> Iterable[str]:
    from ..runs.choosing import OBJECTIVES

    return OBJECTIVES


def _pipelines() -> Iterable[str]:
    from ..generation.images.pipelines import PIPELINES

    return PIPELINES


_VALUES: Mapping[str, Values] = {
    "gpu": _gpus,
    "gpus": _gpus,
    "model": _models,
    "precision": _precisions,
    "precisions": _precisions,
    "engine": _engines,
    "objective": _objectives,
}
"""Name of an option or argument -> its values."""

_SERVED: Mapping[str, Values] = {
    "model": _language_models,
    "draft_model": _language_models,
    "precision": _precisions_of_weights,
    "objective": _objectives_of_serving,
}
_RUNS: Mapping[str, Values] = {"precision": _precisions_of_runs, "objective": _objectives_of_runs}
_OF_COMMANDS: Mapping[str, Mapping[str, Values]] = {
    **dict.fromkeys(("generate", "best_generation", "simulate"), _SERVED),
    **dict.fromkeys(("run", "best_run"), _RUNS),
    "image": {"model": _pipelines, "precision": lambda: ("bf16", "fp16", "fp32")},
}
"""Command -> what its options take instead."""


def completed(command: str, parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter of a command, with the values that a shell offers for it where they are known."""
    values = {**_VALUES, **_OF_COMMANDS.get(command, {})}.get(parameter.name)
    type_, *infos = get_args(parameter.annotation) or (None,)
    if values is None or not infos or int in get_args(type_):
        return parameter
    info = copy(infos[0])
    info.autocompletion = _starting(values)
    return parameter.replace(annotation=Annotated[type_, info])


def _starting(values: Values) -> Callable[[str], list[str]]:
    """The values that begin as what was typed; after a comma, as what follows it."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + value for value in values() if value.startswith(last)]

    return complete
