"""`joulecast extract`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import titled
from ..operations.operation_list import operation_text
from ..units import number, si
from .options import MODEL, AsCsv, AsJson, Asked, Top, asking
from .printing import table, tell
from .reading import model_and_options
from .tree import tree_text

if TYPE_CHECKING:
    from ..operations.network import Network


@asking(*MODEL, "precision")
def extract(
    asked: Asked,
    depth: Annotated[int, typer.Option(min=0, help="Levels of the module tree to show; 0 for all.")] = 3,
    operations: Annotated[
        bool, typer.Option("--operations", help="Show one row per operation instead of the module tree.")
    ] = False,
    top: Top = 0,
    diff: Annotated[
        str | None,
        typer.Option(help="Show the differences from another model at the same shape, or from a network file."),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the operations of a model by module, with counts, FLOPs and bytes. Needs neither a GPU nor weights."""
    from ..api import extract as extract_network

    network = extract_network(**asked)
    if diff is not None:
        asked["model"], asked["model_options"] = model_and_options(diff, asked.given["model_option"])
        difference = network.diff(extract_network(**asked))
        tell(difference, as_json, False, lambda: str(difference))
    else:
        tell(network, as_json, as_csv, lambda: _network_text(network, depth, top if operations or top else None))


def _network_rows(network: Network, top: int) -> list[list[str]]:
    entries = network.entries if not top else sorted(network, key=lambda e: -e.count * e.operation.flops)[:top]
    rows = []
    for entry in entries:
        operation = entry.operation
        moved = operation.bytes_read + operation.bytes_written
        paths = ", ".join(path or "(model)" for path in entry.module_paths[:2])
        rows.append(
            [
                operation_text(operation),
                str(entry.count),
                si(operation.flops, "FLOP"),
                si(moved, "B"),
                number(operation.flops / moved) if moved else "-",
                paths + (f", ... ({len(entry.module_paths)})" if len(entry.module_paths) > 2 else ""),
            ]
        )
    return rows


def _operation_table(network: Network, top: int) -> str:
    header = ["operation", "calls", "FLOPs", "bytes", "FLOP/B", "modules"]
    return table(header, _network_rows(network, top), frozenset({1, 2, 3, 4})) + "\n\n(FLOPs and bytes per call)"


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
