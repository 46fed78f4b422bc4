"""What is known of models and GPUs: `joulecast extract`, `explain`, `models` and `gpus`."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import typer

from ..errors import InputError, UnknownNameError, unknown_name
from ..operations.inputs import parse_shapes
from ..rendering.described import Column, listing, quantity, word
from ..units import number, si
from .options import Asked, model_and_options, named_values
from .printing import Shown, table

if TYPE_CHECKING:
    from ..hardware import GPU
    from ..operations.network import Network
    from ..operations.operation import Operation


def tree_text(network: Network, depth: int) -> str:
    """One row per module down to a depth (0 for all). Each row includes its submodules, even those that are not shown.

    Numbered modules share a row, as in energy trees: "layer.*" with how many there are.
    """
    modules: dict[tuple[str, ...], set[str]] = {}
    calls: dict[tuple[str, ...], Counter[Operation]] = {}
    own: dict[tuple[str, ...], Counter[Operation]] = {}
    for entry in network:
        for path, count in entry.by_module.items():
            names = path.split(".") if path else []
            for level in range(len(names) + 1):
                place = tuple("*" if name.isdecimal() else name for name in names[:level])
                modules.setdefault(place, set()).add(".".join(names[:level]))
                calls.setdefault(place, Counter())[entry.operation] += count
            own.setdefault(place, Counter())[entry.operation] += count
    first = {place: at for at, place in enumerate(calls)}
    # In the order of first use, each module before what is in it.
    order = sorted(calls, key=lambda place: [first[place[:level]] for level in range(len(place) + 1)])
    rows = []
    for place in order:
        if depth and len(place) > depth:
            continue
        flops = sum(count * operation.flops for operation, count in calls[place].items())
        moved = sum(count * (each.bytes_read + each.bytes_written) for each, count in calls[place].items())
        kinds: Counter[str] = Counter()
        for operation, count in (calls[place] if depth == len(place) > 0 else own.get(place, Counter())).items():
            kinds[operation.kind] += count
        row = [
            "  " * len(place) + (".".join(place) or "(model)"),
            str(len(modules[place])) if len(modules[place]) > 1 else "",
            str(calls[place].total()),
            si(flops, "FLOP"),
            si(moved, "B"),
            number(flops / moved) if moved else "-",
            ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds.most_common()),
        ]
        rows.append(row)
    return table(["module", "times", "calls", "FLOPs", "bytes", "FLOP/B", "operations"], rows, frozenset(range(1, 6)))


def extract(
    asked: Asked, shown: Shown, depth: int = 3, operations: bool = False, top: int = 0, diff: str | None = None
) -> None:
    """List the operations of a model by module, with counts, FLOPs and bytes. Needs neither a GPU nor weights."""
    from ..api import extract as extract_network

    network = extract_network(**asked)
    if diff is not None:
        asked["model"], asked["model_options"] = model_and_options(diff, asked.given["model_option"])
        difference = network.diff(extract_network(**asked))
        shown.tell(difference, lambda: difference)
    else:
        said = network.described(top)
        if not (operations or top):
            said = replace(said, parts=[tree_text(network, depth), said.parts[-1]])
        shown.tell(network, lambda: said)


# `joulecast explain`.

_SHOWN = 8


def explain(
    asked: Asked,
    shown: Shown,
    kind: str,
    shapes: list[str],
    gpu: str,
    setting: list[str] | None = None,
    precision: str = "fp32",
    path: bool = False,
) -> None:
    """Explain an operation's prediction: what bounds it, the nearest measurements, and the effect of each input."""
    from ..api.operations import explain as explain_operation
    from ..operations.operation import Operation

    parsed = parse_shapes(shapes)
    if not isinstance(parsed, list | tuple) or not parsed:
        raise InputError(
            "an operation needs the shape of each input", given=" ".join(shapes), allowed="32,64,56,56 ..."
        )
    listed = [parsed] if isinstance(parsed[0], int) else list(parsed)
    operation = Operation(
        kind, listed, named_values(setting, "an attribute"), precision=precision, mode=asked.pop("mode")
    )
    explanation = explain_operation(operation, gpu, **asked)
    shown.tell(explanation)
    if path and not shown.as_json:
        typer.echo(_path_text(operation, gpu, asked.get("predictor")))


def _path_text(operation: Operation, gpu: str, predictor: str | None) -> str:
    """The questions of the first tree for each quantity, and the inputs that all its trees ask about most."""
    from ..hardware import find_gpu
    from ..predictors.regressors.trees import decisions
    from ..zoo import find_predictor

    parts = []
    known = find_predictor(find_gpu(gpu), operation.mode, predictor).operations
    for what, found in decisions(known, operation).items():
        asked = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.asked[:_SHOWN])
        parts += ["", f"the trees for {what} ask about {asked}; the first of them:"]
        parts += [f"{number:3}. {step}" for number, step in enumerate(found.path, 1)]
    return "\n".join(parts) or "\nthis predictor has no trees of its own"


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

    def has(gpu: GPU, word: str) -> bool:
        facts = (gpu.name, *gpu.aliases, gpu.architecture, gpu.chip, gpu.compute_capability)
        return word.lower() in " ".join(facts).lower()

    chosen = [gpu for gpu in gpus().values() if all(has(gpu, word) for word in wanted)]
    if not chosen:
        generations = dict.fromkeys(gpu.architecture for gpu in gpus().values())
        raise UnknownNameError(
            "no GPU of the catalogue matches all these words",
            given=" ".join(wanted),
            allowed=f"parts of names, chips and generations ({', '.join(generations)})",
            hint="`joulecast gpus` lists all",
        )
    data = measured_gpus()

    def operations(gpu: GPU) -> str:
        measured = data.get(gpu.name)
        return "-" if measured is None else f"{measured.operations or '-'}{'' if measured.has_power else ' t'}"

    low = ("nvfp4", "fp8", "bf16", "fp16")  # in which generations differ most; `gpus show` prints all
    columns = [
        Column("GPU", lambda gpu: gpu.aliases[0], right=False),
        word("generation", "architecture"),
        Column("GB", lambda gpu: f"{gpu.memory_bytes / 1e9:.0f}"),
        Column("GB/s", lambda gpu: f"{gpu.memory_bandwidth / 1e9:.0f}"),
        Column("MHz", lambda gpu: f"{gpu.min_clock_mhz}-{gpu.max_clock_mhz}"),
        quantity("cap W", "power_limit_w", "{:g}".format),
        Column("lowest", lambda gpu: next((each for each in low if each in gpu.peak_flops), "-"), right=False),
        Column("operations", operations),
        Column("networks", lambda gpu: str((gpu.name in data and data[gpu.name].networks) or "-")),
    ]
    typer.echo(str(listing(chosen, columns)))
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
    rows = []
    for field in fields(gpu):
        value = getattr(gpu, field.name)
        if value is None or field.name in ("name", "sources"):
            continue
        if field.name in ("voltage", "idle_curve"):
            value = {inner.name: getattr(value, inner.name) for inner in fields(value)}
        rows.append([field.name, _figure(value)])
    sources = [f"  {source}" for source in gpu.sources] or ["  none named"]
    last = [f"measured: {measured}", f"predictors: {mine}"]
    return "\n".join([gpu.name, "", table(["figure", "value"], rows), "", "sources", *sources, "", *last])


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
