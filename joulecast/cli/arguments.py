"""Arguments that several commands share, and the tables that they print."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InputError

Model = Annotated[
    str,
    typer.Argument(
        help="Name of a torchvision, timm or transformers model; a file (network as JSON, config.json, .pt2, .onnx); "
        "or FILE.py:NAME for a class or function in your own Python file, which is run."
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SHAPE]...",
        help="Input shape, batch first, such as 32,3,224,224. For several inputs, repeat it, or write name=shape.",
    ),
]
Training = Annotated[
    bool, typer.Option("--training", help="Predict a training step (forward and backward) instead of inference.")
]
ModeOption = Annotated[str | None, typer.Option("--mode", help="inference or training. Default: inference.")]
Precision = Annotated[str, typer.Option(help="default, fp32, tf32, fp16 or bf16.")]
CacheLength = Annotated[
    int | None, typer.Option(help="Tokens in a transformer's cache before this call, as in a step of decoding.")
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        help="sgd, adam or adamw, or with fused=True adamw_fused and so on: include the optimizer's step in training."
    ),
]
Clock = Annotated[float | None, typer.Option(help="Graphics clock in MHz. Default: the GPU's own default.")]
Predictor = Annotated[
    str | None,
    typer.Option(help="A zoo name, the folder of an entry, or models:/NAME@ALIAS. Default: the best for the GPU."),
]
Execution = Annotated[
    str, typer.Option(help="How the model is run: eager, graph (as a CUDA graph), or compiled (by torch.compile).")
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="The machine that launches operations: a factor on the reference host's time, a name "
        "(`joulecast host --list`), or a profile that `joulecast host --out` wrote. Default: typical for the GPU.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the operations as CSV.")]
Top = Annotated[int, typer.Option(min=0, help="Number of operations to show; 0 for all.")]


def mode_of(training: bool, mode: str | None) -> str:
    """The mode that --training and --mode ask for; the library refuses an unknown one.

    Raises:
        InputError: They contradict each other.
    """
    if training and mode not in (None, "training"):
        raise InputError("two modes are asked for", given=f"--training --mode {mode}", hint="omit one of them")
    return "training" if training else mode or "inference"


def table(header: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Format a table with columns as wide as their longest cell; those in `right` are right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def refuse_both(as_json: bool, as_csv: bool) -> None:
    """Refuse two output formats at once.

    Raises:
        InputError: Both --json and --csv are set.
    """
    if as_json and as_csv:
        raise InputError("output is either JSON or CSV", given="--json --csv", hint="omit one of them")
