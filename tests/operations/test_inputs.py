"""Inputs of models: one shape, several shapes, shapes by name, or example tensors."""

import pytest
import torch

from joulecast import Network, Operation
from joulecast.errors import InputError
from joulecast.operations.entry import Entry
from joulecast.operations.inputs import Input, Inputs, shape_from_json, shape_text, shape_to_json, titled

SHAPES = [
    (None, ""),
    ((32, 3, 224, 224), "32 x 3 x 224 x 224"),
    (((8, 128), (8, 4)), "8 x 128, 8 x 4"),
    ({"input_ids": (8, 128), "mask": (8, 1)}, "input_ids 8 x 128, mask 8 x 1"),
]


@pytest.mark.parametrize(("shape", "text"), SHAPES)
def test_shapes_survive_json_and_are_printed(shape, text):
    assert shape is None or Inputs.of(shape).shape == shape
    assert shape_from_json(shape_to_json(shape)) == shape
    assert shape_text(shape) == text
    assert titled("net", shape) == f"net {text}".strip()
    network = Network((Entry(Operation("relu", [(4,)])),), input_shape=shape)
    assert Network.from_dict(network.to_dict()) == network


def test_example_tensors_give_shape_and_type():
    ids = torch.zeros((2, 7), dtype=torch.int64)
    assert Inputs.of(ids) == Inputs((Input((2, 7), "int64"),))
    assert Inputs.of([ids, (2, 3)]).positional == (Input((2, 7), "int64"), Input((2, 3)))
    assert Inputs.of({"x": ids}).named == (("x", Input((2, 7), "int64")),)
    assert Inputs.of(torch.Size([4, 2])).shape == (4, 2)


@pytest.mark.parametrize(
    "value", [None, 3, "32,3", {}, {1: (2,)}, (2, 0), (2, 1.5), [(2, 3), "x"], {"x": "y"}, [(1, 2), 3]]
)
def test_invalid_inputs_are_refused(value):
    with pytest.raises(InputError):
        Inputs.of(value)
