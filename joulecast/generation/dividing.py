"""The operations of a training iteration on one GPU under tensor parallelism, from those of the whole network.

Layers are recognized by their names (`DIVISIONS` in fusing.py). The first layers of a block are divided by their
outputs, the last one by its inputs. Heads and features between them are divided as well. Norms, residuals, the
embedding and the language-model head stay whole on each GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..errors import InputError
from ..operations.entry import Entry
from ..operations.network import Network, ParameterBytes
from ..operations.operation import Operation
from .fusing import DIVISIONS

_IN_A_LAYER = re.compile(r"\.\d+\.")

Shape = tuple[int, ...]


def divided(network: Network, count: int) -> Network:
    """One GPU's part of a network that is shared by several GPUs.

    Raises:
        InputError: The heads or features are no multiple of the number of GPUs, or no layers with known names were
            found.
    """
    if count == 1:
        return network
    closing = [entry.operation for entry in network if _division(entry) == "rows"]
    heads = {_heads(entry.operation) for entry in network if entry.operation.kind == "attention"}
    if not closing or not heads:
        raise InputError(
            f"{network.name} has no layers that GPUs can share",
            given="no attention" if closing else "no layers with known names",
            allowed="transformers",
            hint="use data_parallel or pipeline_parallel",
        )
    hidden = {operation.attributes["out_features"] for operation in closing}
    inner = {operation.input_shapes[0][-1] for operation in closing} - hidden
    for what, sizes in (("heads", heads), ("features", inner | hidden)):
        for size in sizes:
            if size % count:
                raise InputError(
                    f"the {what} of {network.name} cannot be divided over the GPUs",
                    given=f"{size} {what} over {count} GPUs",
                    allowed=f"a tensor_parallel that divides {size}",
                )
    entries: dict[Operation, Entry] = {}
    for entry in network:
        operation = _part(entry, count, heads, inner)
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


def results_of_blocks(network: Network) -> Iterator[Shape]:
    """The shape of the result of each block, which is summed over the GPUs that share the block."""
    for entry in network:
        if _division(entry) == "rows":
            for _ in range(entry.count):
                yield entry.operation.output_shape


def _division(entry: Entry) -> str | None:
    if entry.operation.kind != "linear" or not entry.module_paths or not _IN_A_LAYER.search(entry.module_paths[0]):
        return None
    return DIVISIONS.get(entry.module_paths[0].rpartition(".")[2], "columns")


def _heads(operation: Operation) -> int:
    return operation.input_shapes[0][-3]


def _part(entry: Entry, count: int, heads: set[int], inner: set[int]) -> Operation:
    operation = entry.operation
    shapes, attributes = operation.input_shapes, dict(operation.attributes)
    match _division(entry):
        case "columns":
            attributes["out_features"] //= count
        case "rows":
            shapes = ((*shapes[0][:-1], shapes[0][-1] // count),)
        case None if operation.kind != "embedding" and not operation.row.is_optimizer_step:
            shapes = tuple(_shape(shape, count, heads, inner) for shape in shapes)
    return Operation(operation.kind, shapes, attributes, precision=operation.precision, mode=operation.mode)


def _shape(shape: Shape, count: int, heads: set[int], inner: set[int]) -> Shape:
    """The shape with its heads and inner features divided; other sizes are unchanged."""
    if shape and shape[-1] in inner:
        return (*shape[:-1], shape[-1] // count)
    for place in (1, 2) if len(shape) == 4 else ():
        if shape[place] in heads:
            return (*shape[:place], shape[place] // count, *shape[place + 1 :])
    return shape


def _stepped(entry: Entry, share: float) -> Entry:
    """The optimizer's step over one GPU's share of the parameters; other operations are unchanged."""
    operation = entry.operation
    if not operation.row.is_optimizer_step:
        return entry
    (parameters,) = operation.input_shapes[0]
    step = Operation(operation.kind, [(round(share * parameters),)], precision=operation.precision, mode="training")
    return replace(entry, operation=step)
