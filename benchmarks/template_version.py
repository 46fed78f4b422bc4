"""The version of what makes the templates of image pipelines: a digest of its code, without comments and docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

from joulecast.operations.operation import digest_of

_FILES = ("template_parts.py", "template_layout.py", "template_fit.py")


def maker(folder: Path = Path(__file__).parent) -> str:
    """Sixteen hexadecimal digits, which change with any statement of the files in this folder that make templates."""
    return digest_of("\n".join(_code(folder / name) for name in _FILES))


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
