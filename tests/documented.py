"""Commands of README and tutorials: the blocks of code, and how their lines are run within this process."""

import re
import shlex
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

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
