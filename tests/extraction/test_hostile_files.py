"""Malicious files: none of them crashes a process, or takes more memory or time than allowed."""

import json
import os
import zipfile

import pytest
import torch

import joulecast
from joulecast.errors import ExtractionError, InputError
from joulecast.extraction.isolation import SHARED, Limits
from joulecast.extraction.job import Assumptions, Job
from joulecast.extraction.known_values import KnownValues
from joulecast.operations.inputs import Inputs

FLOAT = 7  # number of the type float32 in the format


def program(path, nodes, sizes=(2, 8), outputs=()):
    """A .pt2 file of one input x and these nodes: (target, arguments, name of the result)."""
    size = [{"as_int": n} for n in sizes]
    x = {"dtype": FLOAT, "sizes": size, "requires_grad": False, "strides": [], "layout": 7}
    graph = {
        "inputs": [{"as_tensor": {"name": "x"}}],
        "outputs": [{"as_tensor": {"name": name}} for name in outputs],
        "nodes": [
            {
                "target": target,
                "inputs": [{"name": "", "arg": argument, "kind": 1} for argument in arguments],
                "outputs": [{"as_tensor": {"name": name}}] if isinstance(name, str) else name,
                "metadata": {},
            }
            for target, arguments, name in nodes
        ],
        "tensor_values": {"x": x},
    }
    signature = {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs": []}
    content = {"schema_version": {"major": 8, "minor": 0}, "graph_module": {"graph": graph, "signature": signature}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", json.dumps(content))
    return path


def aten(name):
    return f"torch.ops.aten.{name}"


RELU = (aten("relu.default"), [{"as_tensor": {"name": "x"}}], "y")


def test_a_program_by_hand_is_read(tmp_path):
    """A valid file made in the same way is read, so the files below are refused because of their content."""
    path = program(tmp_path / "m.pt2", [RELU])
    network = joulecast.extract(path)
    assert [entry.operation.kind for entry in network] == ["relu"]
    # Custom operators exist only in this process, so a file that needs them is read here: the user trusts it.
    assert joulecast.extract(path, operators={"mylib.gelu": "gelu"}).entries == network.entries


def test_what_would_write_outside_or_end_the_process_is_not_computed():
    known = KnownValues(Assumptions())

    def full(shape, value):
        return known.run(torch.ops.aten.full.default, (shape, value), {"device": "meta", "dtype": torch.int64})

    ones = [known.run(torch.ops.aten.ones.default, (s,), {"device": "meta"}) for s in ([1, 1, 1, 1], [1, 1, 2, 2])]
    indices = full([1, 1, 1, 1], 1)
    assert hasattr(indices, "known_value")
    function = torch.ops.aten.max_pool2d_with_indices_backward.default
    outside = known.run(function, (*ones, [2, 2], [2, 2], [0, 0], [1, 1], False, indices), {})
    # -2**63 / -1 ends a process on x86, where PyTorch truncates.
    least = full([1], -(2**63)), full([1], -1)
    divided = known.run(torch.ops.aten.div.Tensor_mode, least, {"rounding_mode": "trunc"})
    assert not hasattr(outside, "known_value")
    assert not hasattr(divided, "known_value")


def test_a_power_without_end_and_a_graph_that_inflates(tmp_path):
    power = ("_operator.pow", [{"as_int": 9}, {"as_int": 10**9}], [{"as_sym_int": {"as_name": "n"}}])
    with pytest.raises(ExtractionError, match="impossible"):
        joulecast.extract(program(tmp_path / "m.pt2", [power, RELU]))
    path = tmp_path / "n.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("m/models/m.json", "w") as member:
        for _ in range(80):
            member.write(b" " * (1 << 20))
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match="too large"):
        joulecast.extract(path)


def question(path, shape):
    return {"file": str(path), **Job().to_json(None if shape is None else Inputs.of(shape))}


def test_limits_end_one_extraction_and_not_the_next(tmp_path):
    pytest.importorskip("transformers")
    layers = tmp_path / "config.json"
    layers.write_text(json.dumps({"model_type": "bert", "num_hidden_layers": 1000, "architectures": ["BertModel"]}))
    relu, long = program(tmp_path / "m.pt2", [RELU]), program(tmp_path / "n.pt2", [RELU] * 3000)
    assert SHARED.network(question(relu, None), Limits())
    process = SHARED._process
    with pytest.raises(ExtractionError, match="too long"):
        SHARED.network(question(layers, (1, 8)), Limits(seconds=0.5))
    with pytest.raises(ExtractionError, match=r"memory|stopped"):
        SHARED.network(question(long, None), Limits(memory_bytes=1 << 20))
    assert SHARED.network(question(relu, None), Limits())
    assert SHARED._process is process
    process.kill()  # A process that was killed has a successor.
    process.wait()
    assert [entry.operation.kind for entry in joulecast.extract(relu)] == ["relu"]


def test_a_configuration_with_more_layers_than_models_have(tmp_path):
    pytest.importorskip("transformers", reason="needs joulecast[transformers]")
    path = tmp_path / "config.json"
    for kind, layers in (("bert", "num_hidden_layers"), ("gpt2", "n_layer")):
        path.write_text(json.dumps({"model_type": kind, layers: 1001}))
        with pytest.raises(InputError, match="more layers") as caught:
            joulecast.extract(path, (1, 8))
        assert (caught.value.given, caught.value.allowed) == ("1001", "up to 1000")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".json", ".txt"])
def test_only_regular_files_with_possible_names_are_opened(tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"endless{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"folder{suffix}").mkdir()
    for name in (*(tmp_path / each for each in ("pipe", "endless", "folder")), "a\0b", "x" * 5000):
        with pytest.raises(InputError):
            joulecast.extract(f"{name}{suffix}", (1, 8))


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"\xff\xfe[",
        b'[{"kind": "relu", "input_shapes": [[1]], "attributes": 5}]',
        b'[{"kind": ["relu"], "input_shapes": [[1]]}]',
        b'{"operations": [{"kind": "relu", "input_shapes": [[1]]}], "dropped": [1]}',
        b'{"model_type": []}',
    ],
    ids=["deep", "not text", "attributes", "kind", "dropped", "type"],
)
def test_damaged_json(tmp_path, content):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        joulecast.extract(path, (1, 8))


@pytest.mark.parametrize(("place", "value"), [(6, 1), (8, 99), (8, 14)], ids=["encrypted", "method", "lzma"])
def test_archives_of_other_kinds(tmp_path, place, value):
    """In both headers of a member, one byte says that it is encrypted, or names its compression."""
    path = program(tmp_path / "m.pt2", [RELU])
    data = bytearray(path.read_bytes())
    data[place] = value
    data[data.rindex(b"PK\x01\x02") + 2 + place] = value
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        joulecast.extract(path)
