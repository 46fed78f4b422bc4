"""Options that several commands share: each is declared once, with how its text becomes an argument of the library."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes
from .completion import completed
from .reading import (
    clocks_mhz,
    intensity,
    lengths,
    model_and_options,
    named_values,
    names,
    positive_integers,
    price_per_hour,
)

REQUIRED = inspect.Parameter.empty


class Option(NamedTuple):
    """An option or argument of commands.

    Args:
        type: Type of the text on the command line, with the words of `--help`.
        argument: Name of the library's argument; empty for the name of the option.
        default: Value where it is left out.
        read: Function from what was given to the value of the library's argument; None for the same value. It is not
            called where the option was left out.
    """

    type: Any
    argument: str = ""
    default: Any = None
    read: Callable[[Any], Any] | None = None


def option(type_: Any, *flags: str, help: str) -> Any:  # noqa: A002
    """Type of an option with its words in `--help`."""
    return Annotated[type_, typer.Option(*flags, help=help)]


def argument(help: str) -> Any:  # noqa: A002
    """Type of an argument that is a text, with its words in `--help`."""
    return Annotated[str, typer.Argument(help=help)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the operations as CSV.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the answer into this SVG, PNG or HTML file, too.")]
Top = Annotated[int, typer.Option(min=0, help="Number of operations to show; 0 for all.")]
Shown = Annotated[int, typer.Option(min=0, help="Number of choices to show; 0 for all.")]
Pareto = Annotated[bool, typer.Option("--pareto", help="Show the Pareto front of time and energy, fastest first.")]
WaysCsv = Annotated[bool, typer.Option("--csv", help="Print all ways within the limits as CSV; --pareto: the front.")]
Training = Annotated[
    bool, typer.Option("--training", help="Predict a training step (forward and backward) instead of inference.")
]
ModeOption = option(str | None, "--mode", help="inference or training. Default: inference.")
Shapes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SHAPE]...",
        help="Input shape, batch first, such as 32,3,224,224. For several inputs, repeat it, or write name=shape.",
    ),
]
ModelOptions = option(
    list[str] | None, "--model-option", help="An argument of the model, such as image_size=384; repeat it for several."
)
Predictor = option(
    str | None, help="A zoo name, the folder of an entry, or models:/NAME@ALIAS. Default: the best for the GPU."
)

OPTIONS: Mapping[str, Option] = {
    "model": Option(
        Annotated[
            str,
            typer.Argument(
                help="Name of a torchvision, timm or transformers model; a file (network as JSON, config.json, .pt2, "
                ".onnx); or FILE.py:NAME for a class or function in your own Python file, which is run."
            ),
        ],
        default=REQUIRED,
    ),
    "input_shape": Option(Shapes, read=parse_shapes),
    "training": Option(Training, default=False),
    "mode": Option(ModeOption),
    "precision": Option(option(str, help="default, fp32, tf32, fp16 or bf16."), default="default"),
    "cache_length": Option(
        option(int | None, help="Tokens in a transformer's cache before this call, as in a step of decoding.")
    ),
    "optimizer": Option(
        option(
            str | None,
            help="sgd, adam or adamw, or with fused=True adamw_fused and so on: include the optimizer's step in "
            "training.",
        )
    ),
    "model_option": Option(ModelOptions, "model_options"),
    "assume": Option(
        option(
            list[str] | None,
            "--assume",
            help="An assumption on values that depend on the input: experts=uniform, boxes=100 or box_side=200 "
            "(pixels); or the library of attention: attention=cudnn. Repeat it for several.",
        ),
        read=lambda texts: named_values(texts, "an assumption") or None,
    ),
    "clock": Option(option(float | None, help="Graphics clock in MHz. Default: the GPU's own default.")),
    "predictor": Option(Predictor),
    "execution": Option(
        option(str, help="How the model is run: eager, graph (as a CUDA graph), or compiled (by torch.compile)."),
        default="eager",
    ),
    "host": Option(
        option(
            str | None,
            "--host",
            help="The machine that launches operations: a factor on the reference host's time, a name "
            "(`joulecast host --list`), or a profile that `joulecast host --out` wrote. Default: typical for the GPU.",
        )
    ),
    "samples": Option(option(float | None, help="Samples of the data.")),
    "tokens": Option(option(float | None, help="Tokens of the data, in place of samples.")),
    "epochs": Option(option(float, help="Number of epochs."), default=1.0),
    "lora": Option(option(int | None, help="Rank of low-rank adapters; all else is frozen.")),
    "lora_targets": Option(
        option(str | None, help="Layers with adapters: q_proj,v_proj or all-linear. Default: those of peft."),
        read=lambda text: text.split(",") if "," in text else text,
    ),
    "pue": Option(option(float, help="Joules of the data centre for each joule of its servers."), default=1.0),
    "calibration": Option(
        option(str | None, help="A file that `joulecast calibrate --out` wrote, for predictions of that board.")
    ),
    "objective": Option(
        option(
            str, help="What to minimize: energy, time, edp, ed2p, energy_per_sample, time_per_sample, cost or carbon."
        ),
        default="energy",
    ),
    "gpus": Option(
        option(
            list[str] | None,
            "--gpu",
            help="A GPU to compare; repeat it, or separate by commas. Default: the whole catalogue.",
        ),
        read=names,
    ),
    "clocks": Option(
        option(
            str | None,
            "--clocks",
            "--clock",
            help="Clocks in MHz: 900,1200 or FIRST:LAST:STEP as in 600:1440:120. Default: up to 40 clocks of each GPU.",
        ),
        read=clocks_mhz,
    ),
    "precisions": Option(
        option(
            list[str] | None, "--precision", help="default, fp32, tf32, fp16 or bf16; repeat it, or separate by commas."
        ),
        "precision",
        read=names,
    ),
    "power_limit": Option(
        option(float | None, "--power-limit", help="Power cap in watts. Default: each board's own default."),
        "power_limit_w",
    ),
    "batch_sizes": Option(
        option(str | None, "--batch-sizes", help="Batch sizes to compare, such as 1,8,32."),
        read=lambda text: positive_integers(text, "batch sizes"),
    ),
    "price_per_hour": Option(
        option(
            list[str] | None,
            "--price-per-hour",
            "--prices",
            help="Price of an hour of every GPU (1.2) or of one (A30=0.7); a cloud (AWS); or a table (mine.csv) with "
            "the columns gpu, price_per_hour and spot_per_hour. spot=0.5 after it: half of the hours at spot prices.",
        ),
        read=price_per_hour,
    ),
    "price_per_kwh": Option(
        option(float | None, "--price-per-kwh", help="Price of a kilowatt-hour, in the same currency.")
    ),
    "carbon": Option(
        option(
            str | None,
            "--carbon",
            "--intensity",
            help="A number in g CO2 per kWh, a country (DE), a cloud's region (eu-north-1), or a file of hours.",
        ),
        read=intensity,
    ),
    "prompt": Option(
        option(
            str, help="Tokens of each prompt: 512; MEAN,DEVIATION such as 200,150; or the lengths of many requests."
        ),
        "prompt_tokens",
        "512",
        lengths,
    ),
    "output": Option(
        option(str, help="Tokens that are written for each prompt: 512; MEAN,DEVIATION; or many lengths."),
        "output_tokens",
        "512",
        lengths,
    ),
    "cache_precision": Option(option(str | None, help="fp8 for keys and values. Default: 16 bits.")),
}
"""Name of an option -> the option."""

ARGUMENTS = {option.argument or name: name for name, option in OPTIONS.items()}
"""Argument of the library -> name of its option."""

MODEL = ("model", "input_shape", "training", "mode", "cache_length", "optimizer", "model_option", "assume")
RUN = ("power_limit", "predictor", "execution", "host", "calibration")
PRICES = ("price_per_hour", "price_per_kwh", "carbon")
COMPARED = (*MODEL, *RUN, "objective", "gpus", "clocks", "precisions", "batch_sizes", *PRICES)


class Asked(dict[str, Any]):
    """What a command line asks: argument of the library -> value.

    Attributes:
        given: Name of an option -> what was given on the command line.
    """

    given: dict[str, Any]


def asking(*shared: str, **own: Option) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command whose first argument is what the library is asked; the others say how it is answered.

    `shared` are names of `OPTIONS`, `own` are options that only this command has.
    """
    options = {**{name: OPTIONS[name] for name in shared}, **own}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *answered = inspect.signature(command, eval_str=True).parameters.values()
        further = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for name, each in options.items()
        ]
        keywords = (*further, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in answered))
        parameters = [completed(command.__name__, each) for each in keywords]

        @wraps(command)
        def asked(**given: Any) -> None:
            if given.get("as_json") and given.get("as_csv"):
                raise InputError("output is either JSON or CSV", given="--json --csv", hint="omit one of them")
            command(_asked({name: given.pop(name) for name in options}, options), **given)

        asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        asked.__annotations__ = {each.name: each.annotation for each in parameters}
        return asked

    return decorate


