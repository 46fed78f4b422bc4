"""`joulecast extract`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import parse_shapes, titled
from ..operations.operation_list import operation_text
from ..units import si
from .arguments import (
    AsCsv,
    AsJson,
    CacheLength,
    Model,
    ModeOption,
    Optimizer,
    Precision,
    Shapes,
    Top,
    Training,
    mode_of,
    refuse_both,
    table,
)
from .models import Assumed, ModelOptions, assumed, model_and_options
from .tree import tree_text

if TYPE_CHECKING:
    from ..operations.network import Network


def extract(
    model: Model,
    input_shape: Shapes = None,
    training: Training = False,
    mode: ModeOption = None,
    precision: Precision = "default",
    cache_length: CacheLength = None,
    model_option: ModelOptions = None,
    assume: Assumed = None,
    optimizer: Optimizer = None,
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

    refuse_both(as_json, as_csv)
    networks = [
        extract_network(
            found,
            parse_shapes(input_shape),
            mode=mode_of(training, mode),
            precision=precision,
            cache_length=cache_length,
            assume=assumed(assume),
            model_options=options,
            optimizer=optimizer,
        )
        for name in (model, diff)
        if name is not None
        for found, options in [model_and_options(name, model_option)]
    ]
    network = networks[0]
    if diff is not None:
        difference = network.diff(networks[1])
        typer.echo(json.dumps(difference.to_dict(), indent=1) if as_json else str(difference))
    elif as_json:
        typer.echo(json.dumps(network.to_dict(), indent=1))
    elif as_csv:
        typer.echo(network.to_csv(), nl=False)
    else:
        body = _operation_table(network, top) if operations or top else tree_text(network, depth)
        typer.echo(_network_text(network, body))


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
                f"{operation.flops / moved:.3g}" if moved else "-",
                paths + (f", ... ({len(entry.module_paths)})" if len(entry.module_paths) > 2 else ""),
            ]
        )
    return rows


def _operation_table(network: Network, top: int) -> str:
    header = ["operation", "calls", "FLOPs", "bytes", "FLOP/B", "modules"]
    return table(header, _network_rows(network, top), frozenset({1, 2, 3, 4})) + "\n\n(FLOPs and bytes per call)"


def _network_text(network: Network, body: str) -> str:
    moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in network)
    parts = [
        f"{titled(network.name, network.input_shape)}, {network.mode}",
        "",
        body,
        "",
        f"{len(network)} operations, {network.calls} calls, {si(network.flops, 'FLOP')}, {si(moved, 'B')} moved",
    ]
    parts += [f"dropped: {d.count} x {d.name} ({d.reason}) in {', '.join(d.module_paths[:3])}" for d in network.dropped]
    parts += [f"assumed: {assumption}" for assumption in network.assumptions]
    return "\n".join(parts)
