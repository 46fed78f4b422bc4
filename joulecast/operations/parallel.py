"""Rules of operations that span several GPUs: fused layers of experts, and collectives over a link.

An operation is the part of one GPU. A layer of experts is divided over `expert_parallel` groups of experts, and
each expert's features over `tensor_parallel` GPUs.
"""

from __future__ import annotations

from ..errors import InputError
from . import storage
from .rules import Attributes, Shape, Shapes, size
from .storage import Storage

_PRODUCTS = 3  # Gate, up and down.


def experts_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The output has the shape of the input: each token gets the weighted sum of the outputs of its experts."""
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
    """FLOPs of the gate, up and down products of all experts on this GPU."""
    rows = size(output[:-1]) * attributes["top_k"]
    flops: int = 2 * _PRODUCTS * rows * output[-1] * _features(attributes) // attributes["expert_parallel"]
    return flops


def experts_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """Elements of the gate, up and down weights of the experts on this GPU."""
    experts: int = attributes["experts"] // attributes["expert_parallel"]
    return experts * _PRODUCTS * shapes[0][-1] * _features(attributes)


def touched_experts(tokens: int, attributes: Attributes) -> float:
    """Expected number of experts on this GPU that get at least one token, if each token draws its experts at random."""
    missed = (1 - attributes["top_k"] / attributes["experts"]) ** tokens
    return float(attributes["experts"] / attributes["expert_parallel"] * (1 - missed))


def experts_storage(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Like `storage.linear`, but only with the weights of those experts that get a token."""
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
    """The output has the shape of the input."""
    _require_group(attributes)
    return shapes[0]


def gathered(shapes: Shapes, attributes: Attributes) -> Shape:
    """Each GPU ends up with the tensors of all GPUs, concatenated along the first dimension."""
    return (_require_group(attributes) * shapes[0][0], *shapes[0][1:])


def scattered(shapes: Shapes, attributes: Attributes) -> Shape:
    """Each GPU ends up with its part of the sum, split along the first dimension."""
    gpus = _require_group(attributes)
    if shapes[0][0] % gpus:
        raise InputError(
            "a tensor does not divide over the GPUs",
            given=f"{shapes[0]} over {gpus} GPUs",
            allowed=f"a first dimension that is a multiple of {gpus}",
        )
    return (shapes[0][0] // gpus, *shapes[0][1:])


def additions(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """Additions of one GPU in a sum over the group: it adds the parts of all other GPUs to its own part."""
    gpus: int = attributes["gpus"]
    return size(shapes[0]) * (gpus - 1) // gpus


def sent_elements(kind: str, shapes: Shapes, attributes: Attributes) -> float:
    """Least number of elements that a GPU has to send.

    A switch can sum and copy data in the network (NVIDIA NVLink SHARP). In an all-reduce or all-gather, each GPU
    therefore has to send its own elements only once.
    """
    elements, others = size(shapes[0]), attributes["gpus"] - 1
    if kind in ("all_reduce", "all_gather"):
        return float(elements)
    return float(elements * others / attributes["gpus"])
