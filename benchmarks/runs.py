"""How good predictions of whole training steps are: MPT on 8 to 128 A100 under FSDP, against published throughput.

    python benchmarks/runs.py ../shared/data/llmfoundry2024/training.csv [--first] [--steps]

Without --first and --steps, writes benchmarks/training/RUNS.md; takes five minutes on one core.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from compared import LEGEND, LEVEL, Compared, rows_of, table, write

from joulecast.extraction import Job, network_of_job
from joulecast.hardware import find_gpu
from joulecast.runs.layout import Layout
from joulecast.runs.step import Step, step_of

LOOKED_AT = ("mpt-350m", "mpt-7b")
_NETWORK = 200e9
"""Bytes per second of a node's adapters: RoCE with 1600 Gbit/s."""
_REPORT = Path(__file__).with_name("training") / "RUNS.md"
_NOTES = """**What was measured.** MosaicML published the throughput of pre-training MPT on 8 to 128 A100
(github.com/mosaicml/llm-foundry, scripts/train/benchmarking), with FSDP's FULL_SHARD.

**What is predicted.** Whole steps as `joulecast.predict_run` computes them: micro-batches with forward, backward, loss
and what is computed again; gathering parameters and summing gradients; and the step of AdamW on each GPU's part. All
rows are predicted in bf16: under autocast, too, MPT's layer norms and residuals stay in 16 bits (by
low_precision_layernorm, and FSDP's own casts of parameters). The runs of 2023 computed attention by the first
FlashAttention in Triton (`attn_impl` is "triton" by default in submit_benchmarks.py of that time), so attention has the
implementation "triton": 1.8 times FlashAttention 2, the mean of what the paper of FlashAttention 2 states. If it were
that of PyTorch today, steps of the first models would come out 14 % too quick in the mean, and up to 39 %.

**What was looked at.** mpt-350m and mpt-7b: their errors showed that rows under autocast are closer as bf16 (6.6 to
5.6 % in the mean), that what is computed again takes as long as a forward in inference, and that blocks which call
attention themselves had been left out of it (5.4 to 3.9 %). No number was fitted.
mpt-1b and mpt-30b were predicted once, after that. The step of mpt-30b with 8192 tokens was published 1.4 times as long
as its other steps suggest.
"""


class Row(NamedTuple):
    """A row of the file: sizes of the model and of a micro-batch, and how steps are made of it."""

    model: str
    gpu: str
    hidden: int
    heads: int
    layers: int
    vocabulary: int
    sequence: int
    batch: int
    autocast: bool
    layout: Layout
    step_s: float

    def predicted(self) -> Step:
        """The step."""
        import torch

        with torch.device("meta"):
            module = _mpt(self.hidden, self.heads, self.layers, self.vocabulary, self.sequence, head=True)
        tokens = torch.zeros((self.batch, self.sequence), dtype=torch.long)
        job = Job(module.to(torch.bfloat16), tokens, "training", "bf16", optimizer="adamw")
        network = network_of_job(replace(job, assume={"attention": "triton"}))
        return step_of(job, network, find_gpu(self.gpu), self.layout, network_bandwidth=_NETWORK)


def rows(path: Path) -> list[Row]:
    """All rows with nothing suspect."""
    rows_read = []
    for row in rows_of(path):
        sizes = (int(row[name]) for name in ("hidden", "heads", "layers", "vocabulary", "sequence", "micro_batch"))
        again = row["activation_checkpointing"] == "True"
        layout = Layout(
            int(row["gpus"]),
            accumulation=int(row["accumulation"]),
            sharding="zero3",
            recompute="full" if again else "none",
        )
        autocast = row["precision"].startswith("amp")
        rows_read.append(Row(row["model"], row["gpu"], *sizes, autocast, layout, float(row["step_s"])))
    return rows_read


def _mpt(hidden: int, heads: int, layers: int, vocabulary: int, sequence: int, *, head: bool) -> Any:
    """The model as llm-foundry builds it: no biases, learned positions, the embedding as the last layer's weights."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(hidden, bias=False), nn.LayerNorm(hidden, bias=False)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
            self.up, self.down = nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(4 * hidden, hidden, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, tokens, _ = x.shape
            q, k, v = (
                part.view(batch, tokens, heads, hidden // heads).transpose(1, 2)
                for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
            )
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, hidden))
            return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(hidden, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            if not head:
                return x
            logits = nn.functional.linear(self.norm(x), self.tokens.weight)
            return nn.functional.cross_entropy(logits.view(-1, vocabulary).float(), tokens.view(-1))

    return Model()


def compared(row: Row, step: Step) -> Compared:
    """A row with its prediction, and the interval of a micro-batch around it."""
    around = step.micro.interval(LEVEL)
    scale = step.whole.time_s / step.micro.time_s
    bounds = None if around is None else {"time": (scale * around.time_s[0], scale * around.time_s[1])}
    return Compared.of(row, {"time": (step.whole.time_s, row.step_s)}, bounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="training.csv of llmfoundry2024")
    parser.add_argument("--first", action="store_true", help="read only what may be looked at")
    parser.add_argument("--steps", action="store_true", help="print every row")
    arguments = parser.parse_args()
    asked = [row for row in rows(arguments.file) if row.model in LOOKED_AT or not arguments.first]
    steps = [(row, row.predicted()) for row in asked]
    for row, step in steps if arguments.steps else []:
        parts = ", ".join(f"{name} {100 * cost.time_s / step.whole.time_s:.0f} %" for name, cost in step.parts.items())
        memory = f"{step.memory.total_bytes / 2**30:.0f} of {find_gpu(row.gpu).memory_bytes / 2**30:.0f} GiB"
        name = f"{row.model} {row.layout.gpus} GPUs, {row.layout.accumulation} x {row.batch} x {row.sequence}"
        print(f"{name:42s} {row.step_s:8.2f} s, {compared(row, step).error()}, {memory}: {parts}")
    lines = [_NOTES, LEGEND, ""]
    for title, half in (("Models that were looked at", True), ("Models held back", False)):
        some = [compared(row, step) for row, step in steps if (row.model in LOOKED_AT) is half]
        if some:
            lines += [f"## {title}", "", *table("model", some, lambda each: each.run.model)]
            lines += table("GPUs", some, lambda each: f"{each.run.layout.gpus:3d}")
            lines += table("tokens", some, lambda each: f"{each.run.sequence:6d}")
            lines += table("precision", some, lambda each: "autocast" if each.run.autocast else "bf16")
    if arguments.first or arguments.steps:
        print(*lines[3:], sep="\n")
    else:
        write(_REPORT, "Whole steps of training MPT on 8 to 128 A100", "runs.py FILE", lines)


if __name__ == "__main__":
    main()
