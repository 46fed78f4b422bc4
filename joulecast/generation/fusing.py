"""The parts of a decoder as engines fuse them, from its operations as `transformers` runs it.

The operations are those of one token after a long past, so that the lengths of caches and windows can be told from
their shapes. The rules are the tables below. They depend on the operations of a module, and on the names of its layers
only where the operations are not enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..errors import InputError
from ..operations.network import Network
from ..operations.operation import Operation
from ..operations.rules import size
from . import decoder as parts
from .decoder import Decoder

FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
}
"""Layer of an engine -> layers of a module that it puts together, because they read the same input."""

DIVISIONS: Mapping[str, parts.Division] = {
    # The last layer of a block reads the outputs of the other layers, which are divided.
    **dict.fromkeys(
        ("o_proj", "out_proj", "dense", "c_proj", "wo", "down_proj", "fc2", "w2", "dense_4h_to_h", "linear_2"), "rows"
    ),
    # Too small to be divided: routers of experts, and the layers that compute the latent vectors of MLA.
    **dict.fromkeys(("gate", "router", "shared_expert_gate", "qkv_a_proj", "q_a_proj", "kv_a_proj_with_mqa"), "none"),
}
"""Layer -> how tensor parallelism divides it (Shoeybi et al., Megatron-LM, arXiv 1909.08053); others by columns."""

UNQUANTIZED = frozenset({"gate", "router", "shared_expert_gate"})
"""Layers whose weights engines leave in 16 bits."""

NORM_KINDS: Mapping[str, str] = {"rsqrt": "rms_norm", "rms_norm": "rms_norm", "layer_norm": "layer_norm"}
"""Kind of an operation of a module -> the kind of norm that the module is."""

_ROTATION = frozenset({"cos", "sin", "complex_mul"})

Modules = Mapping[str, tuple[Operation, ...]]
"""Path of a module -> its own operations, without those of its submodules; each as often as it is called."""


def decoder_of(network: Network, cached: int) -> Decoder:
    """Find the parts of a decoder in its operations."""
    listed: dict[str, list[Operation]] = {}
    for entry in network:
        for path, count in entry.by_module.items():
            listed.setdefault(path, []).extend([entry.operation] * count)
    found = dict(_parts({path: tuple(operations) for path, operations in listed.items()}, cached))
    logits = [part for part in found.values() if isinstance(part, parts.Logits)]
    attentions = [part for part in found.values() if isinstance(part, parts.Attention | parts.LatentAttention)]
    if not logits or not attentions:
        raise InputError(
            f"{network.name} does not generate text",
            given="no attention to a cache" if logits else "no language-model head",
            allowed="a decoder with a language-model head, such as llama3_8b",
            hint="use joulecast.predict for encoders and for models without a head",
        )
    by_part: dict[parts.Part, list[str]] = {}
    for path, part in found.items():
        by_part.setdefault(part, []).append(path)
    return Decoder(network.name, tuple((part, tuple(paths)) for part, paths in by_part.items()))


def _parts(modules: Modules, cached: int) -> Iterator[tuple[str, parts.Part]]:
    """The path and the part of each module; modules without a part of their own are fused into others."""
    kinds = {operation.kind for operations in modules.values() for operation in operations}
    rotary = bool(_ROTATION & kinds)
    linear = {path: op for path, ops in modules.items() for op in ops if op.kind == "linear"}
    words = max(
        (op.attributes["num_embeddings"] for ops in modules.values() for op in ops if op.kind == "embedding"), default=0
    )
    attentions = set()
    for path, operations in modules.items():
        for table in (each.attributes for each in operations if each.kind == "embedding"):
            yield path, parts.Embedding(table["num_embeddings"], table["embedding_dim"])
        if norm := _norm(operations):
            yield path, norm
        if experts := _experts(path, modules):
            yield path, experts
        if scan := _recurrence(operations):
            yield f"{path}.scan", scan
        heads = _attention(path, operations, linear, cached, rotary)
        if heads is not None:
            attentions.add(path)
            yield path, heads
    blocks: dict[str, dict[str, Operation]] = {}  # Module with linear layers -> these by their names
    for path, operation in sorted(linear.items(), key=lambda item: item[0].rpartition(".")[0]):
        parent, _, name = path.rpartition(".")
        blocks.setdefault(parent, {})[name] = operation
    for parent, block in blocks.items():
        yield from _block(parent, block, words, attends=parent in attentions)


def _block(parent: str, block: dict[str, Operation], words: int, attends: bool) -> Iterator[tuple[str, parts.Part]]:
    """The linear layers of a module, put together where they read the same input, and the activation between them."""
    together = {name: members for name, members in FUSED.items() if all(member in block for member in members)}
    taken = {member for members in together.values() for member in members}
    reads = {**together, **{name: (name,) for name in block if name not in taken}}
    for name, names in reads.items():
        members = [block[member] for member in names]
        path = f"{parent}.{name}" if parent else name
        inputs, outputs = members[0].input_shapes[0][-1], sum(each.attributes["out_features"] for each in members)
        bias = members[0].attributes["bias"]
        if _rows(members[0]) > 1:
            continue  # The layer that expands the cache of MLA, which engines do not run while decoding.
        if outputs == words:
            yield path, parts.Logits(inputs, outputs, bias)
            continue
        division = DIVISIONS.get(name, "columns")
        yield path, parts.Projection(inputs, outputs, bias, division, name not in UNQUANTIZED)
        if division == "rows" and not attends:
            before = sum(op.attributes["out_features"] for other, op in block.items() if other != name)
            yield f"{path}.activation", parts.Activation(inputs, gated=before == 2 * inputs)


def _rows(operation: Operation) -> int:
    return operation.input_size // operation.input_shapes[0][-1]


def _norm(operations: Iterable[Operation]) -> parts.Norm | None:
    for operation in operations:
        kind = NORM_KINDS.get(operation.kind)
        if kind is not None:
            shape = max((each for op in operations for each in op.input_shapes), key=size)
            return parts.Norm(kind, shape[-1], size(shape) // shape[-1], divided=size(shape) > shape[-1])
    return None


def _experts(path: str, modules: Modules) -> parts.Experts | None:
    """The experts of a module, as grouped layers, or as products of all experts with what a router chose (Llama 4)."""
    operations = modules[path]
    grouped = [operation for operation in operations if operation.kind == "grouped_linear"]
    if len(grouped) >= 2:
        first, last = grouped[0], grouped[-1]
        inner = last.input_shapes[0][-1]
        return parts.Experts(first.input_shapes[0][-1], inner, first.attributes["num_experts"], top_k=_rows(first))
    products = [operation.input_shapes for operation in operations if operation.kind == "matmul"]
    routed = [op for at in (f"{path.rpartition('.')[0]}.router",) for op in modules.get(at, ()) if op.kind == "topk"]
    if len(products) != 2 or not routed:
        return None
    (_, up), (_, down) = products
    return parts.Experts(down[-1], down[-2], up[0], top_k=routed[0].attributes["k"])


def _recurrence(operations: Iterable[Operation]) -> parts.Recurrence | None:
    """The scan of a module that begins with a convolution over tokens; its state is the largest of four dimensions."""
    shapes = [shape for operation in operations for shape in operation.input_shapes if len(shape) == 4]
    if not shapes or not any(operation.kind == "conv1d" for operation in operations):
        return None
    return parts.Recurrence(*max(shapes, key=size)[1:])


def _attention(
    path: str, operations: Iterable[Operation], linear: Mapping[str, Operation], cached: int, rotary: bool
) -> parts.Attention | parts.LatentAttention | None:
    """The attention of a module, which is either one operation, or a product, a softmax and another product."""
    sizes = None
    for operation in operations:
        if operation.kind == "attention":
            queries, keys, values = operation.input_shapes
            # Query heads that share a key head may be listed as further queries of one head.
            heads, seen = queries[-3] * queries[-2], keys[-2]
            sizes = heads, keys[-3], keys[-1], values[-1]
    products = [operation for operation in operations if operation.kind == "matmul"]
    if sizes is None and len(products) >= 2 and any(operation.kind == "softmax" for operation in operations):
        (queries, keys), (_, values) = products[0].input_shapes, products[-1].input_shapes
        heads, seen = size(queries[:-1]), keys[-1]
        key = linear.get(f"{path}.k_proj")
        held = (0 if key is None else key.attributes["out_features"] // queries[-1]) or heads
        sizes = heads, held, queries[-1], values[-1]
    if sizes is None or seen < 2:
        return None
    latent = linear.get(f"{path}.kv_b_proj")
    if latent is not None:
        made = linear[f"{path}.kv_a_proj_with_mqa"].attributes["out_features"]
        rank = latent.input_shapes[0][-1]
        return parts.LatentAttention(sizes[0], sizes[2], sizes[3], rank, made - rank)
    return parts.Attention(*sizes, window=None if seen > cached else seen, rotary=rotary)
