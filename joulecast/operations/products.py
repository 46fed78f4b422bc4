"""Kinds that are matrix products: linear layers, attention, recurrent layers and distances.

A rule takes the input shapes `x` and the attributes `a`, and the output shape if it is given one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .attributes import COUNT, ELEMENT_BYTES, FLAG, IMPLEMENTATIONS, NORM, PRECISIONS, Attribute, integer, one_of
from .kind import Counted, Kind, Storage, Training, factors, plain
from .rules import Attributes, Product, Shape, Shapes, broadcast, require_at_most, require_multiple, size, visible_pairs

_IMPLEMENTATION = Attribute(one_of(*IMPLEMENTATIONS), "pytorch", refinement=True)

# The forward reads x and w, the input gradient reads dy and w, and the weight gradient reads x and dy.
GEMM_TRAINING: Mapping[str, Any] = {
    "backward_flops": 2.0,
    "training": "2x 2y 2w -> x y w",
}
GEMM_PARTIAL = {
    "inputs": Training(1.0, "x y 2w -> x y"),
    "parameters": Training(1.0, "2x y w -> y w"),
}
# The same of a product of two tensors, one of which needs no gradient.
FACTORS_PARTIAL = {"first": GEMM_PARTIAL["inputs"], "second": GEMM_PARTIAL["parameters"]}


_SCALE_BYTES = 4  # Scales of blocks are fp32.
_BLOCK = 128
"""Elements of an activation's row, and rows and columns of a weight's square, that share a scale.

