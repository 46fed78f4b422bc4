"""ONNX files: operators by hand, shapes that the graph computes, and files that cannot be."""

import subprocess
import sys

import numpy as np
import pytest

import joulecast
from joulecast import Operation
from joulecast.errors import ExtractionError, InputError, MissingDependencyError
from joulecast.extraction.job import Job
from joulecast.extraction.sources import network_of_file
from joulecast.operations.inputs import Inputs

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402 (they need what may be missing)

FLOAT = TensorProto.FLOAT


def save(path, nodes, inputs, weights, element=FLOAT):
    dtype = helper.tensor_dtype_to_np_dtype(element)
    initializers = [
        numpy_helper.from_array(w if isinstance(w, np.ndarray) else np.zeros(w, dtype), name)
        for name, w in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], element, None)],
        initializers,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def node(kind, inputs, output="y", *, name="", **attributes):
    return helper.make_node(kind, inputs.split(), output.split(), name=name, **attributes)


IMAGE, X = {"x": ["batch", 4, 9, 9]}, (2, 4, 9, 9)


def case(one, kind, attributes=None, shapes=(X,), **weights):
    """A node, its further inputs, and the operation that it is; convolutions may run in TF32."""
    precision = "tf32" if kind.startswith("conv") else "fp32"
    return one, weights, Operation(kind, shapes, attributes, precision=precision)


SIX = {"out_channels": 6, "kernel_size": 3}
CASES = {
    "Conv": case(
        node("Conv", "x w b", pads=[1, 1, 1, 1], strides=[2, 2], group=2),
        *("conv2d", {**SIX, "stride": 2, "padding": 1, "groups": 2}),
        w=(6, 2, 3, 3),
        b=(6,),
    ),
    "Conv that pads one side": case(
        node("Conv", "x w", pads=[0, 0, 1, 1]),
        *("conv2d", {"out_channels": 6, "kernel_size": 2, "bias": False}, [(2, 4, 10, 10)]),
        w=(6, 4, 2, 2),
    ),
    "Conv that pads itself": case(
        node("Conv", "x w", auto_pad="SAME_UPPER"), "conv2d", {**SIX, "padding": 1, "bias": False}, w=(6, 4, 3, 3)
    ),
    "ConvTranspose": case(
        node("ConvTranspose", "x w b", strides=[2, 2], output_padding=[1, 1]),
        *("conv_transpose2d", {"out_channels": 5, "kernel_size": 3, "stride": 2, "output_padding": 1}),
        w=(4, 5, 3, 3),
        b=(5,),
    ),
    "MaxPool": case(
        node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2]), "max_pool2d", {"kernel_size": 3, "stride": 2}
    ),
    "AveragePool": case(
        node("AveragePool", "x", kernel_shape=[3, 3], strides=[3, 3]), "avg_pool2d", {"kernel_size": 3, "stride": 3}
    ),
    "GlobalAveragePool": case(node("GlobalAveragePool", "x"), "adaptive_avg_pool2d"),
    "BatchNormalization": case(
        node("BatchNormalization", "x s b m v"), "batch_norm", **dict.fromkeys(("s", "b", "m", "v"), (4,))
    ),
    "InstanceNormalization": case(
        node("InstanceNormalization", "x s b"), "group_norm", {"num_groups": 4}, s=(4,), b=(4,)
    ),
    "LayerNormalization": case(
        node("LayerNormalization", "x s", axis=-1), "layer_norm", {"normalized_shape": 9}, s=(9,)
    ),
    "Clip": case(node("Clip", "x low high"), "relu6", low=np.array(0, np.float32), high=np.array(6, np.float32)),
    "Mul with a number": case(node("Mul", "x two"), "mul", two=np.array(2, np.float32)),
    "Add that broadcasts": case(node("Add", "x b"), "add", None, [X, (9,)], b=(9,)),
    "ReduceMean": case(node("ReduceMean", "x axes", keepdims=0), "mean", {"dim": (2, 3)}, axes=np.array([2, 3])),
    "Concat": case(node("Concat", "x x", axis=1), "cat", {"dim": 1}, [X, X]),
    "Softmax": case(node("Softmax", "x", axis=1), "softmax", {"dim": 1}),
    "Transpose": case(node("Transpose", "x", perm=[0, 2, 3, 1]), "copy", None, [(2, 9, 9, 4)]),
    "MatMul with a weight": case(node("MatMul", "x w"), "linear", {"out_features": 5, "bias": False}, w=(9, 5)),
    "Where": case(
        node("Where", "m x zero"), "where", None, [(9,), X], m=np.ones((9,), bool), zero=np.array(0, np.float32)
    ),
    "Gather of slices": case(node("Gather", "x i", axis=1), "index_select", {"dim": 1}, [X, (2,)], i=np.array([0, 3])),
    "ScatterND": case(
        node("ScatterND", "x i u", reduction="add"),
        *("scatter", {"accumulate": True}, [X, (2, 9, 9), (2,)]),
        i=np.array([[0, 1], [1, 3]]),
        u=(2, 9, 9),
    ),
    "TopK": case(node("TopK", "x k", "y places", axis=1), "topk", {"k": 3, "dim": 1}, k=np.array([3])),
    "ReduceMax": case(
        node("ReduceMax", "x axes", keepdims=1), "max", {"dim": (1,), "keepdim": True}, axes=np.array([1])
    ),
    "ArgMax": case(node("ArgMax", "x", axis=1), "argmax", {"dim": 1, "keepdim": True}),
    "CumSum": case(node("CumSum", "x d"), "cumsum", {"dim": 2}, d=np.array(2)),
    "Resize": case(
        helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear"),
        *("interpolate", {"output_size": 18, "mode": "linear"}),
        s=np.array([1, 1, 2, 2], np.float32),
    ),
    "MatMul of two inputs": case(node("MatMul", "x x"), "matmul", None, [X, X]),
}


