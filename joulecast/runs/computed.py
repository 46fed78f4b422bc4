"""What a GPU computes in training: its part of layers, experts and sequences, in 8 bits, or on a 4-bit base."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..generation.fusing import DIVISIONS
from ..operations.attributes import HALF_PRECISIONS
from ..operations.entry import Entry, merged
from ..operations.network import Network, ParameterBytes
from ..operations.operation import Operation
from ..predictors.networks.memory import parameters_held
from .layout import IN_A_LAYER, Layout

WORDS = 8192
"""From so many outputs on, a last layer is a head over words."""

Shape = tuple[int, ...]


def divided(network: Network, count: int) -> Network:
    """One GPU's part of a network that is shared by several GPUs.

    Layers are recognized by their names (`DIVISIONS` in generation/fusing.py). The first layers of a block are divided
    by their outputs, the last one by its inputs. Heads and features between them are divided as well, and so are the
    words of the embedding, of the last layer and of the loss. Norms and residuals are divided by tokens (sequence
    parallelism; Korthikanti et al., arXiv 2205.05198), as PyTorch, Megatron and torchtitan do.
    """
    if count == 1:
        return network
    # Where layers before and after attention have equal shapes, they are one entry.
    closing = [each.operation for each in network if "rows" in {_division(each, path) for path in each.module_paths}]
    attending = [entry.operation for entry in network if entry.operation.kind == "attention"]
    heads, cached = ({each.input_shapes[place][-3] for each in attending} for place in (0, 1))
    if not closing or not heads:
        raise InputError(
            f"{network.name} has no layers that GPUs can share",
            given="no attention" if closing else "no layers with known names",
            allowed="transformers",
            hint="leave tensor_parallel out, or use pipeline_parallel",
        )
    hidden = {operation.attributes["out_features"] for operation in closing}
    inner = {operation.input_shapes[0][-1] for operation in closing} - hidden
    words = {entry.operation.attributes["out_features"] for entry in network if _gives_words(entry)}
    for what, sizes in (("heads", heads), ("features", inner | hidden)):
        for size in sizes:
            if size % count:
                raise InputError(
                    f"the {what} of {network.name} cannot be divided over the GPUs",
                    given=f"{size} {what} over {count} GPUs",
                    allowed=f"a tensor_parallel that divides {size}",
                    hint="give another tensor_parallel",
                )
    experts = paths_of_experts(network)
    part = network.changed(
        lambda e: e.operation if in_experts(e, experts) else _part(e, count, heads | cached, inner | words)
    )
    before, after = (sum(len(e.by_module) * e.operation.parameters for e in each) for each in (network, part))
    share = after / max(1, before)
    held = network.parameter_bytes and ParameterBytes(*(round(share * each) for each in network.parameter_bytes))
    return replace(
        part.changed(lambda e: step_over(e.operation, share) if e.operation.row.is_optimizer_step else e.operation),
        parameter_bytes=held,
    )


def paths_of_experts(network: Network) -> frozenset[str]:
    """Paths of the modules whose layers are several experts; they are divided by experts, not by features."""
    return frozenset(path for each in network if each.operation.kind == "grouped_linear" for path in each.module_paths)


def in_experts(entry: Entry, paths: Collection[str]) -> bool:
    """Whether an operation belongs to one of these modules."""
    return any(f"{path}.".startswith(f"{own}.") for path in entry.module_paths[:1] for own in paths)


def results_of_blocks(network: Network) -> Iterator[Shape]:
    """The shape of the result of each block, which is summed over the GPUs that share the block."""
    for entry in network:
        # Layers of equal shapes are one entry, such as those before and after attention.
        for path, calls in entry.by_module.items():
            if _division(entry, path) == "rows":
                yield from itertools.repeat(entry.operation.output_shape, calls)


def _inside_a_block(entry: Entry) -> bool:
    return any(map(IN_A_LAYER.search, entry.module_paths))


def _gives_words(entry: Entry) -> bool:
    linear = entry.operation.kind == "linear" and not _inside_a_block(entry)
    return linear and entry.operation.attributes["out_features"] >= WORDS


def _division(entry: Entry, path: str | None = None) -> str | None:
    if entry.operation.kind != "linear" or not _inside_a_block(entry):
        return "columns" if _gives_words(entry) else None
    own = (path or entry.module_paths[0]).removesuffix(".base_layer")  # An adapter's layer is divided like its base.
    return DIVISIONS.get(own.rpartition(".")[2], "columns")


def _part(entry: Entry, count: int, heads: set[int], inner: set[int]) -> Operation:
    operation = entry.operation
    shapes = operation.input_shapes
    match _division(entry):
        case "columns":
            return _like(operation, shapes, out_features=-(-operation.attributes["out_features"] // count))
        case "rows":
            return _like(operation, [(*shapes[0][:-1], shapes[0][-1] // count)])
        case None if operation.kind == "embedding":
            return _like(operation, shapes, num_embeddings=-(-operation.attributes["num_embeddings"] // count))
        case None if operation.row.is_optimizer_step:
            return operation
    parts = tuple(_shape(shape, count, heads, inner) for shape in shapes)
    if parts == shapes and (_inside_a_block(entry) or entry.module_paths == ("(backward)",)):
        parts = tuple(_some_tokens(shape, count) for shape in shapes)
    return _like(operation, parts)


def _like(operation: Operation, shapes: Sequence[Shape], **attributes: Any) -> Operation:
    """An operation with other inputs, and other values of some attributes."""
    changed = {**operation.attributes, **attributes}
    return Operation(operation.kind, shapes, changed, precision=operation.precision, mode=operation.mode)


def _shape(shape: Shape, count: int, heads: set[int], inner: set[int]) -> Shape:
    """The shape with its heads and inner features divided; other sizes are unchanged."""
    if shape and shape[-1] in inner:
        return (*shape[:-1], -(-shape[-1] // count))
    for place in (1, 2) if len(shape) == 4 else ():
        if shape[place] in heads:
            return (*shape[:place], max(1, shape[place] // count), *shape[place + 1 :])
    return shape


def _some_tokens(shape: Shape, count: int) -> Shape:
    """A part of the tokens of (batch, tokens, features) or (tokens, features)."""
    place = len(shape) - 2
    return shape if place not in (0, 1) else (*shape[:place], -(-shape[place] // count), shape[-1])


def step_over(operation: Operation, share: float, kind: str = "") -> Operation:
    """The optimizer's step over a share of the parameters, or an operation of another kind over it."""
    (parameters,) = operation.input_shapes[0]
    part = max(1, round(share * parameters))
    return Operation(kind or operation.kind, [(part,)], precision=operation.precision, mode="training")


