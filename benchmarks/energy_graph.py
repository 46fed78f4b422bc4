"""The energy dependency graph of a model: which module uses how many joules, and which tensors flow between modules.

    python benchmarks/energy_graph.py resnet18 1,3,64,64 graph.svg [--gpu A30] [--training]

SMARAGDINE draws such graphs of TensorFlow's programs (Babakol and Liu, ICSE 2024). Here one forward is watched: every
operator belongs to the innermost module that runs it, and an edge says that a module reads what another one wrote.
The joules are measured here, or predicted for a GPU. The file is GraphML, JSON or SVG, by the end of its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import joulecast
from joulecast.energy import EnergyTree
from joulecast.errors import JoulecastError
from joulecast.operations.inputs import parse_shape
from joulecast.rendering.answers import Plain
from joulecast.rendering.pictures import checked_path
from joulecast.units import si

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    from joulecast.accounting.steps import steps_of
    from joulecast.extraction.models.named_models import build_to_run
except ImportError:
    sys.exit("error: a graph is watched while the model runs, which needs torch\nnext:    pip install '.[torch]'")


INPUT = "(input)"
"""Name of the node that stands for the inputs of the model."""

_MODEL = "(model)"
_ROW, _LETTER = 18, 7  # Height of a row and width of a letter in a drawing, in pixels.


@dataclass(frozen=True)
class GraphNode:
    """A module that runs operators of its own, outside its parts.

    Args:
        name: Qualified name of the module; "(model)" for the model itself, "(input)" for its inputs.
        energy_j: Joules of its own operators in an iteration, forward and backward; None if they are not known.
    """

    name: str
    calls: int
    energy_j: float | None = None
    time_s: float | None = None


@dataclass(frozen=True)
class GraphEdge:
    """Tensors that one module writes and another one reads."""

    source: str
    target: str
    tensors: int
    size_bytes: int


@dataclass(frozen=True)
class EnergyGraph(Plain):
    """Modules in the order in which they first ran, and the tensors that flow between them in a forward."""

    title: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    def to_dict(self) -> dict[str, Any]:
        """Nodes and edges as plain lists and dictionaries; quantities in SI units."""
        return {"title": self.title, "nodes": list(map(asdict, self.nodes)), "edges": list(map(asdict, self.edges))}

    def to_graphml(self) -> str:
        """The graph as GraphML, which NetworkX, Gephi and yEd read."""
        keys = {"energy_j": "double", "time_s": "double", "calls": "int", "tensors": "int", "size_bytes": "long"}
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
        for name, kind in keys.items():
            of = "edge" if name in ("tensors", "size_bytes") else "node"
            lines.append(f'<key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>')
        lines.append('<graph edgedefault="directed">')

        def data(values: Mapping[str, Any]) -> str:
            known = (key for key in keys if values.get(key) is not None)
            return "".join(f'<data key="{key}">{values[key]!r}</data>' for key in known)

        lines += [f"<node id={quoteattr(node.name)}>{data(asdict(node))}</node>" for node in self.nodes]
        for edge in self.edges:
            ends = f"source={quoteattr(edge.source)} target={quoteattr(edge.target)}"
            lines.append(f"<edge {ends}>{data(asdict(edge))}</edge>")
        return "\n".join([*lines, "</graph>", "</graphml>", ""])

    def to_svg(self) -> str:
        """The graph as SVG: modules below each other with bars of their joules, and an arc for each flow."""
        place = {node.name: i * _ROW + _ROW // 2 for i, node in enumerate(self.nodes)}
        known = any(node.energy_j is not None for node in self.nodes)
        values = [(node.energy_j if known else node.time_s) or 0.0 for node in self.nodes]
        most, height = max(values, default=0.0) or 1.0, _ROW * len(self.nodes)
        deepest = max((abs(place[e.target] - place[e.source]) for e in self.edges), default=0)
        left = 20 + min(220, deepest // 2)
        names = left + 8 + _LETTER * max((len(node.name) for node in self.nodes), default=0)
        drawn = []
        for edge in self.edges:
            start, end = place[edge.source], place[edge.target]
            bow = min(220, abs(end - start) // 2)
            path = f"M{left} {start}C{left - bow} {start} {left - bow} {end} {left} {end}"
            tip = f"{edge.source} to {edge.target}: {edge.tensors} tensors, {si(edge.size_bytes, 'B')}"
            drawn.append(
                f'<path d="{path}" fill="none" stroke="#1b6ca8" opacity=".5"><title>{escape(tip)}</title></path>'
            )
        for node, value in zip(self.nodes, values, strict=True):
            y = place[node.name]
            said = si(node.energy_j, "J") if known else si(node.time_s, "s")
            drawn += [
                f'<text x="{left + 6}" y="{y + 4}">{escape(node.name)}</text>',
                f'<rect x="{names}" y="{y - 6}" width="{200 * value / most:.1f}" height="12" fill="#d1793b"/>',
                f'<text x="{names + 6 + 200 * value / most:.1f}" y="{y + 4}">{escape(said)}</text>',
            ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {names + 300} {height}" width="{names + 300}" '
            f'height="{height}" font-family="monospace" font-size="11"><title>{escape(self.title)}</title>'
            f"{''.join(drawn)}</svg>\n"
        )

    def save(self, path: str | Path) -> Path:
        """Write the graph as GraphML, JSON or SVG, by the end of the file's name.

        Raises InputError: the name ends otherwise, or its folder does not exist.
        """
        written = {".graphml": self.to_graphml, ".json": lambda: self.to_json(indent=1) + "\n", ".svg": self.to_svg}
        path = checked_path(path, [*written], "the graph")
        path.write_text(written[path.suffix.lower()](), encoding="utf-8")
        return path


def energy_graph(module: torch.nn.Module, inputs: Any, energies: Any) -> EnergyGraph:
    """The energy dependency graph of a model, from one forward, which runs here.

    Raises InputError: the module or its inputs are not valid. Raises ExtractionError: the model raises an error when it
    runs.

    Args:
        inputs: What `joulecast.account` takes: tensors, or shapes.
        energies: Where its joules come from: an Accounting, a Prediction, or the tree of one.
    """
    tree = energies if isinstance(energies, EnergyTree) else energies.tree()
    calls: dict[str, int] = {INPUT: 0}
    flows: dict[tuple[str, str], dict[int, int]] = {}
    steps = steps_of(module, inputs, "inference", None, None)
    with steps, _watched(module, (steps.args, steps.kwargs), calls, flows):
        steps.run()
    own = _own_shares(tree)
    edges = (GraphEdge(a, b, len(sizes), sum(sizes.values())) for (a, b), sizes in flows.items())
    nodes = tuple(GraphNode(name, count, *own.get(name, (None, None))) for name, count in calls.items())
    return EnergyGraph(tree.title, nodes, tuple(edges))


def _own_shares(tree: EnergyTree) -> dict[str, tuple[float | None, float]]:
    """Module -> joules and seconds of its operators, without those of its parts."""
    found: dict[str, tuple[float | None, float]] = {}
    for node in tree.root.walk():
        if node.own.time or node.own.energy:
            joules, seconds = found.get(node.path or _MODEL, (None, 0.0))
            if node.own.source != "missing":
                joules = (joules or 0.0) + node.own.energy_j
            found[node.path or _MODEL] = joules, seconds + node.own.time_s
    return found


@contextmanager
def _watched(
    module: torch.nn.Module, inputs: Any, calls: dict[str, int], flows: dict[tuple[str, str], dict[int, int]]
) -> Iterator[None]:
    """Watch which module writes and which reads each tensor, until the context ends.

    Args:
        calls: Node -> number of operators, which is filled in the order of their first.
        flows: Source and target -> size in bytes of each tensor, which is filled.
    """
    names = {part: path for path, part in module.named_modules()}
    around: list[str] = []
    # The tensors themselves are kept, because the ids of those that are gone may be given to others.
    writers: dict[int, tuple[torch.Tensor, str]] = {id(t): (t, INPUT) for t in tree_leaves(inputs)}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            here = (around[-1] if around else "") or _MODEL
            calls[here] = calls.get(here, 0) + 1
            for tensor in tree_leaves((args, kwargs)):
                _, source = writers.get(id(tensor), (None, here))
                if source != here:
                    size_bytes = tensor.numel() * tensor.element_size()
                    flows.setdefault((source, here), {})[id(tensor)] = size_bytes
            writers.update((id(t), (t, here)) for t in tree_leaves(result) if isinstance(t, torch.Tensor))
            return result

    def enter(part: torch.nn.Module, _: Any) -> None:
        around.append(names.get(part, around[-1] if around else ""))

    def leave(_: torch.nn.Module, __: Any, ___: Any) -> None:
        around.pop()

    hooks = torch.nn.modules.module
    with Watch():
        first = hooks.register_module_forward_pre_hook(enter)
        last = hooks.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            first.remove()
            last.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("shape", type=parse_shape)
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpu", help="predict the joules on this GPU, instead of measuring them here")
    parser.add_argument("--training", action="store_true")
    given = parser.parse_args()
    mode = "training" if given.training else "inference"
    try:
        module = build_to_run(given.model)
        if given.gpu:
            found = joulecast.predict(given.model, given.shape, given.gpu, mode=mode)
        else:
            found = joulecast.account(module, given.shape, mode=mode, loop_s=1.0)
        print(energy_graph(module, given.shape, found).save(given.file))
    except JoulecastError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