@pytest.mark.parametrize("case", CASES)
def test_operators(tmp_path, case):
    one, weights, expected = CASES[case]
    path = save(tmp_path / "model.onnx", [one], IMAGE, weights)
    (entry,) = joulecast.extract(path, (2, 4, 9, 9))
    assert entry.operation == expected


# As an exporter writes a transformer's attention for any batch: the shape to reshape to is computed by the graph.
ARITHMETIC = [
    node("MatMul", "x w", "product", name="/block/block.0/linear/MatMul"),
    node("Add", "b product", "sum", name="/block/block.0/linear/Add"),
    node("Shape", "sum", "shape"),
    node("Gather", "shape first", "batch"),
    node("Unsqueeze", "batch axes", "batch_1"),
    node("Concat", "batch_1 rest", "wanted", axis=0),
    node("Reshape", "sum wanted", "heads"),
    node("Transpose", "heads", "keys", perm=[0, 2, 1, 3], name="/block/Transpose"),
    node("Softmax", "keys", "y", name="/block/Softmax"),
]
WEIGHTS = {"w": (8, 12), "b": (12,), "first": np.array(0), "axes": np.array([0]), "rest": np.array([-1, 3, 4])}


def test_shapes_that_the_graph_computes(tmp_path):
    path = save(tmp_path / "block.onnx", ARITHMETIC, {"x": ["batch", "length", 8]}, WEIGHTS)
    for batch, length in ((2, 5), (7, 3)):
        network = joulecast.extract(path, (batch, length, 8))
        linear, copy, softmax = (entry.operation for entry in network)
        assert linear == Operation("linear", [(batch, length, 8)], {"out_features": 12})
        assert copy.output_shape == softmax.output_shape == (batch, 3, length, 4)
        assert network.dropped == ()
        assert network.entries[0].module_paths == ("block.0.linear",)
        assert network.name == "block"


def test_named_inputs_and_precisions(tmp_path):
    two = {"x": [2, 3], "z": ["n", 3]}
    path = save(tmp_path / "two.onnx", [node("Add", "x z")], two, {}, TensorProto.FLOAT16)
    for shapes in ({"z": (1, 3), "x": (2, 3)}, [(2, 3), (1, 3)]):
        network = joulecast.extract(path, shapes)
        assert network.input_shape == {"x": (2, 3), "z": (1, 3)}
        assert network.entries[0].operation.precision == "fp16"