# Bytes of a weight in nf4 with double quantisation: 4 bits, and 0.127 for the constants of blocks (Dettmers et al.,
# QLoRA, arXiv 2305.14314, section 3).
_NF4_BYTES = (4 + 0.127) / 8
_FP8_STEP = 16  # Sizes of products in fp8 are multiples of it (cuBLASLt; transformer_engine.Linear).


def layers_of(network: Network) -> int:
    """Number of the repeated layers of a model, by the paths of its modules."""
    paths = {path for entry in network for path in entry.module_paths}
    return len({path[: found.end(1)] for path in paths if (found := IN_A_LAYER.search(path))})


def computed_part(whole: Network, layout: Layout) -> Network:
    """One GPU's part of a micro-batch through all layers.

    Raises InputError: layers, experts or the sequence cannot be divided so.
    """
    layers, pieces = layers_of(whole), layout.pipeline_parallel * layout.virtual_stages
    # Megatron may count the embedding and the head as layers: 126 of Llama 3.1 405B are divided by 64.
    if layers and all((layers + more) % pieces for more in range(3)):
        raise InputError(
            "the layers cannot be divided into stages and their parts",
            given=f"{layers} layers, pipeline_parallel={layout.pipeline_parallel}, "
            f"virtual_stages={layout.virtual_stages}",
            allowed=f"pipeline_parallel times virtual_stages that divides {layers}, {layers + 1} or {layers + 2}",
            hint="give another pipeline_parallel or virtual_stages",
        )
    network = divided(whole, layout.tensor_parallel)
    if layout.expert_parallel > 1 or (layout.tensor_parallel > 1 and expert_share(network)):
        network = _with_experts(network, layout.expert_gpus, layout.tensor_parallel)
    return _in_context(network, layout.context_parallel) if layout.context_parallel > 1 else network


def expert_share(network: Network) -> float:
    """The share of experts in the parameters of a network."""
    count = {False: 0, True: 0}
    for entry in network:
        count[entry.operation.kind == "grouped_linear"] += len(entry.by_module) * entry.operation.parameters
    return count[True] / max(1, sum(count.values()))


