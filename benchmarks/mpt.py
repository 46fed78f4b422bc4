"""How good predictions of training steps of MPT on A100 are, whose sequences go from 512 to 65,536 tokens.

    python benchmarks/mpt.py ../shared/data/llmfoundry2024/training.csv [--first] [--steps] [--library pytorch]

--first reads only the models that may be looked at; --steps prints every row. Without --first, --steps and --library,
writes benchmarks/training/MPT.md; takes five minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import joulecast
from joulecast.operations.network import Network

_FIRST = ("mpt-350m", "mpt-7b")
_REPORT = Path(__file__).with_name("training") / "MPT.md"
_NOTES = """# Training steps of MPT on A100

Made by `python benchmarks/mpt.py FILE`; do not edit.

**What was measured.** MosaicML published the throughput of pre-training MPT on 8 to 128 A100
(github.com/mosaicml/llm-foundry, scripts/train/benchmarking). Rows with 8 GPUs are read.

**What is predicted.** One of the GPUs: forward and backward of a micro-batch in bf16. FSDP's collectives and casts
and the optimizer (an eighth of a step for every 2 to 21 micro-batches) are left out. Where activations were
checkpointed, the forward of the blocks is added once more. The runs of 2023 computed attention by the first
FlashAttention in Triton (`attn_impl` is "triton" by default in submit_benchmarks.py of that time), so attention has
the implementation "triton": 1.8 times FlashAttention 2, the mean of what the paper of FlashAttention 2 states. If it
is predicted as PyTorch computes it today, the same steps come out 14 % too quick in the mean on the first models, and
up to 39 % with 65,536 tokens.

**What was looked at.** The error was +20 % in the mean on mpt-350m and mpt-7b (up to +75 %) while causal attention in
training cost as much as full attention. Nothing was fitted here. mpt-1b and mpt-30b were predicted once, after that.
The step of mpt-30b with 8192 tokens was published 1.4 times as long as its other steps suggest.
"""


class Step(NamedTuple):
    """A published step of training, and the milliseconds of a micro-batch on each GPU, without and with the prediction.

    Args:
        model, gpu: As in the file.
        hidden, heads, layers, vocabulary, sequence, batch: Sizes of the model and of a micro-batch.
        checkpointed: Whether the forward of the blocks is computed again in the backward.
        published_ms: Milliseconds of a micro-batch.
    """

    model: str
    gpu: str
    hidden: int
    heads: int
    layers: int
    vocabulary: int
    sequence: int
    batch: int
    checkpointed: bool
    published_ms: float

    def predicted_ms(self, library: str) -> float:
        """Milliseconds of a micro-batch by joulecast, with the implementation of attention."""
        modes = ("training", "inference") if self.checkpointed else ("training",)
        return 1e3 * sum(joulecast.predict(self._network(mode, library), gpu=self.gpu).time_s for mode in modes)

    def _network(self, mode: str, library: str) -> Network:
        import torch

        with torch.device("meta"):
            module = _mpt(self.hidden, self.heads, self.layers, self.vocabulary, self.sequence, head=mode == "training")
        tokens = torch.zeros((self.batch, self.sequence), dtype=torch.long)
        by = {"attention": library}
        return joulecast.extract(module.to(torch.bfloat16), tokens, mode=mode, precision="bf16", assume=by)


def steps(path: Path) -> list[Step]:
    """The rows of a file with 8 GPUs and nothing suspect."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpus"] == "8" and not row["suspect"]]
    return [
        Step(
            row["model"],
            row["gpu"],
            *(int(row[name]) for name in ("hidden", "heads", "layers", "vocabulary", "sequence", "micro_batch")),
            row["activation_checkpointing"] == "True",
            1e3 * float(row["step_s"]) / int(row["accumulation"]),
        )
        for row in rows
    ]


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


def _table(title: str, found: Sequence[tuple[Step, float]], key: Callable[[Step], object]) -> Iterable[str]:
    yield f"| {title} | steps | mean error | median, worst | bias |"
    yield "| --- | --- | --- | --- | --- |"
    keys = sorted({key(step) for step, _ in found}, key=str)
    for name, some in [*((str(k), [p for p in found if key(p[0]) == k]) for k in keys), ("all", found)]:
        ratios = np.array([ms / step.published_ms for step, ms in some])
        errors = 100 * abs(ratios - 1)
        middle = f"{np.median(errors):.1f}, {errors.max():.1f} %"
        yield f"| {name} | {len(some)} | {errors.mean():.1f} % | {middle} | {100 * (ratios.mean() - 1):+.1f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="training.csv of llmfoundry2024")
    parser.add_argument("--first", action="store_true", help="read only what may be looked at")
    parser.add_argument("--steps", action="store_true", help="print every row")
    parser.add_argument("--library", default="triton", help="the implementation of attention; default: triton")
    arguments = parser.parse_args()
    asked = [step for step in steps(arguments.file) if step.model in _FIRST or not arguments.first]
    found = [(step, step.predicted_ms(arguments.library)) for step in asked]
    for step, ms in found if arguments.steps else []:
        name = f"{step.model} {step.batch} x {step.sequence}, {step.gpu}{', checkpointed' * step.checkpointed}"
        print(
            f"{name:60s} {step.published_ms:9.0f} ms, predicted {ms:9.0f} ({100 * (ms / step.published_ms - 1):+.0f} %)"
        )
    lines = []
    for title, half in (("Models that were looked at", True), ("Models held back", False)):
        some = [(step, ms) for step, ms in found if (step.model in _FIRST) is half]
        if some:
            lines += [f"\n## {title}\n", *_table("model", some, lambda step: step.model), ""]
            lines += _table("tokens", some, lambda step: f"{step.sequence:6d}")
    if arguments.first or arguments.steps or arguments.library != "triton":
        print(*lines, sep="\n")
    else:
        _REPORT.write_text("\n".join([_NOTES.strip(), *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
