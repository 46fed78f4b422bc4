"""Importer for the run logs of github.com/ConstantinNicolai/ml-operator-profiling (Nicolai, Heidelberg 2025).

Reads `operations.csv` and `networks.csv`. Three flaws are found by rules on the data, so that they are found in other
exports as well:

- Energy. The campaigns of 10 November 2024 multiply power by duration / iterations, which differs from their time
  per iteration by up to 50 %; the latter agrees with later campaigns within 0.3 %. Their energy is power x time here.
- Train mode. A forward "in inference" of a module that was left in train mode is neither inference nor training.
  Stochastic depth gives it away: in eval mode it does nothing. Where it takes time, batch norm (1.84 x slower so on
  the A30) and noise of that campaign are marked unusable.
- Power. A sensor that averages over idle time reads too little, never too much. Where a campaign reads lower power for
  the same large operations than another campaign on the same GPU, its power is marked unusable.
"""

from __future__ import annotations

import ast
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputError, unknown_name
from ...hardware import find_gpu
from ...operations.operation import Operation, real_precision
from ...operations.rules import Shape
from ..measurement import Card, Dataset, Measurement, NetworkMeasurement, refuse_lines
from .reading import card_of, importer, published, read_rows

# The last two, where the text is nested too deeply.
_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)

# Class name as printed: operation kind, and those of its attributes that are printed by name.
_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Conv2d": ("conv2d", ("kernel_size", "stride", "padding", "dilation", "groups", "bias")),
    "Linear": ("linear", ("out_features", "bias")),
    "BatchNorm2d": ("batch_norm", ("affine",)),
    "LayerNorm": ("layer_norm", ()),
    "LayerNorm2d": ("layer_norm", ()),
    **{
        name: (name.lower(), ())
        for name in ("ReLU", "ReLU6", "GELU", "SiLU", "Sigmoid", "Tanh", "Hardswish", "Hardsigmoid")
    },
    "Softmax": ("softmax", ("dim",)),
    "Dropout": ("dropout", ("p",)),
    "StochasticDepth": ("stochastic_depth", ("p", "mode")),
    "MaxPool2d": ("max_pool2d", ("kernel_size", "stride", "padding", "dilation", "ceil_mode")),
    "AvgPool2d": ("avg_pool2d", ("kernel_size", "stride", "padding", "ceil_mode")),
    "AdaptiveAvgPool2d": ("adaptive_avg_pool2d", ()),
}


def operation_from_repr(
    text: str, input_shape: Shape, *, precision: str = "default", mode: str = "inference"
) -> Operation:
    """Read the printed form of a torch module with one input tensor, such as "ReLU(inplace=True)", as an Operation.

    The precision is the one that is requested ("default", "fp32", "tf32", ...); the Operation gets the one that it runs
    in. Raises UnknownNameError: the module class does not correspond to an operation kind. Raises InputError: the text
    is not such a repr, or the input does not fit the module.
    """

    def literal(node: ast.expr) -> Any:
        # Some modules print enumerations without quotes: StochasticDepth(p=0.1, mode=row).
        return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)

    try:
        call: Any = ast.parse(text.strip(), mode="eval").body
        name: str = call.func.id
        given = [literal(argument) for argument in call.args]
        named = {keyword.arg: literal(keyword.value) for keyword in call.keywords}
        kind, names = _MODULES.get(name, ("", ()))
        attributes = {each: named[each] for each in names if each in named}
        if kind == "conv2d":
            attributes["out_channels"] = given[1]
        if kind == "layer_norm":
            attributes = {"normalized_shape": given[0], "affine": named.get("elementwise_affine", True)}
        if kind == "adaptive_avg_pool2d":
            attributes["output_size"] = named["output_size"]
    except (*_UNREADABLE, AttributeError, IndexError, KeyError) as error:
        allowed = "the text that print(module) shows, such as Linear(in_features=8, out_features=4)"
        raise InputError("this is not the repr of a torch module", given=text, allowed=allowed) from error
    if not kind:
        raise unknown_name("torch module", name, _MODULES)
    channels = named.get("in_features", given[0] if name in ("Conv2d", "BatchNorm2d") and given else None)
    actual = input_shape[-1 if name == "Linear" else 1] if len(input_shape) > 1 else None
    if channels is not None and channels != actual:
        raise InputError(
            f"a {name} for {channels} channels does not take this input",
            given=str(input_shape),
            allowed=f"a shape with {channels} channels",
        )
    return Operation(kind, [input_shape], attributes, precision=real_precision(kind, precision), mode=mode)