DeepSeek-V3 technical report (arXiv 2412.19437), section 3.3.2; DeepGEMM and vLLM call it block-wise fp8.
"""


def linear_storage(o: Counted) -> Storage:
    """Like `plain`, with the scales of inputs and weights if there is one for each block."""
    stored = plain(o)
    if not o.attributes["block_scaled"]:
        return stored
    return stored._replace(
        inputs=stored.inputs + _SCALE_BYTES * size(o.input_shapes[0]) / _BLOCK,
        parameters=stored.parameters + _SCALE_BYTES * o.parameters / _BLOCK**2,
    )


def _grouped_storage(o: Counted) -> Storage:
    """The weights of all experts, or of one expert per row if there are fewer rows than experts."""
    stored = plain(o)
    share = min(1.0, size(o.input_shapes[0][:-1]) / o.attributes["num_experts"])
    return stored._replace(parameters=share * stored.parameters)


_LINEAR: Mapping[str, Any] = {
    "family": "matmul",
    "output": lambda x, a: (*x[0][:-1], a["out_features"]),
    "flops": lambda x, a, out: 2 * size(x[0]) * a["out_features"],
    # Weights and bias, of all experts if there are any.
    "parameters": lambda x, a: a.get("num_experts", 1) * a["out_features"] * (x[0][-1] + a["bias"]),
    "tensor_cores": True,
    # All rows of the input with the weights.
    "product": lambda x, a, out: Product(1, size(out[:-1]), out[-1], x[0][-1]),
    "partial": GEMM_PARTIAL,
    **GEMM_TRAINING,
}


def _matmul_product(x: Shapes, a: Attributes, out: Shape) -> Product:
    """A batch of products of the last two dimensions; for an attention, the columns are those of the values."""
    return Product(size(out[:-2]), out[-2], out[-1], x[0][-1])


def _attention_output(x: Shapes, a: Attributes) -> Shape:
    """One value vector per query; several heads of queries may share a head of keys and values."""
    q, k, v = x
    if min(map(len, x)) > 2:
        require_multiple("the heads of queries and of keys", *sorted((q[-3], k[-3]), reverse=True))
    if a["window"] is not None:
        require_at_most("the window of an attention over its keys", a["window"], k[-2])
    return (*q[:-1], v[-1])


def _attention_flops(x: Shapes, a: Attributes, out: Shape) -> int:
    """The product of queries and keys, and of scores and values, for all pairs of a query and a key that it sees.

    A causal mask and a window reduce the FLOPs, because kernels skip what they hide. (`torch.utils.flop_counter` counts
    all pairs.)
    """
    q, k, v = x
    flops: int = 2 * size(q[:-2]) * visible_pairs(q[-2], k[-2], a["causal"], a["window"]) * (q[-1] + v[-1])
    return flops


def _attention_storage(o: Counted) -> Storage:
    """Queries in the precision of the operation; keys and values in that of the cache, and only those in a window."""
    queries, keys, values = o.input_shapes
    seen = 1.0
    if o.attributes["window"] is not None:
        seen = np.minimum(1.0, (o.attributes["window"] + queries[-2] - 1) / keys[-2])
    cached = ELEMENT_BYTES[o.attributes["cache_precision"] or o.precision] * seen * (size(keys) + size(values))
    return plain(o)._replace(inputs=ELEMENT_BYTES[o.precision] * size(queries) + cached)


# Recurrent layers: one operation is a call of cuDNN that runs all layers, directions and steps.
#
# The input is [steps, batch, features], also for models with the batch first. Weights are those of PyTorch: for every
# gate, layer and direction a matrix for the input, a matrix for the hidden state, and a bias for each of the two.

# FLOPs per hidden unit and step besides the products. A sigmoid counts 4 and a tanh 6, as in the table of kinds:
# LSTM: 4 sums of two products, 3 sigmoid, 2 tanh, 3 products, 1 sum; GRU: 3 sums, 2 sigmoid, 1 tanh, 3 products, 2 sums
# (h = (1 - z) n + z h); RNN: 1 sum, 1 tanh.
_GATES_AND_FLOPS = {4: 32, 3: 22, 1: 7}


def _directions(a: Attributes) -> int:
    return 2 if a["bidirectional"] else 1


def _hidden(a: Attributes) -> int:
    """Features of the state that one step passes to the next: those of the projection if there is one."""
    features: int = a.get("proj_size") or a["hidden_size"]
    return features


def _layers(x: Shapes, a: Attributes) -> Iterator[int]:
    """Input features of every layer in every direction."""
    for layer in range(a["num_layers"]):
        features = x[0][-1] if layer == 0 else _directions(a) * _hidden(a)
        yield from [features] * _directions(a)


def _recurrent_output(x: Shapes, a: Attributes) -> Shape:
    """The hidden states of the last layer at every step; those of both directions are concatenated."""
    require_at_most("the proj_size of a recurrent layer", a.get("proj_size", 0), a["hidden_size"] - 1)
    return (*x[0][:2], _directions(a) * _hidden(a))


def _recurrent(gates: int, **attributes: Attribute) -> Kind:
    """A recurrent layer with this number of gates, which cuDNN runs as a whole.

    The backward reads the gates once and writes their gradients. It reads these again to compute the gradients of the
    input, of the hidden states and of both weights.
    """

    def parameters(x: Shapes, a: Attributes) -> int:
        hidden, biases = a["hidden_size"], 2 if a["bias"] else 0
        projection = hidden * a.get("proj_size", 0)
        return sum(gates * hidden * (features + _hidden(a) + biases) + projection for features in _layers(x, a))

    def flops(x: Shapes, a: Attributes, out: Shape) -> int:
        """Two matrix products for each step, and the arithmetic of the gates."""
        (steps, batch, _), hidden = x[0], a["hidden_size"]
        per_unit = 2 * a.get("proj_size", 0) + _GATES_AND_FLOPS[gates]
        layers = (2 * gates * (features + _hidden(a)) for features in _layers(x, a))
        return sum(steps * batch * hidden * (products + per_unit) for products in layers)

    def product(x: Shapes, a: Attributes, out: Shape) -> Product:
        """A single product with as many FLOPs as the layer: rows of all steps, and the gates as columns."""
        rows, columns = x[0][0] * x[0][1], gates * a["hidden_size"]
        return Product(1, rows, columns, max(1, flops(x, a, out) // (2 * rows * columns)))

    def storage(o: Counted) -> Storage:
        """Like `plain`, with the gates of all steps and layers, which one kernel writes and later ones read."""
        (steps, batch, _), a = o.input_shapes[0], o.attributes
        elements = steps * batch * gates * a["hidden_size"] * a["num_layers"] * _directions(a)
        return plain(o)._replace(workspace=ELEMENT_BYTES[o.precision] * elements)

    return Kind(
        family="matmul",
        takes="[steps, batch, features]",
        attributes={
            "hidden_size": Attribute(COUNT),
            "num_layers": Attribute(COUNT, 1),
            "bidirectional": Attribute(FLAG, False),
            "bias": Attribute(FLAG, True),
            **attributes,
        },
        output=_recurrent_output,
        flops=flops,
        parameters=parameters,
        backward_flops=2.0,
        forward="x w t -> y t",
        training="2x 2y 2w 4t -> x y w 2t",
        partial={"inputs": Training(1.0, "x y 2w 3t -> x y 2t")},
        tensor_cores=True,
        tf32_by_default=True,
        product=product,
        # A layer can start as soon as the layer below has finished one step.
        steps=lambda x, a: x[0][0] + a["num_layers"] - 1,
        storage=storage,
        # The gates, hidden states and, of an LSTM, cell states of all layers.
        saved=lambda o: storage(o).workspace * (gates + 1 + (gates == 4)) / gates,
    )


PRODUCTS: Mapping[str, Kind] = {
    "linear": Kind(
        attributes={
            "out_features": Attribute(COUNT),
            "bias": Attribute(FLAG, True),
            # One scale for 128 elements of a row and for 128 x 128 weights, instead of one for a tensor or a row.
            "block_scaled": Attribute(FLAG, False, refinement=True),
            "implementation": _IMPLEMENTATION,
        },
        quantized=("fp8", "nvfp4", "int8"),
        storage=linear_storage,
        **_LINEAR,
    ),
    "matmul": Kind(
        family="matmul",
        inputs=(2, 2),
        takes="[..., M, K], [..., K, N]",
        output=lambda x, a: (*broadcast(x[0][:-2], x[1][:-2]), x[0][-2], x[1][-1]),
        flops=lambda x, a, out: 2 * size(out) * x[0][-1],
        storage=factors,
        partial=FACTORS_PARTIAL,
        tensor_cores=True,
        product=_matmul_product,
        **GEMM_TRAINING,
    ),
    "attention": Kind(
        family="attention",
        inputs=(3, 3),
        takes="[..., L, E], [..., S, E], [..., S, D]",
        # window: number of keys that a query sees, including its own; None for all keys. cache_precision: precision in
        # which keys and values are stored; None for the precision of the operation.
        attributes={
            "causal": Attribute(FLAG, False),
            "window": Attribute(COUNT.or_none(), None, refinement=True),
            "cache_precision": Attribute(one_of(*PRECISIONS).or_none(), None, refinement=True),
            "implementation": _IMPLEMENTATION,
        },
        quantized=("fp8",),
        storage=_attention_storage,
        output=_attention_output,
        flops=_attention_flops,
        # The forward has two products. The backward has four, and computes the scores again instead of storing them
        # (Dao et al., "FlashAttention", 2022).
        backward_flops=2.0,
        recomputed_flops=0.5,
        training="2x 2y -> x y w",
        tensor_cores=True,
        product=_matmul_product,
    ),
    # The rows are sorted by expert, and one kernel multiplies the rows of every expert by the matrix of that expert.
    "grouped_linear": Kind(
        attributes={"out_features": Attribute(COUNT), "num_experts": Attribute(COUNT), "bias": Attribute(FLAG, False)},
        storage=_grouped_storage,
        **_LINEAR,
    ),
    "lstm": _recurrent(4, proj_size=Attribute(integer(0), 0)),
    "gru": _recurrent(3),
    "rnn": _recurrent(1),
    # Distances between all pairs of points. The backward computes the differences again for each of the two inputs.
    "cdist": Kind(
        family="matmul",
        inputs=(2, 2),
        takes="[..., P, M], [..., R, M]",
        attributes={"p": Attribute(NORM, 2.0)},
        output=lambda x, a: (*broadcast(x[0][:-2], x[1][:-2]), x[0][-2], x[1][-2]),
        # A difference, a power and an addition for every coordinate of every pair of points.
        flops=lambda x, a, out: 3 * size(out) * x[0][-1],
        backward_flops=2.0,
        storage=factors,
        training="3x 4y 3w -> x y w",
        partial={"first": Training(1.0, "2x 2y 2w -> x y"), "second": Training(1.0, "2x 2y 2w -> y w")},
        # With as many FLOPs: a distance needs three per coordinate, a product needs two.
        product=lambda x, a, out: Product(size(out[:-2]), out[-2], out[-1], max(1, 3 * x[0][-1] // 2)),
    ),
}
