"""Kinds that span several GPUs: fused layers of experts, and collectives over a link.

An operation is the part of one GPU. A layer of experts is divided over `expert_parallel` groups of experts, and
each expert's features over `tensor_parallel` GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import InputError
from .attributes import COUNT, FLAG, IMPLEMENTATIONS, Attribute, one_of
from .kind import Counted, Kind, Storage
from .products import GEMM_TRAINING, linear_storage
from .rules import Attributes, Shape, Shapes, per_output_element, require_at_most, require_multiple, size

_PRODUCTS = 3  # Gate, up and down.


def _experts_output(x: Shapes, a: Attributes) -> Shape:
    """The output has the shape of the input: each token gets the weighted sum of the outputs of its experts."""
    require_at_most("the top_k of a layer of experts", a["top_k"], a["experts"])
    require_multiple("experts over expert_parallel GPUs", a["experts"], a["expert_parallel"])
    require_multiple("intermediate features over tensor_parallel GPUs", a["intermediate"], a["tensor_parallel"])
    return x[0]


def _experts_flops(x: Shapes, a: Attributes, out: Shape) -> int:
    """FLOPs of the gate, up and down products of all experts on this GPU."""
    features = a["intermediate"] // a["tensor_parallel"]
    flops: int = 2 * _PRODUCTS * (size(out[:-1]) * a["top_k"]) * out[-1] * features // a["expert_parallel"]
    return flops


def touched_experts(tokens: int, attributes: Attributes) -> float:
    """Expected number of experts on this GPU that get at least one token, if each token draws its experts at random."""
    missed = (1 - attributes["top_k"] / attributes["experts"]) ** tokens
    return float(attributes["experts"] / attributes["expert_parallel"] * (1 - missed))


def _experts_storage(o: Counted) -> Storage:
    """Like that of linear layers, but only with the weights of those experts that get a token."""
    stored, local = linear_storage(o), o.attributes["experts"] / o.attributes["expert_parallel"]
    touched = touched_experts(size(o.output_shape[:-1]), o.attributes)
    return stored._replace(parameters=stored.parameters * touched / local)


def _scattered(shape: Shape, gpus: int) -> Shape:
    require_multiple("the first dimension of a tensor over GPUs", shape[0], gpus)
    return (shape[0] // gpus, *shape[1:])


def _collective(output: Callable[[Shape, int], Shape], *, adds: bool = False) -> Kind:
    """A collective of a group of GPUs over their link; if it adds, each GPU adds the parts of all others to its own.

    `output` gives the shape of its output, for that of its input and the number of GPUs.
    """

    def in_group(x: Shapes, a: Attributes) -> Shape:
        if a["gpus"] < 2:
            raise InputError(
                "a collective needs a group of GPUs",
                given=f"gpus={a['gpus']}",
                allowed="2 and more",
                hint="leave it out where there is one GPU",
            )
        return output(x[0], a["gpus"])

    return Kind(
        family="movement",
        attributes={
            "gpus": Attribute(COUNT),
            "link": Attribute(one_of("nvlink", "pcie"), "nvlink"),
            "implementation": Attribute(one_of(*IMPLEMENTATIONS), "pytorch"),
        },
        output=in_group,
        flops=(lambda x, a, out: size(x[0]) * (a["gpus"] - 1) // a["gpus"]) if adds else per_output_element(0),
        backward_flops=0.0,
        training="x -> y",
        measured_only=True,
    )


def sent_elements(kind: str, shapes: Shapes, attributes: Attributes) -> float:
    """Least number of elements that a GPU has to send.

    A switch can sum and copy data in the network (NVIDIA NVLink SHARP). In an all-reduce or all-gather, each GPU
    therefore has to send its own elements only once.
    """
    elements, others = size(shapes[0]), attributes["gpus"] - 1
    if kind in ("all_reduce", "all_gather"):
        return float(elements)
    return float(elements * others / attributes["gpus"])


PARALLEL: Mapping[str, Kind] = {
    # A mixture of experts as one call, as in inference engines: it sorts the tokens by expert, computes the products of
    # all experts, and adds up their outputs.
    "experts": Kind(
        family="matmul",
        takes="[..., tokens, hidden]",
        attributes={
            "intermediate": Attribute(COUNT),
            "top_k": Attribute(COUNT),
            "experts": Attribute(COUNT),
            "tensor_parallel": Attribute(COUNT, 1),
            "expert_parallel": Attribute(COUNT, 1),
            # How tokens are distributed: evenly over all experts, or by a power law of the experts' rank.
            "distribution": Attribute(one_of("balanced", "power_law_1.01", "power_law_1.2"), "balanced"),
            "block_scaled": Attribute(FLAG, False),
            "implementation": Attribute(one_of(*IMPLEMENTATIONS), "pytorch"),
        },
        output=_experts_output,
        flops=_experts_flops,
        parameters=lambda x, a: (
            a["experts"] // a["expert_parallel"] * _PRODUCTS * x[0][-1] * (a["intermediate"] // a["tensor_parallel"])
        ),
        storage=_experts_storage,
        tensor_cores=True,
        quantized=("fp8", "nvfp4"),
        measured_only=True,
        **GEMM_TRAINING,
    ),
    "all_reduce": _collective(lambda shape, gpus: shape, adds=True),
    # Each GPU ends up with the tensors of all GPUs, concatenated along the first dimension.
    "all_gather": _collective(lambda shape, gpus: (gpus * shape[0], *shape[1:])),
    # Each GPU ends up with its part of the sum, split along the first dimension.
    "reduce_scatter": _collective(_scattered, adds=True),
    "all_to_all": _collective(lambda shape, gpus: shape),
}
