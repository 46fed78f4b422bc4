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
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputError, unknown_name
from ...hardware import find_gpu
from ...operations.operation import Operation, real_precision
from ...operations.rules import Shape
from ..measurement import Card, Dataset, Measurement, NetworkMeasurement, refuse_lines
from .reading import card_of, importer, published, read_rows

Arguments = tuple[list[Any], dict[str, Any]]

# The last two, where the text is nested too deeply.
_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)


def _literal(node: ast.expr) -> Any:
    # Some modules print enumerations without quotes: StochasticDepth(p=0.1, mode=row).
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _parse(text: str) -> tuple[str, Arguments]:
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise SyntaxError("not a call")  # noqa: TRY004
        positional = [_literal(argument) for argument in call.args]
        named = {keyword.arg: _literal(keyword.value) for keyword in call.keywords if keyword.arg is not None}
    except _UNREADABLE as error:
        raise InputError(
            "this is not the repr of a torch module",
            given=text,
            allowed="such as Linear(in_features=8, out_features=4)",
        ) from error
    return call.func.id, (positional, named)


def _conv2d(arguments: Arguments) -> dict[str, Any]:
    (_, out_channels), named = arguments
    names = ("kernel_size", "stride", "padding", "dilation", "groups", "bias")
    return {"out_channels": out_channels, **{name: named[name] for name in names if name in named}}


def _layer_norm(arguments: Arguments) -> dict[str, Any]:
    return {"normalized_shape": arguments[0][0], "affine": arguments[1].get("elementwise_affine", True)}


def _named(*names: str) -> Callable[[Arguments], dict[str, Any]]:
    return lambda arguments: {name: arguments[1][name] for name in names if name in arguments[1]}


# Class name as printed: (operation kind, attributes from the printed arguments).
_MODULES: dict[str, tuple[str, Callable[[Arguments], dict[str, Any]]]] = {
    "Conv2d": ("conv2d", _conv2d),
    "Linear": ("linear", _named("out_features", "bias")),
    "BatchNorm2d": ("batch_norm", _named("affine")),
    **dict.fromkeys(("LayerNorm", "LayerNorm2d"), ("layer_norm", _layer_norm)),
    **{
        name: (name.lower(), _named())
        for name in ("ReLU", "ReLU6", "GELU", "SiLU", "Sigmoid", "Tanh", "Hardswish", "Hardsigmoid")
    },
    "Softmax": ("softmax", _named("dim")),
    "Dropout": ("dropout", _named("p")),
    "StochasticDepth": ("stochastic_depth", _named("p", "mode")),
    "MaxPool2d": ("max_pool2d", _named("kernel_size", "stride", "padding", "dilation", "ceil_mode")),
    "AvgPool2d": ("avg_pool2d", _named("kernel_size", "stride", "padding", "ceil_mode")),
    "AdaptiveAvgPool2d": ("adaptive_avg_pool2d", lambda arguments: {"output_size": arguments[1]["output_size"]}),
}


def operation_from_repr(
    text: str, input_shape: Shape, *, precision: str = "default", mode: str = "inference"
) -> Operation:
    """Read the printed form of a torch module with one input tensor, such as "ReLU(inplace=True)", as an Operation.

    The precision is the one that is requested ("default", "fp32", "tf32", ...); the Operation gets the one that it runs
    in. Raises UnknownNameError: the module class does not correspond to an operation kind. Raises InputError: the text
    is not such a repr, or the input does not fit the module.
    """
    name, arguments = _parse(text)
    if name not in _MODULES:
        raise unknown_name("torch module", name, _MODULES)
    kind, read = _MODULES[name]
    positional, named = arguments
    channels = named.get("in_features", positional[0] if name in ("Conv2d", "BatchNorm2d") and positional else None)
    actual = input_shape[-1 if name == "Linear" else 1] if len(input_shape) > 1 else None
    if channels is not None and channels != actual:
        raise InputError(
            f"a {name} for {channels} channels does not take this input",
            given=str(input_shape),
            allowed=f"a shape with {channels} channels",
        )
    try:
        attributes = read(arguments)
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(
            f"these are not the arguments that a {name} prints", given=text, allowed="the text that print(module) shows"
        ) from error
    return Operation(kind, [input_shape], attributes, precision=real_precision(kind, precision), mode=mode)


