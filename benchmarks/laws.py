"""Checks the laws that must hold between predictions, on random operations and networks, and writes LAWS.md.

    python benchmarks/laws.py [--cases 200000] [--predictor NAME] [--law NAME ...] [--seed 0] [--write]
        [--measured ../shared/data/aiconfigurator2026]

Each law is checked on the GPUs of the whole catalogue. `--predictor` judges any predictor of the zoo by its name.
Operations that a predictor does not cover have no values, and break no law. `--write` writes the table to LAWS.md.
`--measured` also says how often measured kernels break the growth of time, and take longer in fp8.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
from law import CaseLaw, Law, OperationLaw, Subject, Tally, check_cases
from laws_drawn import batches, check
from laws_of_generation import GENERATION_LAWS
from laws_of_networks import NETWORK_LAWS
from laws_of_operations import OPERATION_LAWS

LAWS: dict[str, Law] = {**OPERATION_LAWS, **NETWORK_LAWS, **GENERATION_LAWS}
"""Name -> law."""

REPORT = Path(__file__).with_name("LAWS.md")
_AT_ONCE = 250  # Operations of one GPU and mode that are predicted together.

_INTRODUCTION = """# Laws

What must hold between predictions, checked on random operations and networks over all GPUs of the catalogue, all
precisions and modes. The excess of a case is the factor by which it breaks a law. Exact laws allow no case. Those that
measurements contradict, because libraries choose other kernels for other sizes, allow 0.1 % of all cases and an excess
of 1.02. `tests/test_laws.py` checks a sample of the same laws.

"""


_CASE = ["gpu", "stack", "kernel", "precision", "m", "n", "k"]


def measured_growth(folder: Path) -> str:
    """How often twice the rows of a linear layer take less time by the same measured kernel, as a paragraph."""
    times = pd.read_parquet(folder / "linear.parquet").groupby(_CASE)["time_us"].median()
    half = times.rename(lambda rows: 2 * rows, level="m")
    ratio = (half / times).dropna().to_numpy()
    broken = {percent: 100 * float((ratio > 1 + percent / 100).mean()) for percent in (2, 5)}
    return (
        f"Measurements break the growth of time more often than predictions: of {len(ratio):,} pairs of linear layers "
        f"(aiconfigurator2026), the one with twice the rows was over 2 % quicker in {broken[2]:.0f} %, and over 5 % in "
        f"{broken[5]:.0f} %; one of a thousand was over {np.quantile(ratio, 0.999):.1f} times as quick.\n\n"
    )


def measured_narrow(folder: Path) -> str:
    """How often products of few rows take longer in fp8 than in bf16, as a paragraph; rows are quantized first."""
    table = pd.read_parquet(folder / "linear.parquet")
    few = table[(table.kernel == "torch_flow") & table.precision.isin(["bfloat16", "fp8"]) & (table.m <= 16)]
    times = few.pivot_table("time_us", ["gpu", "m", "n", "k"], "precision", "median").dropna()
    longer, plain_us = times.fp8 > times.bfloat16, times.bfloat16
    shares = [100 * float(longer[some].mean()) for some in (plain_us < 15, plain_us >= 40)]
    return (
        f"Of {len(times):,} products of up to 16 rows in TensorRT-LLM (aiconfigurator2026), those under 15 us "
        f"in bf16 take longer in fp8 in {shares[0]:.1f} %, and those of 40 us or more in {shares[1]:.1f} %.\n\n"
    )


def run(
    subject: Subject, cases: int, *, seed: int = 0, names: Collection[str] = tuple(LAWS), at_once: int = _AT_ONCE
) -> dict[str, Tally]:
    """Check laws.

    Args:
        subject: The predictor that is judged.
        cases: Number of operations; laws of networks have fewer cases.
        seed: Of the source of chance.
        names: The laws to check.
        at_once: Number of operations of one GPU and mode that are predicted together.
    """
    of_operations = {name: law for name in names if isinstance(law := LAWS[name], OperationLaw)}
    tallies: dict[str, Tally] = {}
    if of_operations:
        for batch in batches(subject, cases, at_once, seed):
            check(batch, of_operations, tallies)
    others = [(name, law) for name in names if isinstance(law := LAWS[name], CaseLaw)]
    return tallies | check_cases(others, subject, cases, seed)


def table(tallies: dict[str, Tally]) -> str:
    """The report's table of laws."""
    rows = ["| law | cases | broken | share | worst excess | worst case | goal |", "| --- " * 7 + "|"]
    for name, tally in tallies.items():
        worst = tally.worst[0] if tally.worst else None
        excess, what = ("", "") if worst is None else (f"{worst.excess:.3g}", worst.what)
        goal = "met" if tally.meets_goal else "missed"
        share = f"{tally.share:.3%}"
        rows.append(
            f"| **{name}**: {tally.law.says} | {tally.cases} | {tally.broken} | {share} | {excess} | {what} | {goal} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--predictor", help="name in the zoo; default: the GPU's own, or that for any GPU")
    parser.add_argument("--law", nargs="+", choices=LAWS, default=tuple(LAWS), help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", type=int, default=1, help="number of worst cases to show for each law, up to 10")
    parser.add_argument("--write", action="store_true", help=f"write {REPORT.name}")
    parser.add_argument("--measured", type=Path, help="folder with linear.parquet of aiconfigurator2026")
    arguments = parser.parse_args()
    tallies = run(Subject(arguments.predictor), arguments.cases, seed=arguments.seed, names=arguments.law)
    for name, tally in tallies.items():
        goal = "met" if tally.meets_goal else "MISSED"
        print(f"{goal:7}{tally.broken:7d} of {tally.cases:7d} ({tally.share:.3%}) {name}")
        for case in tally.worst[: arguments.worst]:
            print(f"        {case.excess:9.4g}  {case.what}")
    said = () if arguments.measured is None else (measured_growth, measured_narrow)
    measured = "".join(each(arguments.measured) for each in said)
    print(measured, end="")
    if arguments.write:
        command = " ".join(["python benchmarks/laws.py", *sys.argv[1:]])
        text = f"{_INTRODUCTION}{measured}Command: `{command}`\n\n{table(tallies)}"
        REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
