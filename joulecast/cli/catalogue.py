"""`joulecast gpus` and `joulecast models`: what can be predicted by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..errors import InputError, UnknownNameError, unknown_name
from .printing import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hardware import GPU
    from ..zoo.cards import Measured

# The precisions in which generations differ most; `gpus show` prints all.
_LOW_PRECISIONS = ("nvfp4", "fp8", "bf16", "fp16")
_HEADER = ("GPU", "generation", "GB", "GB/s", "MHz", "cap W", "lowest", "operations", "networks")


def list_gpus(words: list[str] | None = None, search: str = "") -> None:
    """List the GPUs of the catalogue, how much was measured on each, and its predictors.

    `joulecast gpus ampere` lists one generation. `joulecast gpus show A30` prints all figures of a GPU with their
    sources, and `joulecast gpus show my-gpu.toml` those of a GPU that a file describes.
    """
    from ..hardware import gpus
    from ..zoo.cards import measured_gpus

    wanted = [*(words or []), *search.split()]
    if wanted[:1] == ["show"]:
        typer.echo(_shown(" ".join(wanted[1:])))
        return
    chosen = [gpu for gpu in gpus().values() if all(word.lower() in _searched(gpu) for word in wanted)]
    if not chosen:
        generations = dict.fromkeys(gpu.architecture for gpu in gpus().values())
        raise UnknownNameError(
            "no GPU of the catalogue matches all these words",
            given=" ".join(wanted),
            allowed=f"parts of names, chips and generations ({', '.join(generations)})",
            hint="`joulecast gpus` lists all",
        )
    measured = measured_gpus()
    rows = [_row(gpu, measured) for gpu in chosen]
    typer.echo(table(list(_HEADER), rows, frozenset({2, 3, 4, 5, 7, 8})))
    typer.echo(
        "\nGB: 10^9 bytes; lowest: precision of its tensor cores; operations, networks: measurements behind\n"
        "predictors (t: times only); others rest on data sheets\n"
        "`joulecast gpus ampere` filters, `joulecast gpus show A30` prints all of one"
    )


def _shown(name: str) -> str:
    """All figures of a GPU, and how much was measured on it."""
    from ..hardware import find_gpu
    from ..zoo import entries
    from ..zoo.cards import measured_gpus

    if not name:
        raise InputError(
            "`gpus show` needs the name of a GPU", given="no name", allowed="such as joulecast gpus show A30"
        )
    gpu = find_gpu(name)
    measured = measured_gpus().get(gpu.name, "nothing by the zoo's predictors; predicted from its data sheet")
    mine = ", ".join(name for name in entries() if name.startswith(f"{gpu.slug}/")) or "those for any GPU"
    return f"{_all_figures(gpu)}\n\nmeasured: {measured}\npredictors: {mine}"


def _row(gpu: GPU, measured: Mapping[str, Measured]) -> list[str]:
    data = measured.get(gpu.name)
    operations = "-" if data is None else f"{data.operations or '-'}{'' if data.has_power else ' t'}"
    return [
        gpu.aliases[0],
        gpu.architecture,
        f"{gpu.memory_bytes / 1e9:.0f}",
        f"{gpu.memory_bandwidth / 1e9:.0f}",
        f"{gpu.min_clock_mhz}-{gpu.max_clock_mhz}",
        f"{gpu.power_limit_w:g}",
        next((precision for precision in _LOW_PRECISIONS if precision in gpu.peak_flops), "-"),
        operations,
        "-" if data is None else str(data.networks or "-"),
    ]


def _searched(gpu: GPU) -> str:
    return " ".join((gpu.name, *gpu.aliases, gpu.architecture, gpu.chip, gpu.compute_capability)).lower()


def _all_figures(gpu: GPU) -> str:
    from dataclasses import fields

    rows = []
    for field in fields(gpu):
        value = getattr(gpu, field.name)
        if value is None or field.name in ("name", "sources"):
            continue
        if field.name in ("voltage", "idle_curve"):
            value = {inner.name: getattr(value, inner.name) for inner in fields(value)}
        rows.append([field.name, _figure(value)])
    sources = [f"  {source}" for source in gpu.sources] or ["  none named"]
    return "\n".join([gpu.name, "", table(["figure", "value"], rows), "", "sources", *sources])


def _figure(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_figure(inner)}" for key, inner in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(_figure, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def list_models(words: list[str] | None = None, search: str = "") -> None:
    """List the models that are known by name, with the repository whose sizes they have, and the commands for them.

    `joulecast models llama` lists those with this text in their name or repository. Any other model of torchvision and
    timm can be given by name, too, where that library is installed.
    """
    from ..extraction.models.language_models import BY_NAME, LANGUAGE_MODELS, SAME_ARCHITECTURE
    from ..extraction.models.spelling import known_as, known_names
    from ..generation.images.pipelines import PIPELINES, spelled_pipeline

    wanted = " ".join([*(words or []), *search.split()])
    sources = {name: row.source for name, row in PIPELINES.items()}
    meant = {known_as(wanted), spelled_pipeline(wanted)}
    sources |= {known_as(repository): repository for repository in SAME_ARCHITECTURE}
    rows = []
    for name in sorted({*known_names(), *PIPELINES}):
        source = BY_NAME[name].source if name in BY_NAME else sources.get(name, "")
        commands = "image" if name in PIPELINES else "predict, generate" if name in LANGUAGE_MODELS else "predict"
        searched = f"{name} {source} {commands}".lower()
        if all(word in searched for word in wanted.lower().split()) or name in meant:
            rows.append([name, commands, source])
    if not rows:
        raise unknown_name("model", wanted, {*known_names(), *PIPELINES}, hint="search for a part of its name")
    typer.echo(table(["name", "commands", "repository"], rows))