def _asked(given: dict[str, Any], options: Mapping[str, Option]) -> Asked:
    asked = Asked()
    asked.given = given
    for name, value in given.items():
        each = options[name]
        asked[each.argument or name] = value if each.read is None or value is None else each.read(value)
    if "precisions" in given:
        asked["precision"] = asked["precision"] or "default"
    if "training" in asked:
        asked["mode"] = mode_of(asked.pop("training"), asked["mode"])
    if given.get("model") is not None and "model_option" in given:
        asked["model"], asked["model_options"] = model_and_options(given["model"], given["model_option"])
    return asked


def _chosen_sensors(text: str) -> tuple[str, ...]:
    from ..metering.machine import chosen_devices

    return () if text == "none" else tuple(chosen_devices(text))


RAN: Mapping[str, Option] = {
    "model": Option(
        Annotated[
            str | None,
            typer.Argument(
                help="A model of torchvision or transformers by name, which gets random weights; or a class or "
                "function in a Python file of yours, which is run: FILE.py:NAME. None with --trace."
            ),
        ]
    ),
    "input_shape": OPTIONS["input_shape"],
    "training": Option(option(bool, "--training", help="Forward and backward instead of inference."), default=False),
    "mode": OPTIONS["mode"],
    "device": Option(option(str, help="cpu, cuda or cuda:1: where it runs."), default="cpu"),
    "model_option": OPTIONS["model_option"],
    "sensors": Option(
        option(
            str | None,
            help="cpu, ram, gpu or names such as gpu1, separated by commas, or none; all that have a counter if left "
            "out.",
        ),
        read=_chosen_sensors,
    ),
}
"""Options of commands that run a model here."""


def module_to_run(asked: Mapping[str, Any]) -> tuple[Any, Any]:
    """The module of a command line, with weights, and the shapes of its inputs.

    Raises InputError, MissingDependencyError: There is no model, no shape, or no torch.
    """
    from ..accounting.account import needs_torch

    needs_torch()
    model, shapes = asked["model"], asked["input_shape"]
    if model is None:
        raise InputError(
            "there is nothing to account for",
            given="neither a model nor --trace",
            hint="give a model and its shape, such as resnet50 8,3,224,224, or --trace FILE",
        )
    if shapes is None:
        raise InputError("a model needs the shape of its input", given="none", allowed="such as 8,3,224,224")
    if isinstance(model, str):
        from ..extraction.models.named_models import build_to_run

        model = build_to_run(model, asked["model_options"])
    return model, shapes


def mode_of(training: bool, mode: str | None) -> str:
    """The mode that --training and --mode ask for; the library refuses an unknown one.

    Raises InputError: They contradict each other.
    """
    if training and mode not in (None, "training"):
        raise InputError("two modes are asked for", given=f"--training --mode {mode}", hint="omit one of them")
    return "training" if training else mode or "inference"
