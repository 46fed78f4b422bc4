"""Trees to and from ONNX.

Reading takes the one node that skl2onnx and onnxmltools write (TreeEnsembleRegressor of ai.onnx.ml 1) and ignores the
rest of the file; nothing of it reaches ONNX Runtime. Writing makes a TreeEnsemble of ai.onnx.ml 5, which ONNX Runtime
loads in less than half the time and which gives the same numbers to the last bit. Source:
https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError
from ..formats import onnx_writer
from ..formats.protobuf import fields, repeated_floats, repeated_integers, signed
from .trees import Trees

INPUT, OUTPUT = "operations", "variable"

# Fields of onnx.proto.
_GRAPH, _NODE, _GRAPH_INPUT = 7, 1, 11
_NODE_OPERATOR, _NODE_ATTRIBUTE = 4, 5
_BRANCHES = {b"\x0aBRANCH_LEQ": False, b"\x09BRANCH_LT": True}  # As in the file: length, then text.
_LEAF = b"\x04LEAF"
_FLOATS, _INTS, _STRINGS = 6, 7, 8  # AttributeProto.type
_TYPE = b"\xa0\x01"  # The tag of the field AttributeProto.type, which comes last.


def trees_from_onnx(model: bytes) -> Trees:
    """Read the trees of an ONNX model.

    Raises:
        ZooError: The bytes are not an ONNX model, or not a model of trees.
    """
    try:
        return _read(memoryview(model))
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise ZooError(
            "an ONNX model of trees cannot be read",
            given=f"{error}"[:200] or None,
            allowed="a single TreeEnsembleRegressor, as skl2onnx and onnxmltools write it",
            hint="train it again with the versions in constraints.txt",
        ) from error


def _one(data: memoryview, number: int) -> memoryview:
    found = [value for each, _, value in fields(data) if each == number]
    if len(found) != 1 or not isinstance(found[0], memoryview):
        raise ValueError(f"field {number} occurs {len(found)} times instead of once")
    return found[0]


def _columns(graph: memoryview) -> int:
    value = _one(graph, _GRAPH_INPUT)
    if bytes(_one(value, 1)) != INPUT.encode():
        raise ValueError(f"the input is not called {INPUT}")
    shape = _one(_one(_one(value, 2), 1), 2)  # type, tensor_type, shape
    dimensions = [each for number, _, each in fields(shape) if number == 1]
    for number, _, size in fields(dimensions[1]):  # type: ignore[arg-type]  # a message, or fields() raises
        if number == 1 and isinstance(size, int):
            return size
    raise ValueError("the number of inputs is not stated")


def _attributes(node: memoryview) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, _, value in fields(node):
        if number != _NODE_ATTRIBUTE or not isinstance(value, memoryview):
            continue
        size = value[1]
        name, rest, kind = bytes(value[2 : 2 + size]).decode("ascii"), value[2 + size : -3], value[-1]
        if value[0] != 0x0A or bytes(value[-3:-1]) != _TYPE or name in found:
            raise ValueError("the fields of an attribute are not in the expected order")
        if kind == _INTS:
            found[name] = repeated_integers(rest)
        elif kind == _FLOATS:
            found[name] = repeated_floats(rest)
        elif kind == _STRINGS:
            # Neither the allowed texts nor their lengths contain the byte of the tag, so splitting at it is safe.
            found[name] = bytes(rest).split(b"\x4a")[1:]
        else:
            ((_, _, found[name]),) = fields(rest)
    return found


def _read(model: memoryview) -> Trees:
    graph = _one(model, _GRAPH)
    node, columns = _one(graph, _NODE), _columns(graph)
    if bytes(_one(node, _NODE_OPERATOR)) != b"TreeEnsembleRegressor":
        raise ValueError("its operator is not a TreeEnsembleRegressor")
    of = _attributes(node)
    if signed(of["n_targets"]) != 1 or bytes(of.get("post_transform", b"NONE")) != b"NONE":
        raise ValueError("it has several results, or transforms its result")
    if bytes(of.get("aggregate_function", b"SUM")) != b"SUM":
        raise ValueError("it does not add up the results of its trees")
    modes = of["nodes_modes"]
    (branch,) = set(modes) - {_LEAF} or {b"\x0aBRANCH_LEQ"}
    below = _BRANCHES[branch]
    is_leaf = np.array(modes) == _LEAF

    numbers = of["nodes_nodeids"]
    starts = np.flatnonzero(numbers == 0)
    start = starts[of["nodes_treeids"]]
    if np.any(start + numbers != np.arange(len(is_leaf))):
        raise ValueError("the nodes of a tree are not numbered in sequence")
    holds, fails = start + of["nodes_truenodeids"], start + of["nodes_falsenodeids"]
    values = np.zeros(len(is_leaf), np.float32)
    values[starts[of["target_treeids"]] + of["target_nodeids"]] = of["target_weights"]
    order = _preorder(starts, is_leaf, holds, fails)
    is_leaf = is_leaf[order]
    leaves, inner = order[is_leaf], order[~is_leaf]
    inputs = of["nodes_featureids"][inner]
    if len(inputs) and not 0 <= int(inputs.min()) <= int(inputs.max()) < columns:
        raise ValueError("a node compares an input that does not exist")
    return Trees(
        columns=columns,
        below=below,
        base=float(of["base_values"][0]) if "base_values" in of else 0.0,
        is_leaf=is_leaf,
        inputs=inputs.astype(np.uint16),
        thresholds=of["nodes_values"][inner],
        values=values[leaves],
    )


def _preorder(
    starts: NDArray[np.int64], is_leaf: NDArray[np.bool_], holds: NDArray[np.int64], fails: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The nodes in preorder, as `Trees` stores them."""
    count = len(is_leaf)
    found: list[int] = []
    waiting = [int(start) for start in reversed(starts)]
    leaf, left, right = is_leaf.tolist(), holds.tolist(), fails.tolist()
    while waiting:
        node = waiting.pop()
        # If a node is reached twice, the file does not describe trees.
        if not 0 <= node < count or len(found) == count:
            raise ValueError("its nodes do not form trees")
        found.append(node)
        if not leaf[node]:
            waiting += (right[node], left[node])
    if len(set(found)) != count:
        raise ValueError("its nodes do not form trees")
    return np.array(found, np.int64)


