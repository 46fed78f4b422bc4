"""Reads ONNX files as networks: infers all shapes of the graph, without running it. Needs onnx, but not torch."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ExtractionError, InputError, MissingDependencyError, named, with_extra
from ...operations.entry import DroppedTally, DroppedWork, Entry
from ...operations.inputs import Inputs
from ...operations.kinds import KINDS
from ...operations.network import Network
from ...operations.operation import Operation, real_precision
from ...operations.rules import Shape, size
from ...system.regular_files import read_regular, refusing_damage
from . import fitted
from .onnx_operators import FREE, OPERATORS, Call

# TensorProto.DataType of onnx.proto.
_NAMED = {10: "fp16", 11: "fp64", 16: "bf16"}
_MOST_BYTES = 2 << 30  # of any protobuf message
_MOST_NODES, _MOST_DEPTH = 500_000, 100  # with calls of functions replaced by their bodies
_DOMAINS = ("", "ai.onnx")


def load(path: Path, input_shape: Any, *, mode: str, precision: str, whitelist: Collection[str]) -> Network:
    """Read the operations of an ONNX file; weights that lie beside it are not read.

    The shapes of the inputs are those of `joulecast.extract`; None for those in the file, if they are fixed. Raises
    InputError: the file cannot be read or is damaged; or these are not its inputs. Raises ExtractionError: no operation
    of it is known. Raises MissingDependencyError: onnx is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise MissingDependencyError("an ONNX file needs onnx", given=str(path), hint=with_extra("onnx"))
    if mode != "inference":
        raise InputError("an ONNX file describes a forward", given=f"mode={mode}", allowed="inference")
    for kind in whitelist:
        named("operation kind", kind, KINDS)
    model = _read(path)
    inputs = _fixed(model, path.stem, input_shape)
    with refusing_damage("the shapes of this ONNX file do not fit", path):
        shapes = _Shapes(model)
    reader = _Reader(model, shapes, precision, whitelist)
    if not reader.operations:
        raise ExtractionError(
            "no operator of this ONNX file is known",
            given=str(path),
            hint="describe its operations as a list of (Operation, count)",
        )
    entries = tuple(Entry.at(operation, paths) for operation, paths in reader.operations.items())
    return Network(entries, name=path.stem, input_shape=inputs.shape, dropped=reader.dropped.listed())


def _read(path: Path) -> Any:
    onnx = importlib.import_module("onnx")
    with refusing_damage("this ONNX file cannot be read", path):
        # Bytes have no folder, so onnx cannot read other files.
        model = onnx.load_model_from_string(read_regular(path, _MOST_BYTES))
        if not model.graph.node:
            raise InputError(
                "this file holds no ONNX graph", given=str(path), allowed="a file that torch.onnx.export wrote"
            )
        _refuse_explosion(model)
        return importlib.import_module("onnx.inliner").inline_local_functions(model) if model.functions else model


def _refuse_explosion(model: Any) -> None:
    """Refuse nested functions beyond a limit, with which a short file can stand for any number of nodes."""
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def inlined(nodes: Any, depth: int) -> int:
        if depth > _MOST_DEPTH:
            raise InputError(
                "functions of this ONNX file call each other too deeply",
                given=f"at least {depth} levels",
                allowed=f"{_MOST_DEPTH} levels",
            )
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in sizes:
                sizes[key] = inlined(bodies[key], depth + 1)
            total += sizes.get(key, 1)
        return total

    if (nodes := inlined(model.graph.node, 0)) > _MOST_NODES:
        raise InputError("this ONNX file has too many nodes", given=f"{nodes:.3g}", allowed=f"up to {_MOST_NODES:,}")


def _fixed(model: Any, name: str, given: Any) -> Inputs:
    """Write the shapes of the inputs into the graph, and give them by name."""
    weights = {tensor.name for tensor in model.graph.initializer}
    values = {value.name: value.type.tensor_type for value in model.graph.input if value.name not in weights}
    sizes = {
        key: [dim.dim_value if dim.HasField("dim_value") else None for dim in value.shape.dim]
        for key, value in values.items()
    }
    if given is None and any(None in shape for shape in sizes.values()):
        allowed = ", ".join(f"{key} {' x '.join(str(n or 'any') for n in shape)}" for key, shape in sizes.items())
        raise InputError(f"{name} needs the shape of its input", given="none", allowed=allowed)
    by_name = fitted(name, sizes, sizes if given is None else given)
    for key, item in by_name.items():
        for dim, n in zip(values[key].shape.dim, item.shape, strict=True):
            dim.dim_value = n
    alone = given is not None and len(Inputs.of(given).positional) == 1
    return Inputs(tuple(by_name.values())) if alone else Inputs(named=tuple(by_name.items()))


