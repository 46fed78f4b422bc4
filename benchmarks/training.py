"""How good predictions of training steps are on data centre GPUs: against throughput that NVIDIA published.

    python benchmarks/training.py [--first]

benchmarks/training/runs.csv holds the published numbers, with where each comes from. Physics may be improved with the
first half (`--first` reads no other rows); the other half is a test.

Writes benchmarks/training/REPORT.md. Networks are extracted with torch and timm, which takes three
minutes on one core, and cached in the folder --networks.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from compared import LEGEND, LEVEL, Compared, kept, rows_of, table, write

import joulecast
from joulecast import Operation, Prediction
from joulecast.extraction.models.named_models import build_timm
from joulecast.operations.entry import Entry
from joulecast.operations.network import Network
from joulecast.runs.step import with_loss

HERE = Path(__file__).with_name("training")
_BERT_PARAMETERS = 334_000_000
_LAUNCH_S = 8e-6
"""Host time of an operation in a loop over parameters; a module's call takes 24 us (see notes.md)."""
_LOOPS = {
    "resnet50": (161, 5),
    "resnext101_32x4d": (314, 5),
    "seresnext101_32x4d": (446, 5),
    "efficientnet_b0": (213, 9),
    "efficientnet_b4": (418, 9),
    "bert_squad": (393, 40),
}
"""Network -> tensors of its parameters, and operations on each in a step of PyTorch's SGD with momentum or its RMSprop
and in zeroing. A tensor of BertAdam's loop costs the host as much as 39 of them: its 16 operations make new tensors,
and autograd follows some (55 us, and 1.4 us an operation of SGD; 4 elements, PyTorch 2.13 on one CPU)."""
_FUSED = 2
"""Of such operations, those on each tensor where Apex fuses Adam: the kernels get lists of all tensors, which cost the
host as much as one (1.3 us), before they are launched; and gradients are zeroed in a loop."""
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

    @property
    def launching_s(self) -> float:
        """Seconds in which the host launches the optimizer's step after it has waited for the GPU.

        Scalers wait for whether a gradient has overflowed, BertAdam for their norm. In other runs, the step is launched
        while the GPU still computes the backward.
        """
        waits = self.precision == "amp" or self.is_text
        tensors, operations = _LOOPS.get(self.network, (0, 0)) if waits else (0, 0)
        return tensors * (_FUSED if self.precision == "fp16" else operations) * _LAUNCH_S

    def extracted(self, folder: Path) -> Network:
        """The operations of a step; cached in a folder."""
        return kept(folder / f"{self.network}-{self.batch}x{self.size}-{self.precision}.json", self._extracted)

    def _extracted(self) -> Network:
        import torch

        shape = (self.batch, self.size) if self.is_text else (self.batch, 3, self.size, self.size)
        network = joulecast.extract(
            self._module(),
            torch.zeros(shape, dtype=torch.long) if self.is_text else shape,
            mode="training",
            precision="default" if self.precision == "amp" else self.precision,
            # Gradients of pre-training are accumulated, so that a step costs little; of fine-tuning see _fine_tuning.
            optimizer=None if self.is_text else "sgd",
        )
        if self.network != "bert_pretraining":
            return network
        precision = "fp16" if self.precision == "fp16" else "fp32"
        accumulated = Operation("gradient_accumulation", [(_BERT_PARAMETERS,)], precision=precision, mode="training")
        return with_loss(replace(network, entries=(*network.entries, Entry(accumulated, 1, ("(backward)",)))))

    def _module(self) -> Any:
        module = _bert(self.network) if self.is_text else build_timm(self.network)
        return _under_autocast(module.train()) if self.precision == "amp" else module.train()


def published() -> list[Run]:
    """All rows of the file, in its order."""
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
        for row in rows_of(HERE / "runs.csv")
    ]


