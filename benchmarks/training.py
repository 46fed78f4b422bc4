"""How good predictions of training steps are on data centre GPUs: against throughput that NVIDIA published.

    python benchmarks/training.py [--first]

benchmarks/training/runs.csv holds the published numbers, with where each comes from. Physics may be improved with the
first half (`--first` reads no other rows); the other half is a test.

Writes benchmarks/training/REPORT.md. Networks are extracted with torch, timm and transformers, which takes three
minutes on one core, and cached in the folder --networks.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import joulecast
from joulecast.extraction.models import timm_models, transformers_models
from joulecast.operations.network import Network

HERE = Path(__file__).with_name("training")
_PREDICTED_TOKENS = 20
"""Of 128 tokens, those that BERT's pre-training predicts. The head over the vocabulary computes no others."""


@dataclass(frozen=True)
class Run:
    """A published throughput.

    Args:
        gpu, network: As in the file.
        precision: amp (autocast in fp16), fp16 (the whole model), tf32 or fp32.
        batch: Images or sequences of one step.
        size: Pixels of a side of an image, or tokens of a sequence.
        items_per_s: Images or sequences per second.
        is_first: Whether it may be looked at.
    """

    gpu: str
    network: str
    precision: str
    batch: int
    size: int
    items_per_s: float
    is_first: bool

    @property
    def group(self) -> str:
        """Rows with the same GPU and precision."""
        return f"{self.gpu.rsplit(' ', 1)[0]}, {self.precision}"

    @property
    def is_text(self) -> bool:
        """Whether it is a language model."""
        return self.network.startswith("bert")

    @property
    def channels_last(self) -> bool:
        """Whether images lay with their channels last, as NVIDIA ran them in mixed precision."""
        return self.precision == "amp" and not self.is_text

    @property
    def step_ms(self) -> float:
        """Milliseconds of a step."""
        return 1e3 * self.batch / self.items_per_s

    def extracted(self, folder: Path) -> Network:
        """The operations of a step; cached in a folder."""
        path = folder / f"{self.network}-{self.precision}-{self.batch}x{self.size}.json"
        if path.is_file():
            return Network.load(path)
        shape = (self.batch, self.size) if self.is_text else (self.batch, 3, self.size, self.size)
        # Gradients of pre-training are accumulated, so that a step of the optimizer costs little.
        optimizer = None if self.network == "bert_pretraining" else "sgd" if not self.is_text else "adam"
        network = joulecast.extract(
            self._module(),
            _token_ids(shape) if self.is_text else shape,
            mode="training",
            precision="default" if self.precision == "amp" else self.precision,
            optimizer=optimizer,
        )
        folder.mkdir(parents=True, exist_ok=True)
        network.save(path)
        return network

    def _module(self) -> Any:
        module = _bert(self.network) if self.is_text else timm_models.build(self.network)
        return _under_autocast(module.train()) if self.precision == "amp" else module.train()


def published() -> list[Run]:
    """All rows of the file, in its order."""
    lines = [line for line in (HERE / "runs.csv").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        Run(
            row["gpu"],
            row["network"],
            row["precision"],
            int(row["batch"]),
            int(row["size"]),
            float(row["items_per_s"]),
            row["half"] == "first",
        )
        for row in csv.DictReader(lines)
    ]


def _token_ids(shape: tuple[int, ...]) -> Any:
    import torch

    return torch.zeros(shape, dtype=torch.long)


