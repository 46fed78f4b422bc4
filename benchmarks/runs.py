"""How good predictions of whole training steps are: MPT on 8 to 128 A100 under FSDP, against published throughput.

    python benchmarks/runs.py ../shared/data/llmfoundry2024/training.csv [--first] [--steps]

Without --first and --steps, writes benchmarks/training/RUNS.md; takes five minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mpt import Step as Micro
from mpt import _mpt

from joulecast.extraction import Job, network_of_job
from joulecast.hardware import find_gpu
from joulecast.runs.layout import Layout
from joulecast.runs.step import Step, step_of
from joulecast.runs.traffic import Traffic
from joulecast.zoo import find_predictor

LOOKED_AT = ("mpt-350m", "mpt-7b")
_NETWORK = 200e9
"""Bytes per second of a node's adapters: RoCE with 1600 Gbit/s."""
_REPORT = Path(__file__).with_name("training") / "RUNS.md"
_NOTES = """# Whole steps of training MPT on 8 to 128 A100

Made by `python benchmarks/runs.py FILE`; do not edit.

**What was measured.** The throughput of pre-training MPT that MosaicML published (see MPT.md), with FSDP's FULL_SHARD.

**What is predicted.** Whole steps as `joulecast.predict_run` computes them: micro-batches with forward, backward, loss
and what is computed again; gathering parameters and summing gradients; and the step of AdamW on each GPU's part. All
rows are predicted in bf16: under autocast, too, MPT's layer norms and residuals stay in 16 bits (by
low_precision_layernorm, and FSDP's own casts of parameters). Attention is that of Triton, as in MPT.md.

**What was looked at.** mpt-350m and mpt-7b: their errors showed that rows under autocast are closer as bf16 (6.6 to
5.6 % in the mean), that what is computed again takes as long as a forward in inference, and that blocks which call
attention themselves had been left out of it (5.4 to 3.9 %). No number was fitted.
mpt-1b and mpt-30b were predicted once, after that.
"""


class Row(NamedTuple):
    """A row of the file: a micro-batch, and how steps are made of it."""

    micro: Micro
    autocast: bool
    layout: Layout
    step_s: float

    def predicted(self) -> Step:
        """The step."""
        import torch

        one = self.micro
        with torch.device("meta"):
            module = _mpt(one.hidden, one.heads, one.layers, one.vocabulary, one.sequence, head=True)
        tokens = torch.zeros((one.batch, one.sequence), dtype=torch.long)
        job = Job(module.to(torch.bfloat16), tokens, "training", "bf16", optimizer="adamw")
        network = network_of_job(replace(job, assume={"attention": "triton"}))
        gpu = find_gpu(one.gpu)
        predictors = (find_predictor(gpu, mode) for mode in ("training", "inference"))
        return step_of(network, gpu, self.layout, Traffic(gpu, 8, _NETWORK), *predictors, None, None)


def rows(path: Path) -> list[Row]:
    """All rows with nothing suspect."""
    with path.open(encoding="utf-8") as file:
        listed = [row for row in csv.DictReader(file) if not row["suspect"]]
    found = []
    for row in listed:
        sizes = (int(row[name]) for name in ("hidden", "heads", "layers", "vocabulary", "sequence", "micro_batch"))
        again = row["activation_checkpointing"] == "True"
        layout = Layout(
            int(row["gpus"]),
            accumulation=int(row["accumulation"]),
            sharding="zero3",
            recompute="full" if again else "none",
        )
        micro = Micro(row["model"], row["gpu"], *sizes, again, 0.0)
        found.append(Row(micro, row["precision"].startswith("amp"), layout, float(row["step_s"])))
    return found


def _table(title: str, found: Sequence[tuple[Row, Step]], key: Callable[[Row], str]) -> Iterable[str]:
    yield f"| {title} | steps | mean error | median, worst | bias | in the 90 % interval |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, some in [
        *((k, [p for p in found if key(p[0]) == k]) for k in sorted({key(p[0]) for p in found})),
        ("all", found),
    ]:
        ratios = np.array([step.time_s / row.step_s for row, step in some])
        errors = 100 * abs(ratios - 1)
        inside = sum(map(_within, some))
        yield (
            f"| {name} | {len(some)} | {errors.mean():.1f} % | {np.median(errors):.1f}, {errors.max():.1f} % "
            f"| {100 * (ratios.mean() - 1):+.1f} % | {inside} |"
        )


def _within(pair: tuple[Row, Step]) -> bool:
    row, step = pair
    around = step.micro.interval(0.9)
    if around is None:
        return False
    ratio = row.step_s / step.time_s
    low, high = (end / step.micro.time_s for end in around.time_s)
    return low <= ratio <= high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="training.csv of llmfoundry2024")
    parser.add_argument("--first", action="store_true", help="read only what may be looked at")
    parser.add_argument("--steps", action="store_true", help="print every row")
    arguments = parser.parse_args()
    asked = [row for row in rows(arguments.file) if row.micro.model in LOOKED_AT or not arguments.first]
    found = [(row, row.predicted()) for row in asked]
    for row, step in found if arguments.steps else []:
        parts = ", ".join(f"{name} {100 * cost.time_s / step.time_s:.0f} %" for name, cost in step.parts.items())
        memory = f"{step.memory.total_bytes / 2**30:.0f} of {find_gpu(row.micro.gpu).memory_bytes / 2**30:.0f} GiB"
        name = f"{row.micro.model} {row.layout.gpus} GPUs, {row.layout.accumulation} x {row.micro.batch} x "
        name += str(row.micro.sequence)
        print(f"{name:42s} {row.step_s:8.2f} s, {100 * (step.time_s / row.step_s - 1):+4.0f} %, {memory}: {parts}")
    lines = []
    for title, half in (("Models that were looked at", True), ("Models held back", False)):
        some = [(row, step) for row, step in found if (row.micro.model in LOOKED_AT) is half]
        if some:
            lines += [f"\n## {title}\n", *_table("model", some, lambda row: row.micro.model), ""]
            lines += [*_table("GPUs", some, lambda row: f"{row.layout.gpus:3d}"), ""]
            lines += _table("precision", some, lambda row: "autocast" if row.autocast else "bf16")
    if arguments.first or arguments.steps:
        print(*lines, sep="\n")
    else:
        _REPORT.write_text("\n".join([_NOTES.strip(), *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