def _bert(task: str) -> Any:
    """BERT-large with the head of its task, as NVIDIA's modeling.py computes it.

    Attention is products and a softmax with a mask, and each bias is a sum of its own: PyTorch of 2020 and 2021 adds it
    to the product of a batch of sequences (aten/src/ATen/native/Linear.cpp), as modeling.py does before a GELU.
    """
    import torch

    hidden, inner, heads = 1024, 4096, 16

    class Linear(torch.nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.product = torch.nn.Linear(inputs, outputs, bias=False)
            self.bias = torch.nn.Parameter(torch.zeros(outputs))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bias + self.product(x)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (Linear(hidden, hidden) for _ in range(4))
            self.wide, self.narrow = Linear(hidden, inner), Linear(inner, hidden)
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
            self.dropout = torch.nn.Dropout(0.1)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            query, key, value = (
                each(x).reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)
                for each in (self.query, self.key, self.value)
            )
            scores = query @ key.transpose(2, 3) / 8.0 + mask
            attended = (self.dropout(torch.softmax(scores, -1)) @ value).permute(0, 2, 1, 3).contiguous()
            x = self.norms[0](self.dropout(self.out(attended.reshape(x.shape))) + x)
            widened = torch.nn.functional.gelu(self.wide(x))
            return self.norms[1](self.dropout(self.narrow(widened)) + x)

    class Bert(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = torch.nn.ModuleList(torch.nn.Embedding(rows, hidden) for rows in (30522, 512, 2))
            self.norm, self.dropout = torch.nn.LayerNorm(hidden), torch.nn.Dropout(0.1)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(24))
            self.pooled, self.transformed = torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, hidden)
            self.head_norm, self.words = torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, 30522)
            self.two = torch.nn.Linear(hidden, 2)  # The next sentence, or where an answer begins and ends.

        def forward(self, tokens: torch.Tensor) -> Any:
            words, places, types = self.embeddings
            place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
            x = self.dropout(self.norm(words(tokens) + places(place) + types(tokens)))
            mask = torch.zeros((tokens.shape[0], 1, 1, tokens.shape[1]), dtype=x.dtype, device=tokens.device)
            for layer in self.layers:
                x = layer(x, mask)
            if task == "bert_squad":
                return self.two(x)
            predicted = torch.nn.functional.gelu(self.transformed(x[:, :_PREDICTED_TOKENS].contiguous()))
            return self.words(self.head_norm(predicted)), self.two(torch.tanh(self.pooled(x[:, 0])))

    with torch.device("meta"):
        return Bert()


def _fine_tuning(precision: str) -> Network:
    """What run_squad.py computes between a backward and the next forward, over all parameters.

    In fp16, NVIDIA's Apex holds parameters a second time in fp32: gradients are unscaled, clipped, and Adam is one
    kernel. In fp32, BertAdam is a loop over parameters in which each operation is a kernel, after a norm and a scale.
    """

    def over(kind: str, inputs: int = 1, times: int = 1) -> Entry:
        return Entry(Operation(kind, [(_BERT_PARAMETERS,)] * inputs, precision="fp32"), times, ("(optimizer)",))

    clipping = (over("norm"), over("mul"))
    if precision == "fp16":
        return Network((over("copy"), *clipping, over("adam_fused_step"), over("copy")), name="optimizer")
    loop = over("mul", times=7), over("sqrt"), over("add"), over("add", 2, 4), over("div", 2)
    return Network((over("norm"), *clipping, *loop), name="optimizer")


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


def predicted(run: Run, folder: Path) -> tuple[Prediction, float]:
    """The prediction of forward and backward, and the seconds of the optimizer's step that follow."""
    network = replace(run.extracted(folder), channels_last=run.channels_last)
    # TorchScript fuses point-wise operations of pre-training, and of nothing else.
    execution: Literal["compiled", "eager"] = "compiled" if run.network == "bert_pretraining" else "eager"
    found, optimizer_s = joulecast.predict(network, gpu=run.gpu, execution=execution), run.launching_s
    if run.network == "bert_squad":  # Its steps wait for the norm of the gradients.
        step_s = joulecast.predict(_fine_tuning(run.precision), gpu=run.gpu).device_time_s
        # One kernel waits for the lists of its tensors, and a loop over them for nothing.
        optimizer_s = step_s + optimizer_s if run.precision == "fp16" else max(step_s, optimizer_s)
    return found, optimizer_s


def compared(run: Run, folder: Path) -> Compared:
    """A run beside its prediction, in milliseconds of a step."""
    found, optimizer_s = predicted(run, folder)
    interval = found.interval(LEVEL)
    ends = interval and {"time": tuple(1e3 * (each + optimizer_s) for each in interval.time_s)}
    return Compared.of(run, {"time": (1e3 * (found.time_s + optimizer_s), run.step_ms)}, ends)


def _section(title: str, found: Sequence[Compared]) -> list[str]:
    lines = [f"## {title}", "", LEGEND, "", *table("GPU and precision", found, lambda each: each.run.group)]
    lines += table("network", found, lambda each: each.run.network)
    lines += ["| run | published ms | predicted ms | error |", "| --- | --- | --- | --- |"]
    for each in found:
        run, ms = each.run, each.run.step_ms * math.exp(each.logs["time"])
        name = f"{run.network} {run.batch} x {run.size}, {run.gpu}, {run.precision}"
        lines.append(f"| {name} | {run.step_ms:.0f} | {ms:.0f} | {each.error()} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", action="store_true", help="print the half that may be looked at; write nothing")
    parser.add_argument("--networks", type=Path, default=Path("build/training"))
    arguments = parser.parse_args()
    found = [compared(run, arguments.networks) for run in published() if run.is_first or not arguments.first]
    lines = _section("Runs that were looked at", [each for each in found if each.run.is_first])
    if arguments.first:
        print("\n".join(lines))
        return
    notes = (HERE / "notes.md").read_text(encoding="utf-8").strip()
    lines = [f"{len(found)} published throughputs.", "", notes, "", *lines]
    lines += _section("Runs held back", [each for each in found if not each.run.is_first])
    write(HERE / "REPORT.md", "Training steps that NVIDIA published", "training.py", lines)


if __name__ == "__main__":
    main()