def _bert(task: str) -> Any:
    """BERT-large with the head of its task. Attention is computed as products and a softmax, as in 2021."""
    import torch

    transformers = transformers_models.import_transformers()
    config = transformers.BertConfig(
        hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24
    )
    config._attn_implementation = "eager"
    if task == "bert_squad":
        with torch.device("meta"):
            return transformers.BertForQuestionAnswering(config)

    class Pretraining(torch.nn.Module):
        """The encoder, and the head over the vocabulary for the tokens that are predicted."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertForPreTraining(config)

        def forward(self, tokens: torch.Tensor) -> Any:
            hidden = self.bert.bert(tokens)
            return self.bert.cls(hidden[0][:, :_PREDICTED_TOKENS].contiguous(), hidden[1])

    with torch.device("meta"):
        return Pretraining()


def _under_autocast(inner: Any) -> Any:
    import torch

    class UnderAutocast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, inputs: torch.Tensor) -> Any:
            with torch.autocast("cuda", dtype=torch.float16):
                return self.inner(inputs)

    return UnderAutocast()


@dataclass(frozen=True)
class Outcome:
    """A run with the milliseconds that were predicted for its step, and what the interval says.

    Args:
        run: The run.
        step_ms: Predicted milliseconds.
        within: Whether the published time lies in the 90 % interval; None if there is no interval.
    """

    run: Run
    step_ms: float
    within: bool | None

    @property
    def log_ratio(self) -> float:
        """Ratio of predicted to published time."""
        return float(np.log(self.step_ms / self.run.step_ms))


def outcomes(runs: Sequence[Run], folder: Path) -> list[Outcome]:
    """Predict all runs."""
    found = []
    for run in runs:
        prediction = joulecast.predict(replace(run.extracted(folder), channels_last=run.channels_last), gpu=run.gpu)
        interval = prediction.interval(0.9)
        seconds = run.step_ms / 1e3
        within = None if interval is None else interval.time_s[0] <= seconds <= interval.time_s[1]
        found.append(Outcome(run, 1e3 * prediction.time_s, within))
    return found


def _table(found: Sequence[Outcome], title: str, key: Callable[[Run], str]) -> list[str]:
    lines = [f"| {title} | runs | median / mean error, bias | in the 90 % interval |", "| --- | --- | --- | --- |"]
    groups = {name: [o for o in found if key(o.run) == name] for name in sorted({key(o.run) for o in found})}
    for name, some in [*groups.items(), ("all", list(found))]:
        logs = np.array([o.log_ratio for o in some])
        errors = 100 * abs(np.expm1(logs))
        cells = f"{np.median(errors):.0f} / {np.mean(errors):.0f} %, {100 * np.expm1(np.mean(logs)):+.0f} %"
        lines.append(f"| {name} | {len(some)} | {cells} | {sum(bool(o.within) for o in some)} |")
    return [*lines, ""]


def _section(title: str, found: Sequence[Outcome]) -> list[str]:
    lines = [f"## {title}", ""]
    lines += _table(found, "GPU and precision", lambda run: run.group)
    lines += _table(found, "network", lambda run: run.network)
    lines += ["| run | published ms | predicted ms | error |", "| --- | --- | --- | --- |"]
    for o in found:
        name = f"{o.run.network} {o.run.batch} x {o.run.size}, {o.run.gpu}, {o.run.precision}"
        lines.append(f"| {name} | {o.run.step_ms:.0f} | {o.step_ms:.0f} | {100 * np.expm1(o.log_ratio):+.0f} % |")
    return [*lines, ""]


def report(found: Sequence[Outcome]) -> str:
    """The report as Markdown."""
    notes = (HERE / "notes.md").read_text(encoding="utf-8").strip()
    lines = [
        "# Training steps that NVIDIA published",
        "",
        f"Made by `python benchmarks/training.py`; do not edit. {len(found)} published throughputs.",
        "",
        notes,
        "",
        *_section("Runs that were looked at", [o for o in found if o.run.is_first]),
        *_section("Runs held back", [o for o in found if not o.run.is_first]),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", action="store_true", help="print the half that may be looked at; write nothing")
    parser.add_argument("--networks", type=Path, default=Path("build/training"))
    arguments = parser.parse_args()
    found = outcomes([run for run in published() if run.is_first or not arguments.first], arguments.networks)
    if arguments.first:
        print("\n".join(_section("Runs that were looked at", found)))
    else:
        (HERE / "REPORT.md").write_text(report(found), encoding="utf-8")


if __name__ == "__main__":
    main()
