"""Reads ONNX files as networks: infers all shapes of the graph, without running it. Needs onnx, but not torch."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ExtractionError, InputError, named, needing, with_extra
from ...operations.entry import DroppedTally, DroppedWork, Entry
from ...operations.inputs import Inputs
from ...operations.kinds import KINDS
from ...operations.network import Network
from ...operations.operation import Operation, real_precision
from ...operations.rules import Shape, size
from ...system.regular_files import read_regular, refusing_damage
from ..job import Job
from . import fitted
from .onnx_operators import FREE, OPERATORS, Call

with needing("an ONNX file needs onnx", with_extra("onnx")):
    import onnx
    from onnx import helper, inliner, numpy_helper
    from onnx.reference import ReferenceEvaluator
    from onnx.shape_inference import infer_node_outputs

# TensorProto.DataType of onnx.proto.
_NAMED = {10: "fp16", 11: "fp64", 16: "bf16"}
_MOST_BYTES = 2 << 30  # of any protobuf message
_MOST_NODES, _MOST_DEPTH = 500_000, 100  # with calls of functions replaced by their bodies
_DOMAINS = ("", "ai.onnx")


def load(path: Path, job: Job) -> Network:
    """Read the operations of an ONNX file, which is the model of the job; weights that lie beside it are not read.

    Without an input shape, it is that of the file, if it is fixed. Raises InputError: the file cannot be read or is
    damaged; or these are not its inputs; or more than a forward is asked for. Raises ExtractionError: no operation of
    it is known.
    """
    if job.cache_length is not None:
        raise InputError(
            "an ONNX file has its cache among its inputs",
            given=f"cache_length={job.cache_length}",
            hint="leave out cache_length, and give the inputs of the cache by name with their shapes",
        )
    if job.mode != "inference" or job.optimizer is not None:
        raise InputError(
            "an ONNX file describes a forward",
            given=f"mode={job.mode}, optimizer={job.optimizer}",
            allowed="inference",
            hint="give the PyTorch model for training",
        )
    for kind in job.whitelist:
        named("operation kind", kind, KINDS)
    model = _read(path)
    inputs = _fixed(model, path.stem, job.input_shape)
    with refusing_damage("the shapes of this ONNX file do not fit", path):
        tensors = _Tensors(model)
    dropped, operations = DroppedTally(), dict[Operation, list[str]]()
    for node, given in _with_biases(model.graph, tensors):
        module = _path(node.name)
        operation, reason, element = _operation(node, given, tensors, job.precision)
        if operation is not None and operation.kind in job.whitelist:
            operations.setdefault(operation, []).append(module)
        elif operation is not None:
            work = DroppedWork.of(operation, _element_bytes(element))
            dropped.add(operation.kind, "not on the whitelist", module, work)
        elif reason:
            dropped.add(_name(node), reason, module, tensors.work(node))
    if not operations:
        raise ExtractionError(
            "no operator of this ONNX file is known",
            given=str(path),
            hint="describe its operations as a list of (Operation, count)",
        )
    entries = tuple(Entry.at(operation, paths) for operation, paths in operations.items())
    return Network(entries, name=path.stem, input_shape=inputs.shape, dropped=dropped.listed())


def _read(path: Path) -> Any:
    with refusing_damage("this ONNX file cannot be read", path):
        # Bytes have no folder, so onnx cannot read other files.
        model = onnx.load_model_from_string(read_regular(path, _MOST_BYTES))
        if not model.graph.node:
            raise InputError(
                "this file holds no ONNX graph", given=str(path), allowed="a file that torch.onnx.export wrote"
            )
        _refuse_explosion(model)
        return inliner.inline_local_functions(model) if model.functions else model


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


class _Tensors:
    """What is known about the tensors of a graph before it runs.

    Raises ValueError or RuntimeError with a message of onnx: a node does not fit its inputs.
    """

    def __init__(self, model: Any) -> None:
        self._opsets = {entry.domain: entry.version for entry in model.opset_import}
        self._ir_version = model.ir_version
        self._types: dict[str, Any] = {value.name: value.type for value in model.graph.input}
        self.values: dict[str, Any] = {}
        """Values of small tensors that do not depend on the inputs: settings and shape arithmetic."""
        self.constants: set[str] = set()
        """Names of tensors of any size that do not depend on the values of the inputs."""
        for tensor in model.graph.initializer:
            self._keep(tensor.name, tensor)
        for node in model.graph.node:
            self._visit(node, [name for name in node.input if name])

    def shape(self, name: str) -> Shape | None:
        """Shape of a tensor; None if it is not known."""
        kind = self._types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None

    def element(self, name: str) -> int:
        """Type of the elements of a tensor, as a TensorProto.DataType; 0 if it is not known."""
        kind = self._types.get(name)
        return 0 if kind is None else int(kind.tensor_type.elem_type)

    def work(self, node: Any) -> DroppedWork | None:
        """Amount of work of a node without a kind; None if a shape or a type is not known. Its FLOPs are not known."""
        sizes: dict[str, int] = {}
        for name in filter(None, (*node.input, *node.output)):
            shape, element = self.shape(name), self.element(name)
            if shape is None or not element:
                return None
            sizes[name] = size(shape) * _element_bytes(element)
        moved = sum(sizes.values())
        weights = sum(sizes[name] for name in node.input if name in self.constants)
        return DroppedWork(0, moved, weights, sum(sizes[name] for name in node.output if name), moved - weights)

    def _keep(self, name: str, tensor: Any) -> None:
        self.constants.add(name)
        self._types[name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        if not tensor.external_data and size(tuple(tensor.dims)) <= _SMALL:
            self.values[name] = numpy_helper.to_array(tensor)

    def _visit(self, node: Any, given: list[str]) -> None:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            self._keep(node.output[0], node.attribute[0].t)
            return
        of_shape = node.op_type in ("Shape", "Size")
        if of_shape or all(name in self.constants for name in given):
            self.constants.update(node.output)
        if of_shape and (shape := self.shape(node.input[0])) is not None:
            # The shape is known, the values are not and do not matter.
            feeds = {node.input[0]: np.broadcast_to(np.float32(0), shape)}
        elif node.op_type in _ARITHMETIC and all(name in self.values for name in given):
            feeds = {name: self.values[name] for name in given}
        else:
            self._infer(node, given)
            return
        if _elements(node, feeds) > _SMALL:
            self._infer(node, given)
            return
        results = ReferenceEvaluator(node, opsets=self._opsets).run(None, feeds)
        for name, value in zip(node.output, results, strict=True):
            self._keep(name, numpy_helper.from_array(np.asarray(value)))

    def _infer(self, node: Any, given: list[str]) -> None:
        domain = node.domain if node.domain != "ai.onnx" else ""
        version = self._opsets.get(domain)
        if version is None or not all(name in self._types for name in given):
            return
        if not onnx.defs.has(node.op_type, domain=domain, max_inclusive_version=version):
            return
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        types = {name: self._types[name] for name in given}
        data = {name: numpy_helper.from_array(self.values[name], name) for name in given if name in self.values}
        opsets = [helper.make_opsetid(d, v) for d, v in self._opsets.items()]
        self._types.update(infer_node_outputs(schema, node, types, data, None, opsets, self._ir_version))


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


def _element_bytes(element: int) -> int:
    return int(helper.tensor_dtype_to_np_dtype(element).itemsize) if element else 4


def _with_biases(graph: Any, tensors: _Tensors) -> Iterator[tuple[Any, list[str]]]:
    """The nodes with their inputs. A product with a weight includes adding its bias, as a linear layer does."""
    uses = Counter(itertools.chain.from_iterable(node.input for node in graph.node))
    uses.update(value.name for value in graph.output)
    adds = {
        source: (place, other)
        for place, node in enumerate(graph.node)
        if node.op_type == "Add" and len(node.input) == 2
        for source, other in (tuple(node.input), tuple(node.input)[::-1])
        if other in tensors.constants and len(tensors.shape(other) or ()) == 1
    }
    taken: set[int] = set()
    for place, node in enumerate(graph.node):
        if place in taken:
            continue
        given = list(node.input)
        if node.op_type == "MatMul" and given[1] in tensors.constants and uses[node.output[0]] == 1:
            add, bias = adds.get(node.output[0], (place, ""))
            if bias and tensors.shape(bias) == (tensors.shape(given[1]) or ())[-1:]:
                taken.add(add)
                given.append(bias)
        yield node, given


def _name(node: Any) -> str:
    return node.op_type if node.domain in _DOMAINS else f"{node.domain}.{node.op_type}"


def _operation(
    node: Any, given: list[str], tensors: _Tensors, precision: str
) -> tuple[Operation | None, str | None, int]:
    """The operation of a node, or the reason why it has none; neither for what launches no kernel. And its type."""
    element = tensors.element(node.output[0])
    is_constant = all(name in tensors.constants for name in node.output)
    if is_constant or (node.domain in _DOMAINS and node.op_type in FREE):
        return None, None, element
    convert = OPERATORS.get(_name(node))
    if convert is None:
        return None, "no operation kind", element
    if any(name and tensors.shape(name) is None for name in (*given, *node.output)):
        return None, "its shape cannot be inferred", element
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    values = {i: tensors.values[name] for i, name in enumerate(given) if name in tensors.values}
    call = Call(
        inputs=tuple(tensors.shape(name) or () for name in given),
        outputs=tuple(tensors.shape(name) or () for name in node.output),
        attributes={n: v.decode() if isinstance(v, bytes) else v for n, v in attributes.items()},
        weights=tuple(name in tensors.constants for name in given),
        numbers={i: tuple(float(n) for n in value.reshape(-1)) for i, value in values.items()},
    )
    try:
        converted = convert(call)
    except (IndexError, KeyError, ValueError):
        return None, "no operation kind in this form", element
    if converted is None or any(0 in shape for shape in converted[1]):
        return None, None, element
    kind, shapes, attributes = converted
    real = _NAMED.get(element) or real_precision(kind, precision)
    return Operation(kind, shapes, attributes, precision=real), None, element


def _path(name: str) -> str:
    """Module path from a name such as "/layer1/layer1.0/conv1/Conv", as PyTorch's exporter writes it."""
    path = ""
    for part in name.strip("/").split("/")[:-1]:
        path = part if not path or part.startswith(f"{path}.") else f"{path}.{part}"
    return path
