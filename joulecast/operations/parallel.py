"""Rules of what runs on several GPUs: fused layers of experts, and collectives over a link.

An operation is what one of the GPUs does. A layer of experts is divided over `expert_parallel` groups of experts, and
each expert's features over `tensor_parallel` GPUs.
"""

from __future__ import annotations

from ..errors import InputError
from . import storage
from .rules import Attributes, Shape, Shapes, size
from .storage import Storage

_PRODUCTS = 3  # Gate, up and down.


def experts_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """Each token gets the sum of what its experts give."""
    if len(shapes[0]) < 2:
        raise InputError("a layer of experts takes tokens with features", given=shapes[0], allowed="[tokens, hidden]")
    if attributes["top_k"] > attributes["experts"]:
        raise InputError(
            "a token cannot go to more experts than there are",
            given=f"top_k={attributes['top_k']} of {attributes['experts']} experts",
            allowed="top_k up to the number of experts",
        )
    for parts, whole in (("expert_parallel", "experts"), ("tensor_parallel", "intermediate")):
        if attributes[whole] % attributes[parts]:
            raise InputError(
                f"{whole} do not divide over the GPUs",
                given=f"{whole}={attributes[whole]}, {parts}={attributes[parts]}",
                allowed=f"a {parts} that divides them",
            )
    return shapes[0]


def _features(attributes: Attributes) -> int:
    features: int = attributes["intermediate"] // attributes["tensor_parallel"]
    return features


def experts_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """Gate, up and down for each expert that a token goes to, as far as these experts are on this GPU."""
    rows = size(output[:-1]) * attributes["top_k"]
    flops: int = 2 * _PRODUCTS * rows * output[-1] * _features(attributes) // attributes["expert_parallel"]
    return flops


def experts_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """Gate, up and down of the experts on this GPU."""
    experts: int = attributes["experts"] // attributes["expert_parallel"]
    return experts * _PRODUCTS * shapes[0][-1] * _features(attributes)


def touched_experts(tokens: int, attributes: Attributes) -> float:
    """How many of the experts on this GPU get a token at all, if each token draws its experts evenly."""
    missed = (1 - attributes["top_k"] / attributes["experts"]) ** tokens
    return float(attributes["experts"] / attributes["expert_parallel"] * (1 - missed))


def experts_storage(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """As a linear layer's, with the weights of those experts that get a token."""
    stored = storage.linear(shapes, attributes, output, parameters, precision)
    local = attributes["experts"] / attributes["expert_parallel"]
    return stored._replace(parameters=stored.parameters * touched_experts(size(output[:-1]), attributes) / local)


def _require_group(attributes: Attributes) -> int:
    gpus: int = attributes["gpus"]
    if gpus < 2:
        raise InputError(
            "a collective needs a group of GPUs",
            given=f"gpus={gpus}",
            allowed="2 and more",
            hint="leave it out where there is one GPU",
        )
    return gpus


def as_large(shapes: Shapes, attributes: Attributes) -> Shape:
    """Each GPU ends up with as much as it began with."""
    _require_group(attributes)
    return shapes[0]


def gathered(shapes: Shapes, attributes: Attributes) -> Shape:
    """Each GPU ends up with what all of them had, one after the other."""
    return (_require_group(attributes) * _first(shapes), *shapes[0][1:])


def scattered(shapes: Shapes, attributes: Attributes) -> Shape:
    """Each GPU ends up with its part of the sum."""
    gpus = _require_group(attributes)
    if _first(shapes) % gpus:
        raise InputError("a tensor does not divide over the GPUs", given=f"{shapes[0]} over {gpus} GPUs")
    return (_first(shapes) // gpus, *shapes[0][1:])


def _first(shapes: Shapes) -> int:
    if not shapes[0]:
        raise InputError("a collective needs a tensor of at least one dimension", given=shapes[0])
    return shapes[0][0]


def additions(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """What a GPU adds up of a sum over the group: its own part, from each of the others."""
    gpus: int = attributes["gpus"]
    return size(shapes[0]) * (gpus - 1) // gpus


def sent_elements(kind: str, shapes: Shapes, attributes: Attributes) -> float:
    """Elements that a GPU has to send to the others, at least.

    A switch may add up (NVIDIA, NVLink SHARP) and copy, so of a sum, and of what all others get, each GPU sends what
    it has once.
    """
    elements, others = size(shapes[0]), attributes["gpus"] - 1
    if kind in ("all_reduce", "all_gather"):
        return float(elements)
    return float(elements * others / attributes["gpus"])


def nothing(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """Data move, nothing is computed."""
    return 0
