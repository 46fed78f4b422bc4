"""Programs of `torch.export` (.pt2), read without running code from the file.

`torch.export.load` unpickles what a file asks it to, evaluates its expressions, and calls whatever function of torch it
names (torch/export/pt2_archive/_package.py and torch/_export/serde/serialize.py of 2.13). Here only the graph is read,
which is JSON; weights stay in the file, and a node is run on the meta device if it is a registered operator.
"""

from __future__ import annotations

import json
import math
import operator
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...errors import ExtractionError, InputError
from ...operations.inputs import Input, Inputs
from ...system.regular_files import open_regular, refusing_damage
from ..known_values import NeedsValuesError, tensors_in
from . import fitted

# ScalarType and MemoryFormat of the same file.
DTYPES: Mapping[int, torch.dtype] = {
    **dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), start=1)),
    **dict(enumerate((torch.float16, torch.float32, torch.float64), start=6)),
    **dict(enumerate((torch.complex64, torch.complex128, torch.bool, torch.bfloat16), start=10)),
    **dict(enumerate((torch.float8_e4m3fn, torch.float8_e5m2), start=29)),
}
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
_MEMORY_FORMATS = dict(enumerate(_FORMATS, start=1))


def size_of(size: Mapping[str, Any]) -> int:
    """A size, or the one that a variable size had when the model was exported."""
    value = size.get("as_int", None)
    return int(size["as_expr"]["hint"]["as_int"] if value is None else value)


def bind(output: Mapping[str, Any], result: Any, values: dict[str, Any]) -> None:
    """Store the results of a node under their names in the graph."""
    ((sort, content),) = output.items()
    if sort == "as_tensors":
        for item, one in zip(content, result, strict=True):
            values[item["name"]] = one
    elif isinstance(content, Mapping) and (name := content.get("name") or content.get("as_name")):
        values[name] = result


_AS_WRITTEN = ("as_int", "as_ints", "as_bool", "as_bools", "as_string", "as_strings")
_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_AS_WRITTEN, lambda content: content),
    "as_none": lambda content: None,
    "as_scalar_type": DTYPES.__getitem__,
    "as_memory_format": _MEMORY_FORMATS.__getitem__,
    "as_layout": lambda content: torch.strided,
    "as_device": lambda content: torch.device("meta"),
    "as_complex": lambda content: complex(content["real"], content["imag"]),
    "as_float": float,  # JSON has no infinity, so it is a text
    "as_floats": lambda content: list(map(float, content)),
}
"""Kinds of arguments that say what they are by themselves -> their value in Python."""