def _with_experts(network: Network, count: int, tensor: int) -> Network:
    """Whole experts on each of the GPUs, which get the tokens of all of them that chose these experts, evenly spread.

    GPUs that share the layers before them have the same tokens, and each sends a part of these.
    """
    paths = paths_of_experts(network)
    numbers = {e.operation.attributes["num_experts"] for e in network if e.operation.kind == "grouped_linear"}
    if not paths or any(number % count for number in numbers):
        raise InputError(
            f"the experts of {network.name} cannot be divided over the GPUs",
            given=f"{', '.join(map(str, numbers)) or 'no'} experts over {count} GPUs",
            allowed="an expert_parallel (and tensor_parallel) that divides the number of experts",
            hint="give another expert_parallel",
        )

    def part(entry: Entry) -> Operation:
        operation = entry.operation
        if not in_experts(entry, paths):
            return operation
        rows = max(shape[0] for shape in operation.input_shapes)
        shapes = [(max(1, s[0] // tensor), *s[1:]) if s and s[0] == rows else s for s in operation.input_shapes]
        experts = {name: operation.attributes[name] // count for name in operation.attributes if name == "num_experts"}
        return _like(operation, shapes, **experts)

    return network.changed(part)


def _in_context(network: Network, count: int) -> Network:
    """Attention of a part of the sequence to all of it.

    With a causal mask each GPU has two of twice as many parts, one early and one late (Llama 3, arXiv 2407.21783,
    section 3.3.2; zigzag in ring attention), so that all compute as much: a query sees half of the keys in the mean, as
    it does where a part of the sequence follows after as many keys as make that half.
    """

    def wider(entry: Entry) -> Operation:
        operation = entry.operation
        if operation.kind != "attention":
            return operation
        queries, *others = operation.input_shapes[:3]
        part = others[0][-2]
        length = part * (count + 1) // 2 if operation.attributes["causal"] else part * count
        shapes = [queries, *((*shape[:-2], length, shape[-1]) for shape in others)]
        return _like(operation, shapes)

    return network.changed(wider)


def in_fp8(network: Network) -> Network:
    """The linear layers inside of blocks in fp8, and attention by cuDNN, as Transformer Engine computes them.

    Beside each weight lie two copies in fp8, one of them transposed, because products in fp8 read rows of both.
    """
    eights = {entry.operation for entry in network if _in_eights(entry)}
    if not eights:
        raise InputError(
            f"{network.name} has no layers to compute in fp8",
            given="precision=fp8",
            allowed=f"transformers, whose linear layers have sizes in multiples of {_FP8_STEP}",
            hint="give bf16 or fp16",
        )
    held = parameters_held(network)
    weights = sum(len(e.by_module) * e.operation.parameters for e in network if e.operation in eights)

    def in_eight(entry: Entry) -> Operation:
        operation = entry.operation
        if operation.kind == "attention":
            return operation.with_attributes(implementation="cudnn")
        return operation.replace(precision="fp8") if operation in eights else operation

    return network.changed(in_eight, parameter_bytes=held._replace(casts=held.casts + 2 * weights))


def _in_eights(entry: Entry) -> bool:
    operation = entry.operation
    if operation.kind != "linear" or operation.precision not in HALF_PRECISIONS or not _inside_a_block(entry):
        return False
    *rows, features = operation.input_shapes[0]
    sizes = math.prod(rows), features, operation.attributes["out_features"]
    return not any(each % _FP8_STEP for each in sizes)


def on_four_bits(network: Network) -> Network:
    """Frozen linear layers of blocks as QLoRA stores them: nf4 weights, which each pass writes in 16 bits first.

    Writing them takes as long as a copy in 16 bits, of which they move 2.5 of 4 bytes for each weight: an assumption.
    """
    frozen = [
        entry
        for entry in network
        if entry.operation.kind == "linear"
        and entry.operation.gradients in ("none", "inputs")
        and _inside_a_block(entry)
    ]
    if not frozen:
        raise InputError(
            f"{network.name} has no frozen layers to store in 4 bits",
            given="base_precision=nf4",
            allowed="lora, with a rank",
            hint="give lora=16, say",
        )
    copies = merged(
        replace(
            entry,
            operation=Operation(
                "copy",
                [(entry.operation.attributes["out_features"], entry.operation.input_shapes[0][-1])],
                precision=entry.operation.precision,
                mode="training",
            ),
        )
        for entry in frozen
    )
    held = parameters_held(network)
    count = sum(len(entry.by_module) * entry.operation.parameters for entry in frozen)
    largest = max(math.prod(copy.operation.input_shapes[0]) for copy in copies)
    stored = round(held.stored - (2 - _NF4_BYTES) * count)
    return replace(
        network,
        entries=(*network.entries, *copies),
        parameter_bytes=held._replace(stored=stored, casts=held.casts + 2 * largest),
    )
