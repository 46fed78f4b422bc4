"""What an ONNX file must be like before ONNX Runtime gets to see it.

ONNX Runtime is written in C++ and takes in whatever it can: files beside the model, subgraphs, functions, operators by
the hundred. A transformer of ours needs a list of two dozen operators over small tensors, so anything else is refused
here, by a reader that knows the fields of onnx.proto and no more. Source: https://github.com/onnx/onnx, onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..errors import ZooError
from .protobuf import BYTES, VARINT, fields, signed

# What torch.onnx.export writes of a transformer: arithmetic, shapes, nothing that loops, branches or draws.
OPERATORS = frozenset(
    {
        "Abs",
        "Add",
        "And",
        "Cast",
        "Clip",
        "Concat",
        "Constant",
        "Cos",
        "Div",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "Flatten",
        "Gather",
        "Gemm",
        "Greater",
        "Identity",
        "LayerNormalization",
        "Less",
        "Log",
        "MatMul",
        "Max",
        "Mean",
        "Min",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceMax",
        "ReduceMean",
        "ReduceSum",
        "Relu",
        "Reshape",
        "Shape",
        "Sigmoid",
        "Sin",
        "Slice",
        "Softmax",
        "Softplus",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tanh",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
_MOST_BYTES = 32 << 20
_MOST_NODES = 20_000
_MOST_TENSORS = 20_000
_MOST_DIMENSIONS = 8
_ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}  # TensorProto.data_type: floats, integers, truth

Field = tuple[int, int, int | memoryview]


def check_onnx(model: bytes, inputs: Mapping[str, int], outputs: frozenset[str]) -> None:
    """Check a model before it is given to ONNX Runtime.

    Args:
        model: The serialized model.
        inputs: Name of each input, and how many dimensions it has.
        outputs: Names of the outputs.

    Raises:
        ZooError: It is no ONNX model, or has what a transformer of ours does not.
    """
    if len(model) > _MOST_BYTES:
        raise ZooError("a stored network is larger than any can be", given=len(model), allowed=f"{_MOST_BYTES} bytes")
    try:
        _model(memoryview(model), inputs, outputs)
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        raise ZooError(
            "a stored network is no ONNX model that is allowed here",
            given=str(error)[:200],
            allowed="small tensors, and operators that neither loop nor branch nor read files",
            hint="pull the entry again, or train it again",
        ) from error


def _each(message: memoryview, allowed: Mapping[int, int], what: str) -> Iterator[Field]:
    """Fields of a message, all of which must be allowed and have the wire type that belongs to them."""
    for number, wire_type, value in fields(message):
        if allowed.get(number) != wire_type:
            raise ValueError(f"{what} with field {number} of wire type {wire_type}")
        yield number, wire_type, value


def _text(value: int | memoryview) -> str:
    return bytes(_message(value)).decode("utf-8")


def _message(value: int | memoryview) -> memoryview:
    if not isinstance(value, memoryview):
        raise TypeError("a number where a message must be")
    return value


def _model(model: memoryview, inputs: Mapping[str, int], outputs: frozenset[str]) -> None:
    graphs = 0
    # 1 IR version, 2 to 4 and 6 who made it, 5 version, 7 graph, 8 operator sets; no 20 training, no 25 functions.
    allowed = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, 7: BYTES, 8: BYTES}
    for number, _, value in _each(model, allowed, "a model"):
        if number == 7:
            graphs += 1
            _graph(_message(value), inputs, outputs)
        if number == 8:
            for inner, _, domain in _each(_message(value), {1: BYTES, 2: VARINT}, "an operator set"):
                if inner == 1 and _text(domain) not in ("", "ai.onnx"):
                    raise ValueError(f"operators of {_text(domain)}")
    if graphs != 1:
        raise ValueError(f"{graphs} graphs")


def _graph(graph: memoryview, inputs: Mapping[str, int], outputs: frozenset[str]) -> None:
    # 1 node, 2 name, 5 initializer, 10 text, 11 input, 12 output, 13 value; no 15 sparse, no 14 quantization.
    allowed = dict.fromkeys((1, 2, 5, 10, 11, 12, 13), BYTES)
    nodes = tensors = 0
    found: dict[int, list[tuple[str, int]]] = {11: [], 12: []}  # inputs and outputs
    known: set[str] = set()
    made: list[tuple[list[str], list[str]]] = []
    for number, _, value in _each(graph, allowed, "a graph"):
        if number == 1:
            nodes += 1
            made.append(_node(_message(value)))
        elif number == 5:
            tensors += 1
            known.add(_tensor(_message(value)))
        elif number in found:
            found[number].append(_value(_message(value)))
    if not 0 < nodes <= _MOST_NODES or tensors > _MOST_TENSORS:
        raise ValueError(f"{nodes} nodes and {tensors} tensors")
    if dict(found[11]) != dict(inputs) or len(found[11]) != len(inputs) or {name for name, _ in found[12]} != outputs:
        raise ValueError(f"inputs {dict(found[11])} and outputs {[name for name, _ in found[12]]}")
    known |= set(inputs)
    # In order, as ONNX demands: what a node takes was there before, and nothing is made twice.
    for taken, given in made:
        used = {name for name in taken if name}
        if not used <= known or known & set(given) or len(set(given)) != len(given):
            raise ValueError("nodes that are not in order")
        known |= {name for name in given if name}
    if not outputs <= known:
        raise ValueError("an output that nothing makes")


def _node(node: memoryview) -> tuple[list[str], list[str]]:
    taken: list[str] = []
    given: list[str] = []
    operator = ""
    allowed = dict.fromkeys((1, 2, 3, 4, 5, 6, 7), BYTES)
    for number, _, value in _each(node, allowed, "a node"):
        if number == 1:
            taken.append(_text(value))
        elif number == 2:
            given.append(_text(value))
        elif number == 4:
            operator = _text(value)
        elif number == 7 and _text(value) not in ("", "ai.onnx"):
            raise ValueError(f"an operator of {_text(value)}")
        elif number == 5:
            _attribute(_message(value))
    if operator not in OPERATORS:
        raise ValueError(f"operator {operator[:40]!r}")
    return taken, given


def _attribute(attribute: memoryview) -> None:
    # 1 name, 2 float, 3 integer, 4 text, 5 tensor, 7 floats, 8 integers, 13 text, 20 type; 6 and 11 would be graphs.
    allowed = {1: BYTES, 2: 5, 3: VARINT, 4: BYTES, 5: BYTES, 7: 5, 8: VARINT, 13: BYTES, 20: VARINT}
    for number, _, value in _each(attribute, allowed, "an attribute"):
        if number == 5:
            _tensor(_message(value))


def _tensor(tensor: memoryview) -> str:
    """Check a tensor, and return its name."""
    # 1 dimension, 2 type, 8 name, 9 bytes, 12 text; no 13 or 14, which are files elsewhere, and no other encodings.
    name, count, dimensions, kind, size = "", 1, 0, 0, -1
    for number, _, value in _each(tensor, {1: VARINT, 2: VARINT, 8: BYTES, 9: BYTES, 12: BYTES}, "a tensor"):
        if number == 1 and isinstance(value, int):
            dimensions += 1
            count *= max(-1, signed(value))
            if signed(value) < 0 or count > _MOST_BYTES:
                raise ValueError("a tensor with an impossible shape")
        elif number == 2 and isinstance(value, int):
            kind = value
        elif number == 8:
            name = _text(value)
        elif number == 9:
            size = len(_message(value))
    if dimensions > _MOST_DIMENSIONS or kind not in _ELEMENT_BYTES or max(size, 0) != count * _ELEMENT_BYTES[kind]:
        raise ValueError(f"tensor {name[:40]!r} has another size than its shape")
    return name


def _value(value: memoryview) -> tuple[str, int]:
    """Name and number of dimensions of an input or output."""
    name, dimensions = "", 0
    for number, _, part in _each(value, dict.fromkeys((1, 2, 3), BYTES), "a value"):
        if number == 1:
            name = _text(part)
        elif number == 2:
            dimensions = _dimensions(_message(part))
    return name, dimensions


def _dimensions(kind: memoryview) -> int:
    count = 0
    for _, _, tensor in _each(kind, {1: BYTES, 6: BYTES}, "a type"):
        for number, _, part in _each(_message(tensor), {1: VARINT, 2: BYTES}, "a tensor type"):
            if number == 2:
                count += sum(1 for _ in _each(_message(part), {1: BYTES}, "a shape"))
    return count
