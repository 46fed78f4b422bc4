"""Sections of the published page that are what commands print: figures of SMARAGDINE and of Delestrac, predicted."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable

from published_page import ROOT

STAGES = ("Figure 1, stages of BERT. SMARAGDINE measured them on its own machine.", "python examples/stages_of_bert.py")
VARIANTS = (
    "Figures 8 and 9, variants of BERT, and ALBERT. PCC is the correlation of the joules of shared modules, MED the "
    "mean of their signed differences.",
    "python benchmarks/variants.py bert_base 8,128 --gpu A30 --training --variant num_hidden_layers=6 "
    "--variant albert_base",
)
RELIABILITY = (
    "Stability over sampling periods and lengths of runs (ASSS, ASSW) and overhead, beside SMARAGDINE's. Power is "
    "simulated for the operators that ran, because this machine has no counter of energy.",
    "python benchmarks/reliability.py resnet18 2,3,64,64 --training",
)
LEVELS = (
    "Joules by memory level of matrix products and of a training step of ResNet-50. docs/sources.md has Delestrac's "
    "numbers beside them (rows L9 to L16).",
    "python examples/memory_levels.py",
)


def section(printed: Iterable[tuple[str, str]]) -> str:
    """What commands print, each below its words."""
    parts = []
    for words, command in printed:
        program, *arguments = shlex.split(command)
        start = [sys.executable] if program == "python" else [sys.executable, "-m", "joulecast"]
        ran = subprocess.run([*start, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        parts.append(f"{words} `{command}` prints:\n\n```text\n{ran.stdout.strip()}\n```")
    return "\n\n".join(parts)