def value_of(argument: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """An argument as a Python value, with the results of the nodes that have run by their names.

    Raises NeedsValuesError: the type of the argument exists only after the program is loaded by torch.
    """
    ((sort, content),) = argument.items()
    if sort in _PLAIN:
        return _PLAIN[sort](content)
    match sort:
        case "as_tensor":
            return values[content["name"]]
        case "as_tensors":
            return [values[item["name"]] for item in content]
        case "as_name":
            return values[content]
        case "as_optional_tensors" | "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
            return [value_of(item, values) for item in content]
        case "as_optional_tensor" | "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return value_of(content, values)
    raise NeedsValuesError(f"an argument of the kind {sort} cannot be read without loading the program")


_SCHEMA = 8  # SCHEMA_VERSION in torch/_export/serde/schema.py; another major version is another format.
_MOST_PROGRAM_BYTES = 64 << 20  # of its JSON; the largest language models need a tenth
_MOST_BITS = 64
_OPERATORS = "eq ne le ge lt gt neg pos add sub mul floordiv truediv mod and_ or_"


def _power(base: Any, exponent: Any) -> Any:
    """A power whose result is a size. With unbounded integers, a power could take any time."""
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > 2 * _MOST_BITS:
        raise ExtractionError(
            "a size of this program is impossible",
            given=f"{base} ** {exponent}"[:100],
            allowed=f"at most {2 * _MOST_BITS} bits",
            hint="export the program again",
        )
    return base**exponent


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _OPERATORS.split()},
    "_operator.pow": _power,
    "math.trunc": math.trunc,
    "torch.sym_int": int,
    "torch.sym_float": float,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_sqrt": math.sqrt,
    "torch.sym_not": operator.not_,
}
# Checks in an exported model, which launch no kernel.
_CHECKS = ("_assert", "sym_constrain_range")
# The only operators without a tensor as input that may run. None of them reads a file.
_MAKERS = frozenset({"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "scalar_tensor", "zeros"})


class _Part(torch.nn.Module):
    """A module of the exported model. Its operators run inside its call, so that they have its path."""

    def forward(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run one node of the graph."""
        return function(*args, **kwargs)


class ExportedProgram(torch.nn.Module):
    """The graph of a file as a module on the meta device."""

    def __init__(self, program: Mapping[str, Any], name: str) -> None:
        super().__init__()
        self.name = name
        self._graph = program["graph_module"]["graph"]
        self._given: dict[str, str] = {}
        self._sizes: dict[str, list[int | None]] = {}
        self._exported: dict[str, Input] = {}
        """Inputs with which the model was exported; None stands for a size that may vary."""
        for spec in program["graph_module"]["signature"]["input_specs"]:
            ((sort, content),) = spec.items()
            argument = content["arg"]
            graph_name = argument.get("name") or argument.get("as_tensor", {}).get("name")
            if not graph_name:
                continue
            value = self._graph["tensor_values"][graph_name]
            shape, dtype = tuple(map(size_of, value["sizes"])), DTYPES[value["dtype"]]
            if sort == "user_input":
                self._sizes[graph_name] = [size.get("as_int") for size in value["sizes"]]
                self._exported[graph_name] = Input(shape, str(dtype).removeprefix("torch."))
                continue
            own = self._given[graph_name] = f"_{len(self._given)}"
            tensor = torch.empty(shape, dtype=dtype, device="meta")
            if sort == "parameter" and tensor.is_floating_point():
                self.register_parameter(own, torch.nn.Parameter(tensor, requires_grad=value["requires_grad"]))
            else:
                self.register_buffer(own, tensor)
        for node in _nodes(self._graph):
            self._part(_path(node))

    def _part(self, path: str) -> torch.nn.Module:
        part: torch.nn.Module = self
        for name in path.split(".") if path else ():
            if name not in part._modules:
                part.add_module(name, _Part())
            part = part._modules[name]  # type: ignore[assignment]
        return part

    def inputs(self, given: Any) -> Inputs:
        """Inputs by their names in the graph: what is given, or what the model was exported with.

        Raises InputError: another number of inputs, or a size that was fixed when the model was exported.
        """
        exported = self._exported
        named = fitted(
            self.name,
            self._sizes,
            Inputs(named=tuple(exported.items())) if given is None else given,
            verb="was exported with",
            hint="export it with dynamic_shapes, or give the torch.nn.Module itself",
        )
        return Inputs(named=tuple((n, Input(one.shape, one.dtype or exported[n].dtype)) for n, one in named.items()))

    def forward(self, **inputs: torch.Tensor) -> Any:
        """Run the graph with inputs by name."""
        values: dict[str, Any] = {name: getattr(self, own) for name, own in self._given.items()}
        return self._run(self._graph, {**values, **inputs})

    def _run(self, graph: Mapping[str, Any], values: dict[str, Any]) -> list[Any]:
        for node in graph["nodes"]:
            target = node["target"]
            if any(target.removeprefix("torch.ops.aten.").startswith(check) for check in _CHECKS):
                continue
            given = [(item.get("name"), item.get("kind", 1), item["arg"]) for item in node["inputs"]]
            if target.startswith("torch.ops.higher_order."):
                result: Any = self._run_inner(target, [argument for _, _, argument in given], values)
            else:
                args = [value_of(argument, values) for _, kind, argument in given if kind != _KEYWORD]
                kwargs = {name: value_of(argument, values) for name, kind, argument in given if kind == _KEYWORD}
                function = _function(target, args)
                path = _path(node)
                part = self._part(path)
                result = part(function, args, kwargs) if path else function(*args, **kwargs)
            outputs = node["outputs"]
            results = [result] if len(outputs) == 1 else result
            for output, one in zip(outputs, results or (), strict=False):
                bind(output, one, values)
        return [value_of(output, values) for output in graph["outputs"]]

    def _run_inner(self, target: str, arguments: list[Any], values: dict[str, Any]) -> Any:
        """A region of autocast, or one without gradients: settings, a graph within the graph, and its inputs."""
        kind = target.rpartition(".")[2]
        if kind not in ("wrap_with_autocast", "wrap_with_set_grad_enabled"):
            raise ExtractionError(
                f"{self.name} branches by values, which only running it shows",
                given=kind,
                hint="export the model without torch.cond and the like, as the branch that is usually taken",
            )
        place = next(i for i, argument in enumerate(arguments) if "as_graph" in argument)
        settings, graph = [value_of(each, values) for each in arguments[:place]], arguments[place]["as_graph"]["graph"]
        inner = dict(values)
        for output, argument in zip(graph["inputs"], arguments[place + 1 :], strict=True):
            bind(output, value_of(argument, values), inner)
        with torch.autocast(*settings) if kind == "wrap_with_autocast" else torch.set_grad_enabled(*settings):
            results = self._run(graph, inner)
        return results[0] if len(results) == 1 else results


_KEYWORD = 2  # ArgumentKind


def _nodes(graph: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for node in graph["nodes"]:
        yield node
        for item in node["inputs"]:
            if "as_graph" in item["arg"]:
                yield from _nodes(item["arg"]["as_graph"]["graph"])


def _path(node: Mapping[str, Any]) -> str:
    """Path of the module that a node belongs to, from key, path and type of every module around it."""
    stack = node.get("metadata", {}).get("nn_module_stack", "")
    path = stack.rpartition(";")[2].split(",")
    inner = path[1] if len(path) > 2 else ""
    return inner if all(name.isidentifier() or name.isdecimal() for name in inner.split(".")) else ""


def _function(target: str, args: list[Any]) -> Callable[..., Any]:
    if target in _ARITHMETIC:
        return _ARITHMETIC[target]
    packet, parts = None, target.split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) == 5 and not any(part.startswith("__") for part in parts):
        with suppress(AttributeError, RuntimeError):
            packet = getattr(getattr(getattr(torch.ops, parts[2]), parts[3]), parts[4])
    if not isinstance(packet, torch._ops.OpOverload):
        raise ExtractionError(
            "an operator of this program is not known here",
            given=target,
            hint="import the package that defines it, and name its operators in operators=",
        )
    if not tensors_in(args) and parts[3] not in _MAKERS:
        raise ExtractionError(
            "an operator of this program has no tensor to work on, and is not run",
            given=target,
            allowed=", ".join(sorted(_MAKERS)),
            hint="give its result to the model as an input",
        )
    return packet


def load(path: Path) -> ExportedProgram:
    """Read the graph of a .pt2 file. Nothing in the file is unpickled, evaluated or run."""
    with refusing_damage("this exported program cannot be read", path), open_regular(path) as file:
        program = _program(zipfile.ZipFile(file), path)
    hint = "where you trust the file: torch.export.load(path).module(), which may run code from it, and give the module"
    if program is None:
        raise InputError(
            "this file holds no exported program, or several, or is of an older PyTorch",
            given=str(path),
            allowed="what torch.export.save of PyTorch 2.8 or newer writes",
            hint=hint,
        )
    with refusing_damage("this exported program is damaged", path):
        version = program.get("schema_version", {}).get("major")
        if version != _SCHEMA:
            what = "this exported program has another version of the format"
            raise InputError(what, given=version, allowed=_SCHEMA, hint=hint)
        return ExportedProgram(program, path.stem)


def _program(archive: zipfile.ZipFile, path: Path) -> Any:
    """The JSON of the model in an archive; None if the archive does not have exactly one model."""
    names = [name for name in archive.namelist() if "/models/" in name and name.endswith(".json")]
    if len(names) != 1:
        return None
    with archive.open(names[0]) as member:
        # The size in the archive may be wrong, so at most the allowed size is decompressed.
        data = member.read(_MOST_PROGRAM_BYTES + 1)
    if len(data) > _MOST_PROGRAM_BYTES:
        raise InputError(
            "the graph of this exported program is too large",
            given=str(path),
            allowed=f"up to {_MOST_PROGRAM_BYTES:,} bytes of JSON",
        )
    return json.loads(data)
