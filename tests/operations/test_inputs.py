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


SUCH_AS = "a shape such as (32, 3, 224, 224), a list of shapes, a dictionary of name and shape; or example tensors"
NO_SHAPE, NO_INPUT = ("a shape is a list of positive integers", SUCH_AS), ("this is not an input", SUCH_AS)
NO_SIZES = (NO_SHAPE[0], "such as [32, 3, 224, 224]")
NO_NAMES = ("inputs by name are a dictionary of names and shapes", 'such as {"input_ids": (8, 128)}')


@pytest.mark.parametrize(
    ("value", "says", "given"),
    [
        (None, ("a model needs the shape of its input", SUCH_AS), "none"),
        (3, NO_INPUT, "3"),
        ("32,3", NO_INPUT, "'32,3'"),
        ({}, NO_NAMES, "{}"),
        ({"x": (2,), 1: (2,)}, NO_NAMES, "{'x': (2,), 1: (2,)}"),
        ({"x": "y"}, NO_INPUT, "'y'"),
        ((2, 0), NO_SIZES, "(2, 0)"),
        ((2, 1.5), NO_SHAPE, "(2, 1.5)"),
        ([(2, 3), "x"], NO_SHAPE, "[(2, 3), 'x']"),
        ([(1, 2), 3], NO_SHAPE, "[(1, 2), 3]"),
        ([(1, 2), [3, -1]], NO_SIZES, "(3, -1)"),
        ([[1, 1] * 50, 3], NO_SHAPE, "[[" + "1, " * 32 + "1,"),  # at most a hundred characters
    ],
)
def test_invalid_inputs_are_refused(value, says, given):
    with pytest.raises(InputError) as caught:
        Inputs.of(value)
    assert ((caught.value.what, caught.value.allowed), caught.value.given) == (says, given)
