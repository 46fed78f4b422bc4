"""Shapes of an ONNX graph: what is known about its tensors before it runs."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from ...operations.rules import Shape, size

_SMALL = 64
# The operators of shape arithmetic. All others are not computed.
_ARITHMETIC = frozenset(
    """
    Add And Cast Concat Constant ConstantOfShape Div Equal Expand Floor Gather Greater Identity Less Max Min Mod Mul Neg
    Not Or Range ReduceProd Reshape ScatterND Shape Size Slice Squeeze Sub Transpose Unsqueeze Where
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)


class Shapes:
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
