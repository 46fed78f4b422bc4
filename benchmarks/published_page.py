"""A page of sections that say which code and which inputs made them, so that an outdated one can be told."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parent
ROOT = BENCHMARKS.parent
MARK = re.compile(r"<!-- (?P<name>\w+) made by (?P<made_by>\w+), measurements (?P<data>[\w-]+) -->")


@dataclass(frozen=True)
class Section:
    """What a section is made of.

    Args:
        title: Its heading.
        code: Files of benchmarks that make it.
        inputs: Files and folders of the checkout that it is made from, such as recipes and stored predictors.
        sources: Files of measurements below the folder of data.
    """

    title: str
    code: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def made_by(self) -> str:
        """A digest of what the code does, without words, imports and types, and of the inputs."""
        found = hashlib.sha256()
        for name in (*self.code, "published_page.py"):
            found.update(ast.dump(_Doing().visit(ast.parse((BENCHMARKS / name).read_text("utf-8")))).encode())
        for path in _files(ROOT / name for name in self.inputs):
            found.update(path.read_bytes())
        return found.hexdigest()[:16]

    def data(self, folder: Path) -> str:
        """A digest of the measurements, or "simulated" where they are not there."""
        files = [folder / name for name in self.sources]
        if not all(file.is_file() for file in files):
            return "simulated"
        found = hashlib.sha256()
        for file in files:
            found.update(file.read_bytes())
        return found.hexdigest()[:16] if files else "none"


def _files(paths: Iterable[Path]) -> list[Path]:
    """Files, and manifests of stored predictors: a manifest names the digests of all files beside it."""
    return [path / "manifest.json" if path.is_dir() else path for path in paths]


class _Doing(ast.NodeTransformer):
    """What code does: docstrings, imports and types leave, so that a function may move to another module."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_Import(self, node: ast.AST) -> None:
        return None

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return node.value and self.generic_visit(ast.Assign([node.target], node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node


def outdated(page: str, sections: Mapping[str, Section], data: Path) -> list[str]:
    """Names of the sections that the page lacks, or has from other code, inputs or measurements.

    Measurements are compared only where they are there.
    """
    found = {match["name"]: match for match in MARK.finditer(page)}
    return [
        name
        for name, section in sections.items()
        if name not in found
        or found[name]["made_by"] != section.made_by()
        or section.data(data) not in ("simulated", found[name]["data"])
    ]


def read_sections(page: str) -> dict[str, str]:
    """Name -> text of each section of a page, with its heading."""
    starts = list(MARK.finditer(page))
    ends = [*(match.start() for match in starts[1:]), len(page)]
    return {match["name"]: page[match.start() : end].rstrip() for match, end in zip(starts, ends, strict=False)}


def written(head: str, texts: Mapping[str, str], order: Sequence[str]) -> str:
    """The page."""
    return "\n\n".join([head.strip(), *(texts[name] for name in order if name in texts)]) + "\n"


def marked(name: str, section: Section, data: Path, text: str) -> str:
    """A section as it stands on the page."""
    mark = f"<!-- {name} made by {section.made_by()}, measurements {section.data(data)} -->"
    return f"{mark}\n## {section.title}\n\n{text.strip()}"