# An identity takes as long as the fastest loop of its campaign. What takes three times that does some work.
_IDENTITY_FACTOR = 3.0
_SAME = 1e-4
_RECOMPUTED = "energy recomputed as power x time: the source has power x duration / iterations"
_LARGE_S = 5e-4  # Operations of at least this size are bound by the device on every GPU of this source.
_LEAST_SHARED = 3
_LOWER_POWER = 0.97  # Repeats within one method differ by at most 2 %.
_MODE_DEPENDENT = ("batch_norm", "stochastic_depth", "dropout")


def _common(row: Mapping[str, str], line: int) -> dict[str, Any]:
    """What rows of both tables say: fields of a measurement."""
    numbers = {name: float(row[name]) for name in ("time_s", "power_w", "energy_j")}
    return {**numbers, "campaign": f"{row['source_file']}/{row['source_blob']}", "line": line}


def _asked(row: Mapping[str, str]) -> dict[str, Any]:
    """The shape, precision and mode of a row."""
    shape, precision = tuple(ast.literal_eval(row["input_shape"])), "default" if row["tf32"] == "True" else "fp32"
    return {"input_shape": shape, "precision": precision, "mode": row["mode"]}


def _measurement(row: Mapping[str, str], line: int, method: str) -> Measurement:
    values = _common(row, line)
    more = ("time_std_s", "power_std_w", "energy_std_j", "measured_for_s", "iterations")
    optional: dict[str, Any] = {name: float(row[name]) if row[name] else None for name in more}
    duration_s, iterations = optional.pop("measured_for_s"), optional.pop("iterations")
    power_w, expected_j = values["power_w"], values["power_w"] * values["time_s"]
    if iterations and duration_s:
        other_j = power_w * duration_s / int(iterations)
        as_other, as_expected = (abs(values["energy_j"] - each) <= _SAME * each for each in (other_j, expected_j))
        if as_other and not as_expected:
            values |= {"energy_j": expected_j, "remark": _RECOMPUTED}
    return Measurement(
        operation=operation_from_repr(row["module"], **_asked(row)),
        **values,
        **optional,
        iterations=None if iterations is None else int(iterations),
        duration_s=duration_s,
        method=method,
        started=row["started"],
    )


NUMBERS = ("time_s", "time_std_s", "power_w", "power_std_w", "energy_j", "energy_std_j", "iterations", "measured_for_s")
"""Columns of what was measured, in both tables."""
_COLUMNS = ["gpu", "tf32", "mode", "input_shape", *NUMBERS, "started", "source_file", "source_blob"]


