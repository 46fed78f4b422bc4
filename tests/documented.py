"""Commands of README and tutorials: the blocks of code, and how their lines are run within this process."""

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
        subprocess.run([sys.executable, "-m", "joulecast.cli", *python], check=True, capture_output=True, timeout=600)
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
