"""Options that `best` and `sweep` share, and the functions that parse them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..queries import Choice
    from ..queries.choice import LeftOut

Objective = Annotated[
    str,
    typer.Option(help="What to minimize: energy, time, edp, ed2p, energy_per_sample, time_per_sample, cost or carbon."),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpu", help="A GPU to compare; repeat it, or separate by commas. Default: the whole catalogue."),
]
Clocks = Annotated[
    str | None,
    typer.Option(
        "--clocks",
        "--clock",
        help="Clocks in MHz: 900,1200 or FIRST:LAST:STEP as in 600:1440:120. Default: up to 40 clocks of each GPU.",
    ),
]
Precisions = Annotated[
    list[str] | None,
    typer.Option("--precision", help="default, fp32, tf32, fp16 or bf16; repeat it, or separate by commas."),
]
PowerLimit = Annotated[
    float | None, typer.Option("--power-limit", help="Power cap in watts. Default: each board's own default.")
]
BatchSizes = Annotated[str | None, typer.Option("--batch-sizes", help="Batch sizes to compare, such as 1,8,32.")]
PricePerHour = Annotated[
    list[str] | None,
    typer.Option(
        "--price-per-hour",
        help="Price of an hour of every GPU (1.2) or of one (A30=0.7); repeat it, or separate by commas.",
    ),
]
PricePerKwh = Annotated[
    float | None, typer.Option("--price-per-kwh", help="Price of a kilowatt-hour, in the same currency.")
]
Carbon = Annotated[str | None, typer.Option(help="Grams of CO2 per kWh, or a country such as DE.")]

_NAMED, _LINES = 4, 8
"""Most GPUs that are named per line, and most lines, in the list of GPUs that were left out."""


def names(texts: list[str] | None) -> list[str] | None:
    """Split names that are repeated or separated by commas."""
    return [name.strip() for text in texts for name in text.split(",")] if texts else None


def clocks_mhz(text: str | None) -> list[float] | None:
    """Parse "900,1200", or "600:1440:120" (first, last, step).

    Raises:
        InputError: The text has neither form.
    """
    if text is None:
        return None
    try:
        if ":" in text:
            first, last, step = (float(part) for part in text.split(":"))
            if not (0 < first <= last and step > 0 and (last - first) / step < 10_000):
                raise ValueError
            return [first + i * step for i in range(int((last - first) / step + 1e-9) + 1)]
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            "clocks are a list of MHz, or first:last:step", given=repr(text), allowed="900,1200 or 600:1440:120"
        ) from error


def batch_sizes(text: str | None) -> list[int] | None:
    """Parse "1,8,32".

    Raises:
        InputError: The text is not a list of positive integers.
    """
    return None if text is None else positive_integers(text, "batch sizes")


def positive_integers(text: str, what: str) -> list[int]:
    """Parse "1,8,32".

    Args:
        text: Integers, separated by commas.
        what: What they are, for the error.

    Raises:
        InputError: The text is not a list of positive integers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+", part) for part in parts):
        raise InputError(f"{what} are positive integers", given=repr(text), allowed="such as 1,8,32")
    return [int(part) for part in parts]


PromptTokens = Annotated[
    str,
    typer.Option(help="Tokens of each prompt: 512; MEAN,DEVIATION such as 200,150; or the lengths of many requests."),
]
OutputTokens = Annotated[
    str, typer.Option(help="Tokens that are written for each prompt: 512; MEAN,DEVIATION; or many lengths.")
]


def lengths(text: str) -> int | list[float]:
    """Parse "512", "650,610" (mean and standard deviation) or the lengths of many requests.

    Raises:
        InputError: A part is no number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"-?\d+(\.\d+)?", part) for part in parts):
        raise InputError(
            "tokens are numbers", given=repr(text), allowed="such as 512; 650,610 for mean and standard deviation"
        )
    return int(parts[0]) if len(parts) == 1 and "." not in parts[0] else [float(part) for part in parts]


def price_per_hour(texts: list[str] | None) -> float | dict[str, float] | None:
    """Parse prices such as "1.2" for every GPU, or "A30=0.7,T4=0.35".

    Raises:
        InputError: A price is not a number.
    """
    if not texts:
        return None
    prices: dict[str, float] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, _, price = part.rpartition("=")
        try:
            prices[name.strip()] = float(price)
        except ValueError as error:
            raise InputError(
                "a price per hour is a number, or GPU=number", given=repr(part), allowed="such as 1.2 or A30=0.7"
            ) from error
    return prices


def clock_text(choice: Choice) -> str:
    """The clock that is set, and the lower clock that the GPU holds under its power cap, if it is lower."""
    held = f"{choice.held_clock_mhz:.0f}"
    return f"{choice.clock_mhz:g}" + ("" if choice.held_clock_mhz > choice.clock_mhz - 1 else f" (held {held})")


def left_out_lines(left_out: Iterable[LeftOut]) -> list[str]:
    """The GPUs that were left out: one line for each reason."""
    found = list(left_out)
    several_precisions = len({out.precision for out in found}) > 1
    several_batches = len({out.batch_size for out in found}) > 1
    by_reason: dict[str, list[str]] = {}
    for out in found:
        precision = f" in {out.precision}" if several_precisions else ""
        batch = f" at batch {out.batch_size}" if several_batches else ""
        by_reason.setdefault(out.reason, []).append(out.gpu + precision + batch)
    return reason_lines(by_reason)


def reason_lines(by_reason: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines of what was left out, from reason -> names."""
    lines = [f"left out: {', '.join(gpus[:_NAMED])}{_more(gpus)}: {why}" for why, gpus in by_reason.items()]
    return lines[:_LINES] + ([f"and {len(lines) - _LINES} more reasons"] if len(lines) > _LINES else [])


def _more(gpus: Sequence[str]) -> str:
    return f" and {len(gpus) - _NAMED} more" if len(gpus) > _NAMED else ""
