"""`joulecast explain`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes
from ..operations.operation_list import operation_text
from ..units import si
from .options import Asked
from .printing import table, tell

if TYPE_CHECKING:
    from ..operations.operation import Operation
    from ..predictors.explanation import Explanation

_SHOWN = 8


def explain(
    asked: Asked,
    kind: str,
    shapes: list[str],
    gpu: str,
    setting: list[str] | None = None,
    precision: str = "fp32",
    path: bool = False,
    as_json: bool = False,
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
        kind, listed, dict(map(_attribute, setting or ())), precision=precision, mode=asked.pop("mode")
    )
    explanation = explain_operation(operation, gpu, **asked)
    tell(explanation, as_json, False, lambda: _text(explanation))
    if path and not as_json:
        typer.echo(_path_text(operation, gpu, asked.get("predictor")))


def _path_text(operation: Operation, gpu: str, predictor: str | None) -> str:
    """The questions of the first tree for each quantity, and the inputs that all its trees ask about most."""
    from ..hardware import find_gpu
    from ..predictors.regressors.decisions import decisions
    from ..zoo import find_predictor

    parts = []
    for quantity, found in decisions(
        find_predictor(find_gpu(gpu), operation.mode, predictor).operations, operation
    ).items():
        asked = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.asked[:_SHOWN])
        parts += ["", f"the trees for {quantity} ask about {asked}; the first of them:"]
        parts += [f"{number:3}. {step}" for number, step in enumerate(found.path, 1)]
    return "\n".join(parts) or "\nthis predictor has no trees of its own"


def _attribute(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError("an attribute is written as name=value", given=text, allowed="such as out_channels=64")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _text(e: Explanation) -> str:
    longer = {"compute": "arithmetic", "memory": "memory traffic", "launch": "its launch"}[e.bound_by]
    rows = [
        ["arithmetic, least time by the data sheet", si(e.compute_s, "s")],
        ["memory traffic, least time by the data sheet", si(e.memory_s, "s")],
        ["GPU, predicted", si(e.device_time_s, "s")],
        ["launch in a loop, predicted", si(e.host_time_s, "s")],
    ]
    parts = [
        f"{operation_text(e.operation)}, {e.operation.mode}, on {e.gpu} at {e.clock_mhz:g} MHz; "
        f"predictor {e.predictor}, {e.source}",
        "",
        _totals(e),
        "",
        f"bound by {longer}; the GPU reaches {100 * e.efficiency:.0f} % of its data sheet",
        "",
        table(["what", "time"], rows, frozenset({1})),
    ]
    parts += ["", *e.remarks] if e.remarks else []
    if e.calibration:
        parts += ["", "calibrated: " + ", ".join(f"{name} x {factor:.3f}" for name, factor in e.calibration.items())]
    if e.far_outside:
        parts += ["", "far outside of all measurements"]
    if e.nearest:
        near = [
            [
                operation_text(n.operation),
                f"{n.distance:.2f}",
                *(si(value, unit) for value, unit in ((n.time_s, "s"), (n.power_w, "W"), (n.energy_j, "J"))),
            ]
            for n in e.nearest
        ]
        header = ["nearest measured, as predicted", "distance", "time", "power", "energy"]
        parts += ["", table(header, near, frozenset({1, 2, 3, 4}))]
    for quantity, found in (e.contributions or {}).items():
        shown = [
            [
                c.name,
                "" if math.isnan(c.value) else f"{c.value:.3g}",
                f"x {c.effect:.3f}" if quantity == "time" else f"{c.effect:+.1f} W",
            ]
            for c in found[:_SHOWN]
        ]
        parts += ["", table([f"input of the trees for {quantity}", "value", "effect"], shown, frozenset({1, 2}))]
    return "\n".join(parts)


def _totals(e: Explanation) -> str:
    rows = []
    for name, unit in (("time_s", "s"), ("power_w", "W"), ("energy_j", "J")):
        low, high = (float(bound[0]) for bound in getattr(e.interval, name)) if e.interval else (math.nan, math.nan)
        shown = "" if math.isnan(low) else f"{si(low, unit)} to {si(high, unit)}"
        rows.append([name.split("_")[0], si(getattr(e, name), unit), shown])
    return table(["in a loop", "predicted", "90 % interval"], rows, frozenset({1}))
