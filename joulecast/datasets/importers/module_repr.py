"""Parses the `repr()` of a torch module into an Operation, without torch and without evaluating any code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...errors import InputError, unknown_name
from ...operations.operation import Operation, real_precision
from ...operations.rules import Shape

Arguments = tuple[list[Any], dict[str, Any]]


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
    except (
        SyntaxError,
        ValueError,
        TypeError,
        MemoryError,
        RecursionError,
    ) as error:  # MemoryError and RecursionError: the text is nested too deeply.
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


def _batch_norm(arguments: Arguments) -> dict[str, Any]:
    return {"affine": arguments[1].get("affine", True)}


def _layer_norm(arguments: Arguments) -> dict[str, Any]:
    return {"normalized_shape": arguments[0][0], "affine": arguments[1].get("elementwise_affine", True)}


def _adaptive_pool(arguments: Arguments) -> dict[str, Any]:
    return {"output_size": arguments[1]["output_size"]}


def _named(*names: str) -> Callable[[Arguments], dict[str, Any]]:
    return lambda arguments: {name: arguments[1][name] for name in names if name in arguments[1]}


_nothing = _named()

# Class name as printed: (operation kind, attributes from the printed arguments).
_MODULES: dict[str, tuple[str, Callable[[Arguments], dict[str, Any]]]] = {
    "Conv2d": ("conv2d", _conv2d),
    "Linear": ("linear", _named("out_features", "bias")),
    "BatchNorm2d": ("batch_norm", _batch_norm),
    "LayerNorm": ("layer_norm", _layer_norm),
    "LayerNorm2d": ("layer_norm", _layer_norm),
    "ReLU": ("relu", _nothing),
    "ReLU6": ("relu6", _nothing),
    "GELU": ("gelu", _nothing),
    "SiLU": ("silu", _nothing),
    "Sigmoid": ("sigmoid", _nothing),
    "Tanh": ("tanh", _nothing),
    "Hardswish": ("hardswish", _nothing),
    "Hardsigmoid": ("hardsigmoid", _nothing),
    "Softmax": ("softmax", _named("dim")),
    "Dropout": ("dropout", _named("p")),
    "StochasticDepth": ("stochastic_depth", _named("p", "mode")),
    "MaxPool2d": ("max_pool2d", _named("kernel_size", "stride", "padding", "dilation", "ceil_mode")),
    "AvgPool2d": ("avg_pool2d", _named("kernel_size", "stride", "padding", "ceil_mode")),
    "AdaptiveAvgPool2d": ("adaptive_avg_pool2d", _adaptive_pool),
}


def operation_from_repr(
    text: str, input_shape: Shape, *, precision: str = "default", mode: str = "inference"
) -> Operation:
    """Read the printed form of a torch module, such as "ReLU(inplace=True)", as an Operation.

    Args:
        text: What `repr(module)` printed.
        input_shape: Shape of the one input tensor.
        precision: Requested precision ("default", "fp32", "tf32", ...). The Operation gets the one that it runs in.
        mode: "inference" or "training".

    Raises:
        UnknownNameError: The module class does not correspond to an operation kind.
        InputError: The text is not such a repr, or the input does not fit the module.
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
