"""Notebooks in examples/notebooks/, made from the tutorials: `python3 tasks.py notebooks`.

A tutorial is the only source of its notebook. Text becomes cells of text, Python becomes cells of code, and lines of
shell become cells that IPython runs by `!`. What is installed, or needs what a notebook does not have, stays text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
NOTEBOOKS = ROOT / "examples" / "notebooks"

_BLOCK = re.compile(r"(?<! -->\n)^```(?P<language>python|sh)\n(?P<code>.*?)\n```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?P<target>[^)\s:]+)\)")
_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)


def notebook(tutorial: Path) -> str:
    """The notebook of a tutorial as JSON, in version 4.5 of Jupyter's format."""
    cells = [
        {"cell_type": kind, "id": f"cell-{place}", "metadata": {}, "source": source.splitlines(keepends=True), **rest}
        for place, (kind, source) in enumerate(_cells(tutorial))
        for rest in [{"execution_count": None, "outputs": []} if kind == "code" else {}]
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata: dict[str, Any] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def tutorials() -> list[Path]:
    """The tutorials with Python in them."""
    return [path for path in sorted(TUTORIALS.glob("*.md")) if "```python" in path.read_text(encoding="utf-8")]


def _cells(tutorial: Path) -> Iterator[tuple[str, str]]:
    """Kind and content of each cell."""
    text, done = tutorial.read_text(encoding="utf-8"), 0
    for block in _BLOCK.finditer(text):
        yield from _text(text[done : block.start()])
        if block["code"].startswith("pip "):  # which is for a terminal, in the folder of the clone
            yield from _text(block[0])
        elif block["language"] == "python":
            yield "code", block["code"]
        else:
            yield "code", "\n".join(f"!{line}" for line in block["code"].splitlines())
        done = block.end()
    yield from _text(text[done:])


def _text(text: str) -> Iterator[tuple[str, str]]:
    """A cell of text, whose links lead to the same pages as those of the tutorial."""

    def moved(link: re.Match[str]) -> str:
        target = os.path.relpath(TUTORIALS / link["target"], NOTEBOOKS).replace(os.sep, "/")
        return f"]({target})"

    if text.strip():
        yield "markdown", _LINK.sub(moved, _COMMENT.sub("", text)).strip()


def main() -> None:
    """Write the notebooks of all tutorials."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for path in tutorials():
        (NOTEBOOKS / f"{path.stem}.ipynb").write_text(notebook(path), encoding="utf-8")


if __name__ == "__main__":
    main()
