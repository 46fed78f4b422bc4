"""Arguments that several commands share, and how to read and print them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..operations import Operation

Model = Annotated[
    str,
    typer.Argument(help="A model of torchvision, timm or transformers by name; or a file: network, config.json."),
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the operations as CSV.")]
Top = Annotated[int, typer.Option(min=0, help="How many operations to show; 0 for all.")]


def parse_shapes(texts: list[str] | None) -> Any:
    """Read one shape, several, or several by name ("input_ids=8,128").

    Raises:
        InputError: A text is no shape, or only some have a name.
    """
    if not texts:
        return None
    named = [text.partition("=") for text in texts if "=" in text]
    if not named:
        shapes = [parse_shape(text) for text in texts]
        return shapes[0] if len(shapes) == 1 else shapes
    if len(named) < len(texts) or len({name for name, _, _ in named}) < len(named):
        raise InputError(
            "inputs go by name or by position", given=" ".join(texts), allowed="each name once, or no names"
        )
    return {name.strip(): parse_shape(text) for name, _, text in named}


def parse_shape(text: str) -> tuple[int, ...]:
    """Read a shape such as "32,3,224,224" or "32x3x224x224".

    Raises:
        InputError: The text is no list of positive integers.
    """
    parts = re.split(r"\s*[,x]\s*", text.strip(" ()[]"))
    if not all(re.fullmatch(r"\d+", part) for part in parts) or any(int(part) < 1 for part in parts):
        raise InputError("a shape is a list of positive integers", given=repr(text), allowed="such as 32,3,224,224")
    return tuple(map(int, parts))


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


def operation_text(operation: Operation) -> str:
    """Short, but enough to tell the operations of a network apart."""
    shapes = ["x".join(map(str, shape)) for shape in operation.input_shapes]
    out = "x".join(map(str, operation.output_shape))
    names: dict[str, Any] = {"kernel_size": "k", "stride": "s", "groups": "g"}
    details = " ".join(
        f"{short}{operation.attributes[name]}"
        for name, short in names.items()
        if name in operation.attributes and operation.attributes[name] not in (1, None)
    )
    inputs = f"{len(shapes)} inputs" if len(shapes) > 3 else ", ".join(shapes)
    change = out if set(shapes) == {out} else f"{inputs} -> {out}"
    return f"{operation.kind} {change}" + (f" {details}" if details else "") + f" {operation.precision}"