def trees_to_onnx(trees: Trees) -> bytes:
    """The trees as a model for ONNX Runtime: `operations` of shape [N, columns] to `variable` of shape [N, 1].

    The base is left out, because this operator has none; it is added to the result.
    """
    is_leaf, starts = trees.is_leaf, trees.starts
    at = np.flatnonzero(~is_leaf)
    number = trees.numbers
    children = [at + 1, trees.otherwise]
    numbers, leaves = [number[child] for child in children], [is_leaf[child].astype(np.int64) for child in children]
    inputs, thresholds, roots = trees.inputs.astype(np.int64), trees.thresholds, number[starts]
    # A tree of one leaf is written as a node with that leaf on both sides.
    alone = is_leaf[starts]
    if alone.any():
        extra = int(alone.sum())
        numbers = [np.concatenate([each, number[starts[alone]]]) for each in numbers]
        leaves = [np.concatenate([each, np.ones(extra, np.int64)]) for each in leaves]
        inputs = np.concatenate([inputs, np.zeros(extra, np.int64)])
        thresholds = np.concatenate([thresholds, np.zeros(extra, np.float32)])
        roots = roots.copy()
        roots[alone] = len(at) + np.arange(extra)
    modes = np.full(len(inputs), 1 if trees.below else 0, np.uint8)
    node = onnx_writer.node(
        "TreeEnsemble",
        [INPUT],
        [OUTPUT],
        onnx_writer.whole("aggregate_function", 1),  # sum
        onnx_writer.whole("n_targets", 1),
        onnx_writer.whole("post_transform", 0),  # none
        onnx_writer.integers("leaf_targetids", np.zeros(len(trees.values), np.int64)),
        onnx_writer.array("leaf_weights", trees.values),
        onnx_writer.integers("nodes_featureids", inputs),
        onnx_writer.array("nodes_splits", thresholds),
        onnx_writer.array("nodes_modes", modes),
        onnx_writer.integers("nodes_truenodeids", numbers[0]),
        onnx_writer.integers("nodes_trueleafs", leaves[0]),
        onnx_writer.integers("nodes_falsenodeids", numbers[1]),
        onnx_writer.integers("nodes_falseleafs", leaves[1]),
        onnx_writer.integers("tree_roots", roots),
        domain="ai.onnx.ml",
    )
    taken = onnx_writer.value(onnx_writer.INPUT, INPUT, np.float32, ["rows", trees.columns])
    given = onnx_writer.value(onnx_writer.OUTPUT, OUTPUT, np.float32, ["rows", 1])
    return onnx_writer.model([node, taken, given], ir_version=10, ml=5, default=21)
