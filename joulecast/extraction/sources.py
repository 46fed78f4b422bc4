"""From whatever a user gives as a model to its Network. Torch is imported only if a torch model has to be traced."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from ..errors import InputError, MissingDependencyError, with_extra
from ..operations.inputs import Inputs
from ..operations.network import Network
from ..operations.operation import Operation, require_mode, require_precision
from ..system.damage import refusing_damage
from ..system.regular_files import MOST_JSON_BYTES, is_file, open_regular, read_json
from .assumptions import ATTENTION, Assume
from .cache import recall, remember
from .listed import listed_network, network_of_pairs
from .models.spelling import known_as
from .operators import WHITELIST
from .optimizers import refuse_optimizer
from .templates import Request, answer, refusal
from .traced_models import configured, traced

if TYPE_CHECKING:
    import torch

    from .recorder import CustomOperators

    Shape = Sequence[int] | torch.Tensor
    InputShape = Shape | Sequence[Shape] | Mapping[str, Shape] | Inputs
    # The type of a transformers configuration is Any, because that library may not be installed.
    Model = str | Path | torch.nn.Module | Network | Sequence[tuple[Operation, int]] | Any


P = ParamSpec("P")


def _with_attention(extract: Callable[P, Network]) -> Callable[P, Network]:
    """A function like `network_of` that heeds the library of attention among the assumptions."""

    @wraps(extract)
    def heeding(*args: P.args, **options: P.kwargs) -> Network:
        assume: Any = options.get("assume")
        if not isinstance(assume, Mapping) or ATTENTION not in assume:
            return extract(*args, **options)
        options["assume"] = {name: value for name, value in assume.items() if name != ATTENTION} or None
        return extract(*args, **options).with_attention_by(assume[ATTENTION])

    return heeding


@_with_attention
def network_of(
    model: Model,
    input_shape: InputShape | None,
    *,
    mode: str = "inference",
    precision: str = "default",
    whitelist: Collection[str] = WHITELIST,
    operators: CustomOperators | None = None,
    cache_length: int | None = None,
    optimizer: str | None = None,
    assume: Assume | None = None,
    model_options: Mapping[str, Any] | None = None,
) -> Network:
    """List the operations of a model; see `joulecast.extract` for the arguments.

    Raises:
        UnknownNameError: There is no such model, mode or precision.
        InputError: A shape, file or list is not valid.
        ExtractionError: The forward raises, or depends on values of the input.
        MissingDependencyError: The model needs a library that is not installed.
    """
    _check(mode, precision, cache_length)
    options = {
        "mode": mode,
        "precision": precision,
        "whitelist": whitelist,
        "operators": operators,
        "optimizer": optimizer,
        "assume": assume,
    }
    if model_options and not (isinstance(model, str) and not _is_file(Path(model))):
        raise InputError(
            "options make a model that is given by name",
            given=f"{', '.join(model_options)} for a {type(model).__name__}",
            hint="build the model with them, and give it without options",
        )
    if isinstance(model, Network):
        return listed_network(model, input_shape, options)
    if isinstance(model, str | Path) and _is_file(Path(model)):
        return _from_file(Path(model), input_shape, cache_length, options)
    if isinstance(model, str | Path):
        return _named(str(model), Inputs.of(input_shape), cache_length, options, model_options=model_options)
    # Neither a module nor a configuration can exist without its library, so this does not import any.
    torch_module, transformers = sys.modules.get("torch"), sys.modules.get("transformers")
    if torch_module is not None and isinstance(model, torch_module.nn.Module):
        return traced(model, Inputs.of(input_shape), cache_length, options)
    if transformers is not None and isinstance(model, transformers.PretrainedConfig):
        return configured(model, Inputs.of(input_shape), cache_length, options)
    if torch_module is not None and isinstance(model, torch_module.export.ExportedProgram):
        return traced(model.module(), Inputs.of(input_shape), cache_length, options)
    if isinstance(model, Sequence):
        return network_of_pairs(model, options)
    if isinstance(model, type):
        raise InputError(
            "this is a class, not a model", given=model.__name__, hint=f"give an instance: {model.__name__}(...)"
        )
    raise InputError(
        "this is not a model",
        given=type(model).__name__,
        allowed="a name, a torch.nn.Module, a configuration of transformers, a Network, a list of (Operation, count), "
        "or a file: network (JSON), config.json, .pt2, .onnx",
    )


@_with_attention
def named_network(
    name: str,
    input_shape: InputShape | None,
    *,
    mode: str = "inference",
    precision: str = "default",
    cache_length: int | None = None,
    optimizer: str | None = None,
    assume: Assume | None = None,
    model_options: Mapping[str, Any] | None = None,
    may_trace: bool = True,
) -> Network:
    """List the operations of a named model. The name is never read as the path of a file.

    Args:
        name: Name of a model, as users write it.
        input_shape: Shape of the input, batch first, as `joulecast.extract` takes it.
        mode: "inference" or "training".
        precision: "default", fp32, tf32, fp16 or bf16.
        cache_length: Tokens that a transformer has cached.
        optimizer: Name of the optimizer whose step is part of a training iteration; None for no step.
        assume: Assumptions about values of the input, as `joulecast.extract` takes them.
        model_options: Arguments of the model's constructor.
        may_trace: Whether the model may be traced with torch if neither the cache nor a template has it.

    Raises:
        UnknownNameError, InputError, ExtractionError: See `network_of`.
        MissingDependencyError: The model needs a library that is not installed, or torch, and `may_trace` is False.
    """
    _check(mode, precision, cache_length)
    options = {
        "mode": mode,
        "precision": precision,
        "whitelist": WHITELIST,
        "operators": None,
        "optimizer": optimizer,
        "assume": assume,
    }
    return _named(name, Inputs.of(input_shape), cache_length, options, may_trace, model_options)


def _check(mode: str, precision: str, cache_length: int | None) -> None:
    require_mode(mode)
    require_precision(precision)
    if cache_length is not None and (
        isinstance(cache_length, bool) or not isinstance(cache_length, int) or cache_length < 1
    ):
        raise InputError(
            "the length of a cache is a positive number of tokens",
            given=repr(cache_length),
            allowed="1 or more, or None for no cache",
        )


def _is_file(path: Path) -> bool:
    return path.suffix in (*_READERS, ".json") or is_file(path)


def network_of_file(
    path: Path,
    inputs: Inputs | None,
    *,
    mode: str,
    precision: str,
    whitelist: Collection[str] = WHITELIST,
    operators: CustomOperators | None = None,
    cache_length: int | None = None,
    optimizer: str | None = None,
    assume: Assume | None = None,
) -> Network:
    """List the operations of the model in a file, in this process; see `joulecast.extract` for the arguments.

    Raises:
        JoulecastError: See `network_of`.
    """
    options = {
        "mode": mode,
        "precision": precision,
        "whitelist": whitelist,
        "operators": operators,
        "optimizer": optimizer,
        "assume": assume,
    }
    with refusing_damage("this file describes no model that can be", path):
        return _READERS.get(path.suffix, _from_configuration)(path, inputs, cache_length, options)


def _from_configuration(
    path: Path, inputs: Inputs | None, cache_length: int | None, options: dict[str, Any]
) -> Network:
    """A configuration of transformers (config.json)."""
    return configured(read_json(path, MOST_JSON_BYTES, "this file"), Inputs.of(inputs), cache_length, options)


def _from_program(path: Path, inputs: Inputs | None, cache_length: int | None, options: dict[str, Any]) -> Network:
    """A program of torch.export."""
    from .files.exported_programs import load

    program = load(path)
    return traced(program, program.inputs(inputs), cache_length, options, name=program.name)


def _from_onnx(path: Path, inputs: Inputs | None, cache_length: int | None, options: dict[str, Any]) -> Network:
    """An ONNX file."""
    from .files.onnx_graphs import load

    if cache_length is not None:
        raise InputError(
            "an ONNX file has its cache among its inputs",
            given=f"cache_length={cache_length}",
            hint="leave out cache_length, and give the inputs of the cache by name with their shapes",
        )
    if options["optimizer"] is not None:
        raise InputError(
            "the step of an optimizer is not listed for ONNX files",
            given=f"optimizer={options['optimizer']}",
            hint="give the PyTorch model instead, or leave the optimizer out",
        )
    chosen = {name: options[name] for name in ("mode", "precision", "whitelist")}
    return load(path, inputs, **chosen)


_READERS: Mapping[str, Callable[[Path, Inputs | None, int | None, dict[str, Any]], Network]] = {
    ".pt2": _from_program,
    ".onnx": _from_onnx,
}
"""Suffix of a file -> function that extracts its model. A file with another suffix is read as JSON."""


def _from_file(path: Path, input_shape: Any, cache_length: int | None, options: dict[str, Any]) -> Network:
    """Read a file in a separate process, unless it is a list of operations."""
    if path.suffix not in _READERS:
        content = read_json(path, MOST_JSON_BYTES, "this file")
        if not (isinstance(content, dict) and "model_type" in content and "operations" not in content):
            return listed_network(Network.from_dict(content, name=path.stem), input_shape, options)
    if path.suffix != ".onnx":
        _needs_torch(str(path))
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
    inputs = None if input_shape is None else Inputs.of(input_shape)
    if options["operators"] is not None and path.suffix == ".pt2":
        # The user's own operators, and their conversions, exist in this process only.
        return network_of_file(path, inputs, cache_length=cache_length, **options)
    from .isolation import SHARED, Limits

    whitelist = options["whitelist"]
    question = {
        "file": str(path.absolute()),
        "inputs": None if inputs is None else inputs.to_list(),
        "mode": options["mode"],
        "precision": options["precision"],
        "optimizer": options["optimizer"],
        "whitelist": None if whitelist is WHITELIST else sorted(whitelist),
        "cache_length": cache_length,
        "assume": None if options["assume"] is None else dict(options["assume"]),
    }
    # An ONNX file contains its weights, and more than one copy of it is in memory.
    return SHARED.network(question, Limits(Limits.memory_bytes + 3 * size_bytes))


def _named(
    name: str,
    inputs: Inputs,
    cache_length: int | None,
    options: dict[str, Any],
    may_trace: bool = True,
    model_options: Mapping[str, Any] | None = None,
) -> Network:
    refuse_optimizer(options["optimizer"], options["mode"])
    name = known_as(name)
    # Neither the cache nor templates cover the user's own operators, assumptions and model options.
    own = {**(options["operators"] or {}), **(options.get("assume") or {}), **(model_options or {})}
    cached = options["whitelist"] is WHITELIST and not own
    key = [inputs.to_list(), options["mode"], options["precision"], cache_length, options["optimizer"]]
    if cached and (known := recall(name, key)) is not None:
        return known
    request = Request(inputs, options["mode"], options["precision"], cache_length, options["optimizer"])
    if cached and (templated := answer(name, request)) is not None:
        return templated
    if not may_trace or find_spec("torch") is None:
        raise _lacks_torch(f"{name} with {', '.join(own)}") if own else refusal(name, request)
    from .models.named_models import build

    run: set[str] = set()
    on_trace = {"on_trace": lambda recorder: run.update(recorder.operators_run)}
    network = traced(build(name, model_options), inputs, cache_length, {**options, **on_trace}, name=name)
    if cached:
        remember(network, name, key, run)
    return network


def _needs_torch(path: str) -> None:
    if find_spec("torch") is None:
        raise _lacks_torch(path)


def _lacks_torch(model: str) -> MissingDependencyError:
    return MissingDependencyError(
        "this model can only be looked into with torch",
        given=model,
        hint=f"{with_extra('torch')}; or give a network saved as JSON",
    )
