"""Docstrings say what an argument is, not where to look or that it is like another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import joulecast

PACKAGE = Path(joulecast.__file__).parent
ENTRY = re.compile(r"^ {4}(?P<names>\w+(?:, \w+)*): (?P<text>.*)$")
EMPTY_BEGINNINGS = ("Where", "Which", "Of", "The same", "See")
FEW_WORDS = 3


def documented_arguments(docstring: str) -> Iterator[tuple[str, str]]:
    """The entries under "Args:" with their texts, continuation lines joined."""
    _, _, rest = docstring.partition("\nArgs:\n")
    name, words = "", []
    for line in [*rest.splitlines(), "end"]:
        entry = ENTRY.match(line)
        if (entry or (line and not line.startswith("     "))) and name:
            yield name, " ".join(words)
            name, words = "", []
        if entry:
            name, words = entry["names"], [entry["text"]]
        elif line and not line.startswith(" "):
            return
        else:
            words.append(line.strip())


def says_nothing(text: str) -> bool:
    first = text.split(".")[0]
    return len(text.split()) <= FEW_WORDS and any(
        first == beginning or first.startswith((beginning + " ", beginning + ",")) for beginning in EMPTY_BEGINNINGS
    )


def test_the_check_tells_them_apart():
    found = dict(
        documented_arguments("What.\n\nArgs:\n    gpu: Where.\n    counts: Calls of each\n        operation.\n")
    )
    assert found == {"gpu": "Where.", "counts": "Calls of each operation."}
    assert [says_nothing(text) for text in ("Where.", "Of each.", "The same.", "See `Work`.", "Offset.", "Seed.")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_no_argument_is_documented_by_where_or_which():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                place = f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
                found += [f"{place}: {n}: {text}" for n, text in documented_arguments(docstring) if says_nothing(text)]
    assert not found, "\n".join(found)
