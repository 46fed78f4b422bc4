"""Arguments that several commands share, and tables as they print them."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InputError

Model = Annotated[
    str,
    typer.Argument(
        help="A model of torchvision, timm or transformers by name; a file: network, config.json, .pt2, .onnx; or a "
        "class or function in a Python file of yours, which is run: FILE.py:NAME."
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SHAPE]...",
        help="Input shape, batch first, such as 32,3,224,224. Several inputs: one after the other, or as name=shape.",
    ),
]
Training = Annotated[bool, typer.Option("--training", help="Forward and backward instead of inference.")]
Precision = Annotated[str, typer.Option(help="default, fp32, tf32, fp16 or bf16.")]
CacheLength = Annotated[int | None, typer.Option(help="Tokens that a transformer has cached: a step of decoding.")]
Clock = Annotated[float | None, typer.Option(help="Graphics clock in MHz; the GPU's default if left out.")]
Predictor = Annotated[
    str | None,
    typer.Option(help="A zoo name, the folder of an entry, or models:/NAME@ALIAS; the GPU's default if left out."),
]
Execution = Annotated[str, typer.Option(help="How it is run: eager, or graph (a CUDA graph).")]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="What launches operations: a factor of the reference host's time, a name (`joulecast host --list`), or a "
        "profile that `joulecast host --out` wrote.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the operations as CSV.")]
Top = Annotated[int, typer.Option(min=0, help="How many operations to show; 0 for all.")]


def table(header: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Columns as wide as they need to be; those in `right` are aligned to the right."""
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
    """Refuse two formats at once.

    Raises:
        InputError: Both are asked for.
    """
    if as_json and as_csv:
        raise InputError("output is either JSON or CSV", given="--json --csv", hint="leave one of them out")