@importer
def import_nicolai2025(folder: str | Path) -> list[Dataset]:
    """Read the two files of the source as one Dataset per GPU, at its default clock.

    Raises DatasetError, which names the lines: a file is missing or damaged, or lines are impossible or of unknown
    operations.
    """
    folder = Path(folder)
    rows = read_rows(folder / "operations.csv", [*_COLUMNS, "module"])
    with_training = {(row["source_file"], row["source_blob"]) for row in rows if row["mode"] == "training"}
    measurements: dict[str, list[Measurement]] = defaultdict(list)
    faults = []
    for line, row in enumerate(rows, start=2):
        # The campaigns that also measured training ran the forward outside inference mode.
        outside = (row["source_file"], row["source_blob"]) in with_training
        method = "forward" if outside else "forward_inference_mode"
        method = "forward_backward" if row["mode"] == "training" else method
        try:
            measurements[find_gpu(row["gpu"]).name].append(_measurement(row, line, method))
        except _UNREADABLE as error:  # of which InputError is one
            faults.append(f"line {line}: {error.what if isinstance(error, InputError) else error} ({row['module']})")
    refuse_lines(faults, str(folder / "operations.csv"))
    networks: dict[str, list[NetworkMeasurement]] = defaultdict(list)
    for line, row in enumerate(read_rows(folder / "networks.csv", [*_COLUMNS, "network"]), start=2):
        measured = NetworkMeasurement(network=row["network"], **_asked(row), **_common(row, line))
        networks[find_gpu(row["gpu"]).name].append(measured)
    datasets = []
    for gpu, found in measurements.items():
        marked = _mark_low_power(_mark_train_mode(found))
        datasets.append(Dataset(_card(gpu, marked), tuple(marked), tuple(networks.get(gpu, ()))))
    return datasets


def _mark_train_mode(measurements: list[Measurement]) -> list[Measurement]:
    """Mark operations that depend on the mode in campaigns whose inference ran modules in train mode."""
    inference = [m for m in measurements if m.operation.mode == "inference"]
    fastest_s: dict[str, float] = {}
    identities_s: dict[str, list[float]] = defaultdict(list)
    for m in inference:
        fastest_s[m.campaign] = min(m.time_s, fastest_s.get(m.campaign, m.time_s))
        if m.operation.is_identity and m.operation.attributes["p"]:
            identities_s[m.campaign].append(m.time_s)
    suspect = {
        campaign: statistics.median(times_s)
        for campaign, times_s in identities_s.items()
        if statistics.median(times_s) > _IDENTITY_FACTOR * fastest_s[campaign]
    }

    said = "ran in train mode: stochastic depth, an identity in eval mode, took {:.0f} us"
    return [
        _with_remark(m, said.format(suspect[m.campaign] * 1e6), usable=False)
        if m.operation.mode == "inference" and m.campaign in suspect and m.operation.kind in _MODE_DEPENDENT
        else m
        for m in measurements
    ]


def _with_remark(m: Measurement, remark: str, **flags: bool) -> Measurement:
    return replace(m, remark="; ".join(filter(None, (m.remark, remark))), **flags)  # type: ignore[arg-type]


def _mark_low_power(measurements: list[Measurement]) -> list[Measurement]:
    """Mark the power of campaigns that read the same operations lower than others of the same GPU."""
    readings_w: dict[Any, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for m in measurements:
        if m.time_s >= _LARGE_S and m.power_w is not None:
            readings_w[m.operation][m.campaign].append(m.power_w)
    ratios: dict[str, list[float]] = defaultdict(list)
    for by_campaign in readings_w.values():
        if len(by_campaign) > 1:
            means_w = {campaign: statistics.median(values_w) for campaign, values_w in by_campaign.items()}
            for campaign, mean_w in means_w.items():
                ratios[campaign].append(mean_w / max(means_w.values()))
    low = {
        campaign: statistics.median(values)
        for campaign, values in ratios.items()
        if len(values) >= _LEAST_SHARED and statistics.median(values) < _LOWER_POWER
    }

    said = "campaign reads {:.2f} of the power that others read for the same operations"
    return [
        _with_remark(m, said.format(low[m.campaign]), power_usable=False) if m.campaign in low else m
        for m in measurements
    ]


def _card(gpu: str, measurements: list[Measurement]) -> Card:
    days = sorted(m.started[:10] for m in measurements)
    used = {m.method for m in measurements}
    methods = published("nicolai2025")["card"]["method"]
    return card_of(
        "nicolai2025",
        gpu,
        method={name: text for name, text in methods.items() if name in used},
        measured=(days[0], days[-1]),
        limits=tuple(sorted({m.remark for m in measurements if m.remark})),
    )