_SMALL = 64
# The operators of shape arithmetic. All others are not computed.
_ARITHMETIC = frozenset(
    """
    Add And Cast Concat Constant ConstantOfShape Div Equal Expand Floor Gather Greater Identity Less Max Min Mod Mul Neg
    Not Or Range ReduceProd Reshape ScatterND Shape Size Slice Squeeze Sub Transpose Unsqueeze Where
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)


class _Shapes:
    """What is known about the tensors of a graph before it runs.

    Raises ValueError or RuntimeError with a message of onnx: a node does not fit its inputs.
    """

    def __init__(self, model: Any) -> None:
        self._onnx = importlib.import_module("onnx")
        self._arrays = importlib.import_module("onnx.numpy_helper")
        self._infer = importlib.import_module("onnx.shape_inference").infer_node_outputs
        self._evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator
        self._opsets = {entry.domain: entry.version for entry in model.opset_import}
        self._ir_version = model.ir_version
        self.types: dict[str, Any] = {value.name: value.type for value in model.graph.input}
        self.values: dict[str, Any] = {}
        """Values of small tensors that do not depend on the inputs: settings and shape arithmetic."""
        self.constants: set[str] = set()
        """Names of tensors of any size that do not depend on the values of the inputs."""
        for tensor in model.graph.initializer:
            self._constant(tensor.name, tensor)
        for node in model.graph.node:
            self._visit(node)

    def shape(self, name: str) -> Shape | None:
        """Shape of a tensor; None if it is not known."""
        kind = self.types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None

    def element(self, name: str) -> int:
        """Type of the elements of a tensor, as a TensorProto.DataType; 0 if it is not known."""
        kind = self.types.get(name)
        return 0 if kind is None else int(kind.tensor_type.elem_type)

    def _constant(self, name: str, tensor: Any) -> None:
        self.constants.add(name)
        self.types[name] = self._onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        if not tensor.external_data and size(tuple(tensor.dims)) <= _SMALL:
            self.values[name] = self._arrays.to_array(tensor)

    def _visit(self, node: Any) -> None:
        given = [name for name in node.input if name]
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            self._constant(node.output[0], node.attribute[0].t)
            return
        if all(name in self.constants for name in given) or node.op_type in ("Shape", "Size"):
            self.constants.update(node.output)
        if node.op_type in ("Shape", "Size") and self.shape(node.input[0]) is not None:
            self._evaluate(node, {node.input[0]: None})
        elif node.op_type in _ARITHMETIC and all(name in self.values for name in given):
            self._evaluate(node, {name: self.values[name] for name in given})
        else:
            self._types_of(node, given)

    def _evaluate(self, node: Any, feeds: dict[str, Any]) -> None:
        if _elements(node, feeds) > _SMALL:
            self._types_of(node, list(feeds))
            return
        if node.op_type in ("Shape", "Size"):
            # The shape is known, the values are not and do not matter.
            feeds = {node.input[0]: np.broadcast_to(np.float32(0), self.shape(node.input[0]) or ())}
        results = self._evaluator(node, opsets=self._opsets).run(None, feeds)
        for name, value in zip(node.output, results, strict=True):
            self._constant(name, self._arrays.from_array(np.asarray(value)))

    def _types_of(self, node: Any, given: list[str]) -> None:
        domain = node.domain if node.domain != "ai.onnx" else ""
        if domain not in self._opsets or not all(name in self.types for name in given):
            return
        defs = self._onnx.defs
        if not defs.has(node.op_type, domain=domain, max_inclusive_version=self._opsets[domain]):
            return
        schema = defs.get_schema(node.op_type, self._opsets[domain], domain)
        types = {name: self.types[name] for name in given}
        data = {name: self._arrays.from_array(self.values[name], name) for name in given if name in self.values}
        opsets = [self._onnx.helper.make_opsetid(d, v) for d, v in self._opsets.items()]
        self.types.update(self._infer(schema, node, types, data, None, opsets, self._ir_version))


def _elements(node: Any, feeds: dict[str, Any]) -> float:
    """Elements of the result, for an operator whose result may be much larger than its inputs; 0 for all others."""
    if node.op_type == "Range":
        start, limit, delta = (float(feeds[name].reshape(())) for name in node.input)
        return math.inf if delta == 0 else max(0.0, (limit - start) / delta)
    if node.op_type in ("ConstantOfShape", "Expand"):
        asked = feeds[node.input[-1]].reshape(-1)
        given = feeds[node.input[0]].size if node.op_type == "Expand" else 1
        return size(tuple(map(int, asked))) * given
    return 0


class _Reader:
    """Converts the nodes of a graph with shapes to operations, and sums up what is dropped."""

    def __init__(self, model: Any, shapes: _Shapes, precision: str, whitelist: Collection[str]) -> None:
        self._helper = importlib.import_module("onnx.helper")
        self._nodes = list(model.graph.node)
        self._shapes, self._precision, self._whitelist = shapes, precision, whitelist
        self._uses = Counter(itertools.chain.from_iterable(node.input for node in self._nodes))
        self._uses.update(value.name for value in model.graph.output)
        self.operations: dict[Operation, list[str]] = {}
        self.dropped = DroppedTally()
        for node, added in self._with_biases():
            self._read(node, added)

    def _with_biases(self) -> Iterator[tuple[Any, str | None]]:
        """The nodes. A product with a weight includes the addition of its bias, as a linear layer does."""
        shapes = self._shapes
        adds = {
            source: (place, other)
            for place, node in enumerate(self._nodes)
            if node.op_type == "Add" and len(node.input) == 2
            for source, other in (tuple(node.input), tuple(node.input)[::-1])
            if other in shapes.constants and len(shapes.shape(other) or ()) == 1
        }
        taken: set[int] = set()
        for place, node in enumerate(self._nodes):
            if place in taken:
                continue
            linear = node.op_type == "MatMul" and node.input[1] in shapes.constants and self._uses[node.output[0]] == 1
            add = adds.get(node.output[0]) if linear else None
            if add is not None and shapes.shape(add[1]) == (shapes.shape(node.input[1]) or ())[-1:]:
                taken.add(add[0])
                yield node, add[1]
            else:
                yield node, None

    def _read(self, node: Any, bias: str | None) -> None:
        domain = node.domain if node.domain not in _DOMAINS else ""
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        if all(name in self._shapes.constants for name in node.output):
            return  # constants
        if not domain and node.op_type in FREE:
            return
        path = _path(node.name)
        convert = None if domain else OPERATORS.get(node.op_type)
        given = [*node.input, bias] if bias else list(node.input)
        unknown = [name for name in (*given, *node.output) if name and self._shapes.shape(name) is None]
        if convert is None or unknown:
            reason = "no operation kind" if convert is None else "its shape cannot be inferred"
            self.dropped.add(name, reason, path, self._work(node))
            return
        try:
            converted = convert(self._call(node, given))
        except (IndexError, KeyError, ValueError):
            self.dropped.add(name, "no operation kind in this form", path, self._work(node))
            return
        if converted is not None and not any(0 in shape for shape in converted[1]):
            self._record(converted, self._shapes.element(node.output[0]), path)

    def _record(self, converted: tuple[str, list[Shape], dict[str, Any]], element: int, path: str) -> None:
        kind, shapes, attributes = converted
        precision = _NAMED.get(element) or real_precision(kind, self._precision)
        operation = Operation(kind, shapes, attributes, precision=precision)
        if kind not in self._whitelist:
            self.dropped.add(
                kind, "not on the whitelist", path, DroppedWork.of(operation, self._element_bytes(element))
            )
            return
        self.operations.setdefault(operation, []).append(path)

    def _work(self, node: Any) -> DroppedWork | None:
        """Amount of work of a node without a kind; None if a shape or a type is not known. Its FLOPs are not known."""
        sizes: dict[str, int] = {}
        for name in filter(None, (*node.input, *node.output)):
            shape, element = self._shapes.shape(name), self._shapes.element(name)
            if shape is None or not element:
                return None
            sizes[name] = size(shape) * self._element_bytes(element)
        moved = sum(sizes.values())
        weights = sum(sizes[name] for name in node.input if name in self._shapes.constants)
        return DroppedWork(0, moved, weights, sum(sizes[name] for name in node.output if name), moved - weights)

    def _element_bytes(self, element: int) -> int:
        return int(self._helper.tensor_dtype_to_np_dtype(element).itemsize) if element else 4

    def _call(self, node: Any, given: list[str]) -> Call:
        attributes = {item.name: self._helper.get_attribute_value(item) for item in node.attribute}
        values = {i: self._shapes.values[name] for i, name in enumerate(given) if name in self._shapes.values}
        return Call(
            inputs=tuple(self._shapes.shape(name) or () for name in given),
            outputs=tuple(self._shapes.shape(name) or () for name in node.output),
            attributes={n: v.decode() if isinstance(v, bytes) else v for n, v in attributes.items()},
            weights=tuple(name in self._shapes.constants for name in given),
            numbers={i: tuple(float(n) for n in value.reshape(-1)) for i, value in values.items()},
        )


def _path(name: str) -> str:
    """Module path from a name such as "/layer1/layer1.0/conv1/Conv", as PyTorch's exporter writes it."""
    path = ""
    for part in name.strip("/").split("/")[:-1]:
        path = part if not path or part.startswith(f"{path}.") else f"{path}.{part}"
    return path
