"""Arguments that the commands of `joulecast account` share, and the model that they name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes
from .reading import model_and_options

_NO_SENSORS = "none"

RunModel = Annotated[
    str | None,
    typer.Argument(
        help="A model of torchvision or transformers by name, which gets random weights; or a class or function in a "
        "Python file of yours, which is run: FILE.py:NAME. None with --trace."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:1: where it runs.")]
Sensors = Annotated[
    str | None,
    typer.Option(
        help="cpu, ram, gpu or names such as gpu1, separated by commas, or none; all that have a counter if left out."
    ),
]
Training = Annotated[bool, typer.Option("--training", help="Forward and backward instead of inference.")]


def chosen_sensors(sensors: str | None) -> tuple[str, ...] | None:
    """The sensors that --sensors names."""
    from ..metering.machine import chosen_devices

    if sensors == _NO_SENSORS:
        return ()
    return None if sensors is None else tuple(chosen_devices(sensors))


def module_and_shapes(
    model: str | None, input_shape: list[str] | None, model_option: list[str] | None
) -> tuple[Any, Any]:
    """A module with weights, and the shapes of its inputs."""
    from ..accounting.account import needs_torch

    needs_torch()
    if model is None:
        raise InputError(
            "there is nothing to account for",
            given="neither a model nor --trace",
            hint="give a model and its shape, such as resnet50 8,3,224,224, or --trace FILE",
        )
    made, options = model_and_options(model, model_option)
    shapes = parse_shapes(input_shape)
    if shapes is None:
        raise InputError("a model needs the shape of its input", given="none", allowed="such as 8,3,224,224")
    if isinstance(made, str):
        from ..extraction.models.named_models import build_to_run

        made = build_to_run(made, options)
    return made, shapes
