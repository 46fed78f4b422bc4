"""`joulecast extract`: the operations of a model, as the tree of its modules or as a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes, titled
from ..operations.operation_list import operation_text
from ..units import number, si
from .options import Asked, model_and_options, named_values
from .printing import Column, Shown, listing, table

if TYPE_CHECKING:
    from ..operations.entry import Entry
    from ..operations.network import Network
    from ..operations.operation import Operation
    from ..predictors.explanation import Explanation


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
        shown = calls[place] if depth == len(place) > 0 else own.get(place, Counter())
        row = [
            "  " * len(place) + (".".join(place) or "(model)"),
            str(len(modules[place])) if len(modules[place]) > 1 else "",
            str(calls[place].total()),
            si(flops, "FLOP"),
            si(moved, "B"),
            number(flops / moved) if moved else "-",
            _kinds(shown),
        ]
        rows.append(row)
    return table(["module", "times", "calls", "FLOPs", "bytes", "FLOP/B", "operations"], rows, frozenset(range(1, 6)))


def _kinds(operations: Counter[Operation]) -> str:
    kinds: Counter[str] = Counter()
    for operation, count in operations.items():
        kinds[operation.kind] += count
    return ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds.most_common())


def extract(
    asked: Asked, shown: Shown, depth: int = 3, operations: bool = False, top: int = 0, diff: str | None = None
) -> None:
    """List the operations of a model by module, with counts, FLOPs and bytes. Needs neither a GPU nor weights."""
    from ..api import extract as extract_network

    network = extract_network(**asked)
    if diff is not None:
        asked["model"], asked["model_options"] = model_and_options(diff, asked.given["model_option"])
        difference = network.diff(extract_network(**asked))
        shown.tell(difference, lambda: str(difference))
    else:
        shown.tell(network, lambda: _network_text(network, depth, top if operations or top else None))


def _operation_table(network: Network, top: int) -> str:
    def moved(entry: Entry) -> int:
        return entry.operation.bytes_read + entry.operation.bytes_written

    def modules(entry: Entry) -> str:
        paths = ", ".join(path or "(model)" for path in entry.module_paths[:2])
        return paths + (f", ... ({len(entry.module_paths)})" if len(entry.module_paths) > 2 else "")

    columns = [
        Column("operation", lambda entry: operation_text(entry.operation), right=False),
        Column("calls", lambda entry: str(entry.count)),
        Column("FLOPs", lambda entry: si(entry.operation.flops, "FLOP")),
        Column("bytes", lambda entry: si(moved(entry), "B")),
        Column("FLOP/B", lambda entry: number(entry.operation.flops / moved(entry)) if moved(entry) else "-"),
        Column("modules", modules, right=False),
    ]
    entries = network.entries if not top else sorted(network, key=lambda e: -e.count * e.operation.flops)[:top]
    return listing(entries, columns) + "\n\n(FLOPs and bytes per call)"


def _network_text(network: Network, depth: int, top: int | None) -> str:
    moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in network)
    parts = [
        f"{titled(network.name, network.input_shape)}, {network.mode}",
        "",
        tree_text(network, depth) if top is None else _operation_table(network, top),
        "",
        f"{len(network)} operations, {network.calls} calls, {si(network.flops, 'FLOP')}, {si(moved, 'B')} moved",
    ]
    parts += [f"dropped: {d.count} x {d.name} ({d.reason}) in {', '.join(d.module_paths[:3])}" for d in network.dropped]
    parts += [f"assumed: {assumption}" for assumption in network.assumptions]
    return "\n".join(parts)


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
    shown.tell(explanation, lambda: _text(explanation))
    if path and not shown.as_json:
        typer.echo(_path_text(operation, gpu, asked.get("predictor")))


def _path_text(operation: Operation, gpu: str, predictor: str | None) -> str:
    """The questions of the first tree for each quantity, and the inputs that all its trees ask about most."""
    from ..hardware import find_gpu
    from ..predictors.regressors.trees import decisions
    from ..zoo import find_predictor

    parts = []
    for quantity, found in decisions(
        find_predictor(find_gpu(gpu), operation.mode, predictor).operations, operation
    ).items():
        asked = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.asked[:_SHOWN])
        parts += ["", f"the trees for {quantity} ask about {asked}; the first of them:"]
        parts += [f"{number:3}. {step}" for number, step in enumerate(found.path, 1)]
    return "\n".join(parts) or "\nthis predictor has no trees of its own"


def _text(e: Explanation) -> str:
    return "\n\n".join([e.title, *(table(*each) for each in e.tables() if each.rows), *e.sentences()])