# An identity takes as long as the fastest loop of its campaign. What takes three times that does some work.
_IDENTITY_FACTOR = 3.0
_SAME = 1e-4
_RECOMPUTED = "energy recomputed as power x time: the source has power x duration / iterations"
_LARGE_S = 5e-4  # Operations of at least this size are bound by the device on every GPU of this source.
_LEAST_SHARED = 3
_LOWER_POWER = 0.97  # Repeats within one method differ by at most 2 %.
_MODE_DEPENDENT = ("batch_norm", "stochastic_depth", "dropout")


def _optional(text: str, convert: Callable[[str], Any]) -> Any:
    return convert(text) if text else None


def _shape(text: str) -> Shape:
    try:
        return tuple(ast.literal_eval(text))
    except _UNREADABLE as error:
        raise InputError("this is not a shape", given=text, allowed="such as (32, 3, 224, 224)") from error


def _precision(row: Mapping[str, str]) -> str:
    return "default" if row["tf32"] == "True" else "fp32"


def _measurement(row: Mapping[str, str], line: int, method: str) -> Measurement:
    time_s, power_w, energy_j = (float(row[name]) for name in ("time_s", "power_w", "energy_j"))
    iterations = _optional(row["iterations"], lambda text: int(float(text)))
    duration_s = _optional(row["measured_for_s"], float)
    remark = ""
    expected_j = power_w * time_s
    if iterations and duration_s and _is(energy_j, power_w * duration_s / iterations) and not _is(energy_j, expected_j):
        energy_j, remark = expected_j, _RECOMPUTED
    return Measurement(
        operation=operation_from_repr(
            row["module"], _shape(row["input_shape"]), precision=_precision(row), mode=row["mode"]
        ),
        time_s=time_s,
        power_w=power_w,
        energy_j=energy_j,
        time_std_s=_optional(row["time_std_s"], float),
        power_std_w=_optional(row["power_std_w"], float),
        energy_std_j=_optional(row["energy_std_j"], float),
        iterations=iterations,
        duration_s=duration_s,
        campaign=_campaign(row),
        method=method,
        started=row["started"],
        line=line,
        remark=remark,
    )


def _is(value: float, expected: float) -> bool:
    return abs(value - expected) <= _SAME * expected


def _campaign(row: Mapping[str, str]) -> str:
    return f"{row['source_file']}/{row['source_blob']}"


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
    with_training = {_campaign(row) for row in rows if row["mode"] == "training"}
    measurements: dict[str, list[Measurement]] = defaultdict(list)
    faults = []
    for line, row in enumerate(rows, start=2):
        if row["mode"] == "training":
            method = "forward_backward"
        else:
            # The campaigns that also measured training ran the forward outside inference mode.
            method = "forward" if _campaign(row) in with_training else "forward_inference_mode"
        try:
            measurements[find_gpu(row["gpu"]).name].append(_measurement(row, line, method))
        except (InputError, ValueError) as error:
            faults.append(f"line {line}: {error.what if isinstance(error, InputError) else error} ({row['module']})")
    if faults:
        refuse_lines(faults, str(folder / "operations.csv"))
    networks = _networks(folder / "networks.csv")
    datasets = []
    for gpu, found in measurements.items():
        marked = _mark_low_power(_mark_train_mode(found))
        datasets.append(Dataset(_card(gpu, marked), tuple(marked), tuple(networks.get(gpu, ()))))
    return datasets


def _networks(path: Path) -> dict[str, list[NetworkMeasurement]]:
    networks: dict[str, list[NetworkMeasurement]] = defaultdict(list)
    for line, row in enumerate(read_rows(path, [*_COLUMNS, "network"]), start=2):
        networks[find_gpu(row["gpu"]).name].append(
            NetworkMeasurement(
                network=row["network"],
                input_shape=_shape(row["input_shape"]),
                precision=_precision(row),
                mode=row["mode"],
                time_s=float(row["time_s"]),
                power_w=float(row["power_w"]),
                energy_j=float(row["energy_j"]),
                campaign=_campaign(row),
                line=line,
            )
        )
    return networks


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
