"""`joulecast predict` and `joulecast extract`."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..inputs import shape_text
from .arguments import parse_shape, si, table

if TYPE_CHECKING:
    from ..networks import Network
    from ..operations import Operation
    from ..predictors.prediction import OperationCost, Prediction

_Model = Annotated[str, typer.Argument(help="A torchvision classification model, or a network saved as JSON.")]
_Shape = Annotated[str | None, typer.Argument(help="Input shape, batch first, such as 32,3,224,224.")]
_Training = Annotated[bool, typer.Option("--training", help="Forward and backward instead of inference.")]
_Precision = Annotated[str, typer.Option(help="default, fp32, tf32, fp16 or bf16.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Csv = Annotated[bool, typer.Option("--csv", help="Print the operations as CSV.")]
_Top = Annotated[int, typer.Option(min=0, help="How many operations to show; 0 for all.")]

_LEVEL = 0.9


def predict(
    model: _Model,
    input_shape: _Shape = None,
    gpu: Annotated[str, typer.Option(help="GPU from the catalogue, such as A30.")] = "",
    clock: Annotated[float | None, typer.Option(help="Graphics clock in MHz; the GPU's default if left out.")] = None,
    training: _Training = False,
    precision: _Precision = "default",
    predictor: Annotated[str | None, typer.Option(help="A zoo name or the folder of an entry.")] = None,
    composition: Annotated[str | None, typer.Option(help="overlap or sum; the better one if left out.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail where an operation is not covered.")] = False,
    top: _Top = 10,
    as_json: _Json = False,
    as_csv: _Csv = False,
) -> None:
    """Predict time, power and energy of one iteration of a model on a GPU."""
    from ..api import predict as predict_network

    _refuse_both(as_json, as_csv)
    if not gpu:
        raise InputError(
            "a prediction needs a GPU",
            given="no --gpu",
            allowed="such as --gpu A30",
            hint="`joulecast gpus` lists them",
        )
    prediction = predict_network(
        model,
        parse_shape(input_shape),
        gpu,
        clock,
        mode="training" if training else "inference",
        precision=precision,
        predictor=predictor,
        composition=composition,
        strict=strict,
    )
    if as_json:
        typer.echo(json.dumps(prediction.to_json(), indent=1))
    elif as_csv:
        typer.echo(prediction.to_csv(), nl=False)
    else:
        typer.echo(_prediction_text(prediction, top))


def extract(
    model: _Model,
    input_shape: _Shape = None,
    training: _Training = False,
    precision: _Precision = "default",
    top: _Top = 0,
    as_json: _Json = False,
    as_csv: _Csv = False,
) -> None:
    """List the operations of a model with their counts, FLOPs and bytes; needs no GPU and no weights."""
    from ..api import extract as extract_network

    _refuse_both(as_json, as_csv)
    network = extract_network(
        model, parse_shape(input_shape), mode="training" if training else "inference", precision=precision
    )
    if as_json:
        typer.echo(json.dumps(network.to_json(), indent=1))
    elif as_csv:
        typer.echo(_network_csv(network), nl=False)
    else:
        typer.echo(_network_text(network, top))


def _refuse_both(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise InputError("output is either JSON or CSV", given="--json --csv", hint="leave one of them out")


def _range_text(low_high: tuple[float, float] | None, unit: str) -> str:
    return "" if low_high is None else f"{si(low_high[0], unit)} to {si(low_high[1], unit)}"


def _prediction_text(prediction: Prediction, top: int) -> str:
    interval = prediction.interval(_LEVEL) if prediction.supports(_LEVEL) else None
    totals = [
        ["time", si(prediction.time_s, "s"), _range_text(interval.time_s if interval else None, "s")],
        ["power", si(prediction.power_w, "W"), _range_text(interval.power_w if interval else None, "W")],
        ["energy", si(prediction.energy_j, "J"), _range_text(interval.energy_j if interval else None, "J")],
        ["energy-delay product", si(prediction.edp_js, "Js"), _range_text(interval.edp_js if interval else None, "Js")],
    ]
    header = ["per iteration", "predicted", f"{100 * _LEVEL:.0f} % interval" if interval else ""]
    bound = "host" if prediction.host_time_s > prediction.device_time_s else "device"
    parts = [
        f"{prediction.network} {shape_text(prediction.input_shape)}, {prediction.mode}, on {prediction.gpu} at "
        f"{prediction.clock_mhz:g} MHz",
        "",
        table(header, totals, frozenset({1})),
        *_incomplete(prediction),
        "",
        f"bound by the {bound}: device {si(prediction.device_time_s, 's')}, host {si(prediction.host_time_s, 's')}; "
        f"predictor {prediction.predictor}, composition {prediction.composition}",
        "",
        _cost_table(prediction, top),
    ]
    if prediction.uncovered:
        listed = "\n".join(f"  {cost.count} x {cost.operation}" for cost in prediction.uncovered)
        parts += ["", f"not covered, and not in the totals:\n{listed}"]
    parts += ["", *(f"note: {note}" for note in prediction.notes)] if prediction.notes else []
    return "\n".join(parts)


def _incomplete(prediction: Prediction) -> list[str]:
    if not prediction.uncovered:
        return []
    share = 100 * prediction.uncovered_flops_share
    missing = len(prediction.uncovered)
    return ["", f"INCOMPLETE: {missing} operations with {share:.0f} % of the FLOPs are not covered, see below"]


def _cost_table(prediction: Prediction, top: int) -> str:
    costs = sorted(
        (cost for cost in prediction.operations if cost.energy_j is not None), key=lambda cost: -(cost.energy_j or 0.0)
    )
    shown = costs[: top or None]
    rows = [_cost_row(cost, prediction.energy_j) for cost in shown]
    text = table(
        ["operation", "calls", "device time", "power", "energy", "share", "source"], rows, frozenset({1, 2, 3, 4, 5})
    )
    rest = costs[len(shown) :]
    if rest:
        joules = sum(cost.energy_j or 0.0 for cost in rest)
        text += f"\nand {len(rest)} more operations: {si(joules, 'J')}, {100 * joules / prediction.energy_j:.1f} %"
    return text


def _cost_row(cost: OperationCost, total_j: float) -> list[str]:
    return [
        _operation_text(cost.operation),
        str(cost.count),
        si(cost.device_time_s, "s"),
        si(cost.power_w, "W"),
        si(cost.energy_j, "J"),
        f"{100 * (cost.energy_j or 0.0) / total_j:.1f} %",
        cost.source,
    ]


def _operation_text(operation: Operation) -> str:
    """Short, but enough to tell the operations of a network apart."""
    shapes = ["x".join(map(str, shape)) for shape in operation.input_shapes]
    out = "x".join(map(str, operation.output_shape))
    names: dict[str, Any] = {"kernel_size": "k", "stride": "s", "groups": "g"}
    details = " ".join(
        f"{short}{operation.attributes[name]}"
        for name, short in names.items()
        if name in operation.attributes and operation.attributes[name] not in (1, None)
    )
    inputs = f"{len(shapes)} inputs" if len(shapes) > 3 else ", ".join(shapes)
    change = out if set(shapes) == {out} else f"{inputs} -> {out}"
    return f"{operation.kind} {change}" + (f" {details}" if details else "") + f" {operation.precision}"


def _network_rows(network: Network, top: int) -> list[list[str]]:
    entries = network.entries if not top else sorted(network, key=lambda e: -e.count * e.operation.flops)[:top]
    rows = []
    for entry in entries:
        operation = entry.operation
        moved = operation.bytes_read + operation.bytes_written
        paths = ", ".join(path or "(model)" for path in entry.module_paths[:2])
        rows.append(
            [
                _operation_text(operation),
                str(entry.count),
                si(operation.flops, "FLOP"),
                si(moved, "B"),
                f"{operation.flops / moved:.3g}" if moved else "-",
                paths + (f", ... ({len(entry.module_paths)})" if len(entry.module_paths) > 2 else ""),
            ]
        )
    return rows


def _network_text(network: Network, top: int) -> str:
    header = ["operation", "calls", "FLOPs", "bytes", "FLOP/B", "modules"]
    moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in network)
    parts = [
        f"{network.name} {shape_text(network.input_shape)}, {network.mode}",
        "",
        table(header, _network_rows(network, top), frozenset({1, 2, 3, 4})),
        "",
        f"{len(network)} operations, {network.calls} calls, {si(network.flops, 'FLOP')}, {si(moved, 'B')} moved "
        "(per call above, in all here)",
    ]
    parts += [f"dropped: {d.count} x {d.name} ({d.reason}) in {', '.join(d.module_paths[:3])}" for d in network.dropped]
    return "\n".join(parts)


def _network_csv(network: Network) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "kind",
            "input_shapes",
            "attributes",
            "precision",
            "mode",
            "count",
            "flops",
            "bytes_read",
            "bytes_written",
            "parameters",
            "module_paths",
        ]
    )
    for entry in network:
        operation = entry.operation
        value = operation.to_json()
        writer.writerow(
            [
                operation.kind,
                json.dumps(value["input_shapes"]),
                json.dumps(value["attributes"]),
                operation.precision,
                operation.mode,
                entry.count,
                operation.flops,
                operation.bytes_read,
                operation.bytes_written,
                operation.parameters,
                " ".join(entry.module_paths),
            ]
        )
    return text.getvalue()
