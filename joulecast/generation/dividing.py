"""The operations of a training iteration on one GPU under tensor parallelism, from those of the whole network.

Layers are recognized by their names (`DIVISIONS` in fusing.py). The first layers of a block are divided by their
outputs, the last one by its inputs. Heads and features between them are divided as well, and so are the words of the
embedding, of the last layer and of the loss. Norms and residuals are divided by tokens (sequence parallelism;
Korthikanti et al., arXiv 2205.05198), as PyTorch, Megatron and torchtitan do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from ..errors import InputError
from ..operations.entry import Entry
from ..operations.network import Network, ParameterBytes
from ..operations.operation import Operation
from .fusing import DIVISIONS

_IN_A_LAYER = re.compile(r"\.\d+\.")
WORDS = 8192
"""From so many outputs on, a last layer is a head over words."""

Shape = tuple[int, ...]


def divided(network: Network, count: int) -> Network:
    """One GPU's part of a network that is shared by several GPUs."""
    if count == 1:
        return network
    closing = [entry.operation for entry in network if _division(entry) == "rows"]
    attending = [entry.operation for entry in network if entry.operation.kind == "attention"]
    heads, cached = ({each.input_shapes[place][-3] for each in attending} for place in (0, 1))
    if not closing or not heads:
        raise InputError(
            f"{network.name} has no layers that GPUs can share",
            given="no attention" if closing else "no layers with known names",
            allowed="transformers",
            hint="use data_parallel or pipeline_parallel",
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
                )
    experts = paths_of_experts(network)
    entries: dict[Operation, Entry] = {}
    for entry in network:
        of_experts = in_experts(entry, experts)
        operation = entry.operation if of_experts else _part(entry, count, heads | cached, inner | words)
        changed = replace(entry, operation=operation)
        entries[operation] = entries[operation].plus(changed) if operation in entries else changed
    share = sum(len(e.by_module) * e.operation.parameters for e in entries.values()) / max(
        1, sum(len(e.by_module) * e.operation.parameters for e in network)
    )
    listed = tuple(_stepped(entry, share) for entry in entries.values())
    held = network.parameter_bytes
    return replace(
        network, entries=listed, parameter_bytes=held and ParameterBytes(*(round(share * each) for each in held))
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


def _in_a_layer(entry: Entry) -> bool:
    return bool(entry.module_paths and _IN_A_LAYER.search(entry.module_paths[0]))


def _of_layers(entry: Entry) -> bool:
    return _in_a_layer(entry) or entry.module_paths == ("(backward)",)


def _gives_words(entry: Entry) -> bool:
    linear = entry.operation.kind == "linear" and not _in_a_layer(entry)
    return linear and entry.operation.attributes["out_features"] >= WORDS


def _division(entry: Entry, path: str | None = None) -> str | None:
    if entry.operation.kind != "linear" or not _in_a_layer(entry):
        return "columns" if _gives_words(entry) else None
    own = (path or entry.module_paths[0]).removesuffix(".base_layer")  # An adapter's layer is divided like its base.
    return DIVISIONS.get(own.rpartition(".")[2], "columns")


def _part(entry: Entry, count: int, heads: set[int], inner: set[int]) -> Operation:
    operation = entry.operation
    shapes, attributes = operation.input_shapes, dict(operation.attributes)
    match _division(entry):
        case "columns":
            attributes["out_features"] = -(-attributes["out_features"] // count)
        case "rows":
            shapes = ((*shapes[0][:-1], shapes[0][-1] // count),)
        case None if operation.kind == "embedding":
            attributes["num_embeddings"] = -(-attributes["num_embeddings"] // count)
        case None if not operation.row.is_optimizer_step:
            shapes = tuple(_shape(shape, count, heads, inner) for shape in shapes)
            if shapes == operation.input_shapes and _of_layers(entry):
                shapes = tuple(_some_tokens(shape, count) for shape in shapes)
    return Operation(operation.kind, shapes, attributes, precision=operation.precision, mode=operation.mode)


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


def _stepped(entry: Entry, share: float) -> Entry:
    """The optimizer's step over one GPU's share of the parameters; other operations are unchanged."""
    operation = entry.operation
    if not operation.row.is_optimizer_step:
        return entry
    (parameters,) = operation.input_shapes[0]
    step = Operation(operation.kind, [(round(share * parameters),)], precision=operation.precision, mode="training")
    return replace(entry, operation=step)