def test_unknown_operators_are_dropped(tmp_path):
    nodes = [
        node("Det", "x", "e", name="/block/Det"),
        helper.make_node("Fused", ["e"], ["f"], domain="own"),
        node("Relu", "f", "r"),
        node("Relu", "x", "y"),
    ]
    network = joulecast.extract(save(tmp_path / "m.onnx", nodes, {"x": [4, 4]}, {}))
    assert [entry.operation for entry in network] == [Operation("relu", [(4, 4)])]
    assert {(d.name, d.reason) for d in network.dropped} == {
        ("Det", "no operation kind"),
        ("own.Fused", "no operation kind"),
        ("Relu", "its shape cannot be inferred"),
    }
    alone = save(tmp_path / "alone.onnx", [node("Det", "x")], {"x": [4, 4]}, {})
    with pytest.raises(ExtractionError, match="no operator"):
        joulecast.extract(alone)


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        (None, {}, "needs the shape"),
        ((2, 4, 9, 8), {}, "other sizes of x"),
        ((2, 4, 9), {}, "other sizes of x"),
        ([(2, 4, 9, 9)] * 2, {}, "other inputs"),
        ({"y": (2, 4, 9, 9)}, {}, "other inputs"),
        ((2, 4, 9, 9), {"mode": "training"}, "describes a forward"),
        ((2, 4, 9, 9), {"cache_length": 3}, "among its inputs"),
    ],
)
def test_bad_input(tmp_path, shape, options, says):
    path = save(tmp_path / "m.onnx", [node("Relu", "x")], IMAGE, {})
    with pytest.raises(InputError, match=says):
        joulecast.extract(path, shape, **options)


def test_damaged_files(tmp_path):
    path = save(tmp_path / "m.onnx", [node("MatMul", "x w")], IMAGE, {"w": (8, 5)})
    content = path.read_bytes()
    for name, damaged in {"cut": content[: len(content) // 2], "text": b"hello", "empty": b""}.items():
        (tmp_path / f"{name}.onnx").write_bytes(damaged)
    says = {"m": "shapes of this ONNX file do not fit", "nowhere": "cannot be read"}
    for name in ("m", "cut", "text", "empty", "nowhere"):
        with pytest.raises(InputError, match=says.get(name)):
            joulecast.extract(tmp_path / f"{name}.onnx", (2, 4, 9, 9))


def test_neither_weights_nor_torch_are_needed_but_onnx_is(tmp_path, monkeypatch):
    path = save(tmp_path / "m.onnx", [node("MatMul", "x w")], {"x": [2, 300]}, {"w": (300, 500)})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    code = f"""import sys, joulecast
assert joulecast.extract({str(path)!r}).flops == 2 * 2 * 300 * 500
assert 'torch' not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.delitem(sys.modules, "joulecast.extraction.files.onnx_graphs", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[onnx\]"):
        network_of_file(Job(path, Inputs.of((2, 300))))


BOMBS = {
    "range": (4 * 10**8, node("Range", "zero most one", "r"), node("Cast", "r", "f", to=FLOAT), node("Add", "x f")),
    "expand": (2**29, node("Expand", "x_one wide", "e"), node("Add", "x e")),
    "constant": (2**29, node("ConstantOfShape", "wide", "e"), node("Add", "x e")),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_large_constants_are_known_by_shape_only(tmp_path, bomb):
    elements, *nodes = BOMBS[bomb]
    numbers = {"zero": 0, "one": 1, "most": 4 * 10**8, "wide": [2**29]}
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    path = save(tmp_path / "m.onnx", nodes, {"x": [1]}, weights | {"x_one": np.array([1], np.float32)})
    network = joulecast.extract(path)
    assert [max(max(shape) for shape in e.operation.input_shapes) for e in network] == [elements]


def test_functions_within_functions(tmp_path):
    """Each calls the one before twice, so the file of 40 functions says 10**12 nodes."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [node("Relu", "a", "b")], opsets)]
    for i in range(1, 40):
        calls = [helper.make_node(f"f{i - 1}", [a], [b], domain="own") for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("own", f"f{i}", ["a"], ["b"], calls, opsets))
    graph = helper.make_graph(
        [helper.make_node("f39", ["x"], ["y"], domain="own")],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions), path)
    with pytest.raises((ExtractionError, InputError)):
        joulecast.extract(path)
