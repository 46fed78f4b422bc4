"""Commands of README and tutorials: the blocks of code, and how their lines are run within this process."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import joulecast
from joulecast.cli import main

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"(?:<!-- needs (?P<needs>[^>]+) -->\n)?```(?P<language>python|sh)\n(?P<code>.*?)```", re.DOTALL)
OF_A_FRESH_ENVIRONMENT = ("pip ", "python3 tasks.py ", ". .venv/")
"""How lines begin that make an environment, which the tests within this process have already."""


def blocks(text: str, there: Collection[str] = ()) -> list[tuple[str, str]]:
    """Language and code of each block that needs nothing but what is there."""
    found = BLOCK.finditer(text)
    return [(block["language"], block["code"]) for block in found if block["needs"] in (None, *there)]


def lines(text: str, there: Collection[str] = ()) -> list[str]:
    """The lines of shell in blocks that need nothing but what is there."""
    return [line for language, code in blocks(text, there) if language == "sh" for line in code.splitlines() if line]


def assert_shows(path: Path, printed: str) -> None:
    """Require that the blocks of text of a page are in what was printed; `PASTE=1 python -m pytest` writes today's."""

    def begins(line: str) -> str:
        return re.sub(r"-+", "-", (line.split() or [""])[0])

    page, lines = path.read_text(encoding="utf-8"), printed.splitlines()
    for shown in re.findall(r"```text\n(.*?)\n```", page, re.DOTALL):
        if shown not in printed and "PASTE" in os.environ:
            old = [begins(line) for line in shown.splitlines()]
            parts = (lines[first : first + len(old)] for first in range(len(lines)))
            page = page.replace(shown, "\n".join(next(part for part in parts if [*map(begins, part)] == old)))
            path.write_text(page, encoding="utf-8")
        else:
            assert shown in printed, path


def first_steps(readme: str) -> str:
    """The part of README that a stranger follows line by line."""
    return readme.partition("## First steps")[2].partition("\n## ")[0]


def run_line(line: str) -> None:
    """Run a line of shell, `joulecast` within this process. Lines that make an environment are left out."""
    if line.startswith(OF_A_FRESH_ENVIRONMENT):
        return
    words = shlex.split(line, comments=True)
    assert words[0] == "joulecast", line
    if "--" in words:  # it runs another program, which writes to a standard output of its own
        python = [sys.executable if word in ("python", "python3") else word for word in words[1:]]
        subprocess.run([sys.executable, "-m", "joulecast", *python], check=True, capture_output=True, timeout=600)
        return
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code, line


def example_names() -> dict[str, Any]:
    """What the pages leave to their readers: a model, candidates of a search, the work of a program."""
    torch = pytest.importorskip("torch")
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")

    class Module(torch.nn.Module):
        """It takes one input or two."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.LazyLinear(8)

        def forward(self, x: Any, ids: Any = None) -> Any:
            found = self.linear(x)
            return found if ids is None else found + ids.sum()

    module = Module()
    module(torch.zeros(1, 16))
    wide = torch.nn.Sequential(torch.nn.Linear(512, 8))
    relu = joulecast.Operation("relu", [(32, 64, 56, 56)])
    networks = [joulecast.Network.of([(relu, count)], name=f"{count} of them") for count in (1, 2, 3)]
    work = dict.fromkeys(("train", "train_one_epoch", "evaluate"), lambda: None)
    names = {"my_module": module, "my_mixture_of_experts": wide, "ids": torch.zeros(8, dtype=torch.long)}
    return {"joulecast": joulecast, "pandas": pandas, "polars": polars, "networks": networks, **names, **work} | {
        "candidates": networks
    }
