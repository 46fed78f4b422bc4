"""`joulecast extract`: the operations of a model, as the tree of its modules or as a table."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes, titled
from ..operations.operation_list import operation_text
from ..units import number, si
from .options import Asked, model_and_options, named_values
from .printing import table, tell

if TYPE_CHECKING:
    from ..operations.network import Network
    from ..operations.operation import Operation
    from ..predictors.explanation import Explanation


_HEADER = ["module", "alike", "calls", "FLOPs", "bytes", "FLOP/B", "operations"]


@dataclass
class Node:
    """A module: the operations that it runs itself, and its submodules."""

    path: str = ""
    own: Counter[Operation] = field(default_factory=Counter)
    parts: dict[str, Node] = field(default_factory=dict)

    def part(self, path: str) -> Node:
        """The module at a path below this one, which is created if it does not exist."""
        node = self
        for name in path.split(".") if path else ():
            below = f"{node.path}.{name}" if node.path else name
            node = node.parts.setdefault(name, Node(below))
        return node

    def all(self) -> Counter[Operation]:
        """Operations of the module and of all its submodules."""
        return sum((part.all() for part in self.parts.values()), Counter(self.own))

    def is_like(self, other: Node) -> bool:
        """Whether another module has the same operations and the same submodules."""
        return (
            self.own == other.own
            and self.parts.keys() == other.parts.keys()
            and all(part.is_like(other.parts[name]) for name, part in self.parts.items())
        )


def tree_of(network: Network) -> Node:
    """The modules of a network."""
    root = Node()
    for entry in network:
        for path, count in entry.by_module.items():
            root.part(path).own[entry.operation] += count
    return root


def tree_text(network: Network, depth: int) -> str:
    """One row per module down to a depth (0 for all). Each row includes its submodules, even those that are not shown.

    Neighbouring modules that are alike share one row, which adds them up.
    """
    rows = list(_rows(tree_of(network), 1, 0, depth))
    return table(_HEADER, rows, frozenset(range(1, 6)))


def _rows(node: Node, alike: int, level: int, depth: int) -> Iterator[list[str]]:
    everything = node.all()
    shows_parts = not depth or level < depth
    listed = node.own if shows_parts else everything
    flops = alike * sum(count * operation.flops for operation, count in everything.items())
    moved = alike * sum(count * (op.bytes_read + op.bytes_written) for op, count in everything.items())
    yield [
        "  " * level + (node.path or "(model)"),
        str(alike) if alike > 1 else "",
        str(alike * everything.total()),
        si(flops, "FLOP"),
        si(moved, "B"),
        number(flops / moved) if moved else "-",
        _kinds(listed),
    ]
    if shows_parts:
        for part, times in _together(node):
            yield from _rows(part, alike * times, level + 1, depth)


def _together(node: Node) -> Iterator[tuple[Node, int]]:
    """Group the submodules of a module: numbered neighbours that are alike form one group."""

    def numbered(name: str) -> str:
        return re.sub(r"\d+$", "", name)

    # Submodules come in order of first use; where operations are shared, a later one may have been met first.
    counted = iter(sorted((name for name in node.parts if name.isdecimal()), key=int))
    names = [next(counted) if name.isdecimal() else name for name in node.parts]
    for _, group in itertools.groupby(names, key=numbered):
        same: list[Node] = []
        for part in map(node.parts.__getitem__, group):
            if same and not same[0].is_like(part):
                yield same[0], len(same)
                same = []
            same.append(part)
        yield same[0], len(same)


def _kinds(operations: Counter[Operation]) -> str:
    kinds: Counter[str] = Counter()
    for operation, count in operations.items():
        kinds[operation.kind] += count
    return ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds.most_common())


def extract(
    asked: Asked,
    depth: int = 3,
    operations: bool = False,
    top: int = 0,
    diff: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
) -> None:
    """List the operations of a model by module, with counts, FLOPs and bytes. Needs neither a GPU nor weights."""
    from ..api import extract as extract_network

    network = extract_network(**asked)
    if diff is not None:
        asked["model"], asked["model_options"] = model_and_options(diff, asked.given["model_option"])
        difference = network.diff(extract_network(**asked))
        tell(difference, as_json, False, lambda: str(difference))
    else:
        tell(network, as_json, as_csv, lambda: _network_text(network, depth, top if operations or top else None))


def _network_rows(network: Network, top: int) -> list[list[str]]:
    entries = network.entries if not top else sorted(network, key=lambda e: -e.count * e.operation.flops)[:top]
    rows = []
    for entry in entries:
        operation = entry.operation
        moved = operation.bytes_read + operation.bytes_written
        paths = ", ".join(path or "(model)" for path in entry.module_paths[:2])
        rows.append(
            [
                operation_text(operation),
                str(entry.count),
                si(operation.flops, "FLOP"),
                si(moved, "B"),
                number(operation.flops / moved) if moved else "-",
                paths + (f", ... ({len(entry.module_paths)})" if len(entry.module_paths) > 2 else ""),
            ]
        )
    return rows


def _operation_table(network: Network, top: int) -> str:
    header = ["operation", "calls", "FLOPs", "bytes", "FLOP/B", "modules"]
    return table(header, _network_rows(network, top), frozenset({1, 2, 3, 4})) + "\n\n(FLOPs and bytes per call)"


def _network_text(network: Network, depth: int, top: int | None) -> str:
    moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in network)
    parts = [
        f"{titled(network.name, network.input_shape)}, {network.mode}",
        "",
        tree_text(network, depth) if top is None else _operation_table(network, top),
        "",
        f"{len(network)} operations, {network.calls} calls, {si(network.flops, 'FLOP')}, {si(moved, 'B')} moved",
    ]
    parts += [f"dropped: {d.count} x {d.name} ({d.reason}) in {', '.join(d.module_paths[:3])}" for d in network.dropped]
    parts += [f"assumed: {assumption}" for assumption in network.assumptions]
    return "\n".join(parts)


# `joulecast explain`.

_SHOWN = 8


def explain(
    asked: Asked,
    kind: str,
    shapes: list[str],
    gpu: str,
    setting: list[str] | None = None,
    precision: str = "fp32",
    path: bool = False,
    as_json: bool = False,
) -> None:
    """Explain an operation's prediction: what bounds it, the nearest measurements, and the effect of each input."""
    from ..api.operations import explain as explain_operation
    from ..operations.operation import Operation

    parsed = parse_shapes(shapes)
    if not isinstance(parsed, list | tuple) or not parsed:
        raise InputError(
            "an operation needs the shape of each input", given=" ".join(shapes), allowed="32,64,56,56 ..."
        )
    listed = [parsed] if isinstance(parsed[0], int) else list(parsed)
    operation = Operation(
        kind, listed, named_values(setting, "an attribute"), precision=precision, mode=asked.pop("mode")
    )
    explanation = explain_operation(operation, gpu, **asked)
    tell(explanation, as_json, False, lambda: _text(explanation))
    if path and not as_json:
        typer.echo(_path_text(operation, gpu, asked.get("predictor")))


def _path_text(operation: Operation, gpu: str, predictor: str | None) -> str:
    """The questions of the first tree for each quantity, and the inputs that all its trees ask about most."""
    from ..hardware import find_gpu
    from ..predictors.regressors.decisions import decisions
    from ..zoo import find_predictor

    parts = []
    for quantity, found in decisions(
        find_predictor(find_gpu(gpu), operation.mode, predictor).operations, operation
    ).items():
        asked = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.asked[:_SHOWN])
        parts += ["", f"the trees for {quantity} ask about {asked}; the first of them:"]
        parts += [f"{number:3}. {step}" for number, step in enumerate(found.path, 1)]
    return "\n".join(parts) or "\nthis predictor has no trees of its own"


def _text(e: Explanation) -> str:
    return "\n\n".join([e.title, *(table(*each) for each in e.tables() if each.rows), *e.sentences()])
