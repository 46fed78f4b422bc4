"""Rules of recurrent layers: one operation is a call of cuDNN that runs all layers, directions and steps.

The input is [steps, batch, features], also for models with the batch first. Weights are those of PyTorch: for every
gate, layer and direction a matrix for the input, a matrix for the hidden state, and a bias for each of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import InputError
from .rules import Attributes, Product, Shape, Shapes

# FLOPs per hidden unit and step besides the products. A sigmoid counts 4 and a tanh 6, as in the table of kinds:
# LSTM: 4 sums of two products, 3 sigmoid, 2 tanh, 3 products, 1 sum; GRU: 3 sums, 2 sigmoid, 1 tanh, 3 products, 2 sums
# (h = (1 - z) n + z h); RNN: 1 sum, 1 tanh.
_GATES_AND_FLOPS = {4: 32, 3: 22, 1: 7}


def _directions(attributes: Attributes) -> int:
    return 2 if attributes["bidirectional"] else 1


def _hidden(attributes: Attributes) -> int:
    """Features of the state that one step passes to the next: those of the projection if there is one."""
    size: int = attributes.get("proj_size") or attributes["hidden_size"]
    return size


def recurrent_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The hidden states of the last layer at every step; those of both directions are concatenated."""
    if len(shapes[0]) != 3:
        raise InputError(
            "the input of a recurrent layer has three dimensions", given=shapes[0], allowed="[steps, batch, features]"
        )
    if attributes.get("proj_size", 0) >= attributes["hidden_size"]:
        raise InputError(
            "a projection is smaller than the hidden state",
            given=f"proj_size={attributes['proj_size']}",
            allowed=f"0 for none, to {attributes['hidden_size'] - 1}",
        )
    return (*shapes[0][:2], _directions(attributes) * _hidden(attributes))


def _layers(shapes: Shapes, attributes: Attributes) -> Iterator[int]:
    """Input features of every layer in every direction."""
    for layer in range(attributes["num_layers"]):
        features = shapes[0][-1] if layer == 0 else _directions(attributes) * _hidden(attributes)
        yield from [features] * _directions(attributes)


def recurrent_parameters(gates: int) -> Callable[[Shapes, Attributes], int]:
    """Parameter rule of a recurrent layer with this number of gates."""

    def parameters(shapes: Shapes, attributes: Attributes) -> int:
        hidden = attributes["hidden_size"]
        biases = 2 if attributes["bias"] else 0
        projection = hidden * attributes.get("proj_size", 0)
        return sum(
            gates * hidden * (features + _hidden(attributes) + biases) + projection
            for features in _layers(shapes, attributes)
        )

    return parameters


def recurrent_flops(gates: int) -> Callable[[Shapes, Attributes, Shape], int]:
    """FLOP rule of a recurrent layer: two matrix products for each step, and the arithmetic of the gates."""

    def flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
        steps, batch, _ = shapes[0]
        hidden, projection = attributes["hidden_size"], attributes.get("proj_size", 0)
        per_unit = 2 * projection + _GATES_AND_FLOPS[gates]
        layers = (2 * gates * (features + _hidden(attributes)) for features in _layers(shapes, attributes))
        return sum(steps * batch * hidden * (products + per_unit) for products in layers)

    return flops


def recurrent_product(gates: int) -> Callable[[Shapes, Attributes, Shape], Product]:
    """A single matrix product with as many FLOPs as the layer: rows of all steps, and the gates as columns."""
    count = recurrent_flops(gates)

    def product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
        rows, columns = shapes[0][0] * shapes[0][1], gates * attributes["hidden_size"]
        return Product(1, rows, columns, max(1, count(shapes, attributes, output) // (2 * rows * columns)))

    return product


def gate_elements(gates: int, shapes: Shapes, attributes: Attributes) -> int:
    """Elements of the gates of all steps, layers and directions. One kernel writes them and another reads them."""
    steps, batch, _ = shapes[0]
    elements: int = steps * batch * gates * attributes["hidden_size"] * attributes["num_layers"]
    return elements * _directions(attributes)


def recurrent_steps(shapes: Shapes, attributes: Attributes) -> int:
    """Steps that have to run one after another. A layer can start as soon as the layer below has finished one step."""
    layers: int = attributes["num_layers"]
    return shapes[0][0] + layers - 1
