"""Texts of the command line as values: models, names, numbers, clocks, lengths and prices."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..extraction.own_file import own_model


def names(texts: list[str] | None) -> list[str] | None:
    """Split names that are repeated or separated by commas."""
    return [name.strip() for text in texts for name in text.split(",")] if texts else None


def clocks_mhz(text: str | None) -> list[float] | None:
    """Parse "900,1200", or "600:1440:120" (first, last, step). Raises InputError: The text has neither form."""
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


def positive_integers(text: str, what: str) -> list[int]:
    """Parse "1,8,32". Raises InputError: This is no list of positive integers; the error names `what` they are."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+", part) for part in parts):
        raise InputError(f"{what} are positive integers", given=repr(text), allowed="such as 1,8,32")
    return [int(part) for part in parts]


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
    """Parse prices such as "1.2" for every GPU, "A30=0.7,T4=0.35", a cloud, or a table "mine.csv,spot=0.5".

    Raises UnknownNameError, InputError: There is no such cloud, a price is no number, or the table cannot be read.
    """
    prices: dict[str, float] = {}
    tables, numbers = [], {}
    for part in (part for text in texts or () for part in text.split(",")):
        name, _, price = part.rpartition("=")
        try:
            numbers[name.strip()] = float(price)
        except ValueError as error:
            if name:
                raise InputError(
                    "a price per hour is a number, or GPU=number", given=repr(part), allowed="such as 1.2 or A30=0.7"
                ) from error
            tables.append(price.strip())
    spot_share = numbers.pop("spot", 0.0) if tables else 0.0
    for table in tables:
        from ..queries.prices import cloud_prices, read_prices

        prices |= (read_prices if "." in table or "/" in table else cloud_prices)(table, spot_share)
    return prices | numbers or None


def intensity(text: str) -> str | list[float]:
    """Parse grams of CO2 per kWh: a number, a place, or a file with a number for each hour.

    Raises:
        InputError: The file cannot be read, or has what is no number.
    """
    if not text.endswith((".csv", ".txt")):
        return text
    try:
        return [float(each) for each in Path(text).read_text(encoding="utf-8").replace(",", " ").split()]
    except (OSError, ValueError) as error:
        raise InputError(
            "the intensities of the hours cannot be read",
            given=f"{text}: {error}",
            allowed="numbers in g/kWh, in lines or separated by commas",
        ) from None


def model_and_options(text: str, options: list[str] | None) -> tuple[Any, dict[str, Any] | None]:
    """Turn the arguments into a model for `joulecast.predict`, and the options that remain for it.

    "my_file.py:Net" runs the user's own file and calls its Net with the options. The service never does that.

    Raises:
        InputError: An option has no value; or the file cannot be run, has no such name, or the model cannot be built.
    """
    return own_model(text, named_values(options, "an option of a model"))


def named_values(texts: list[str] | None, what: str) -> dict[str, Any]:
    """Parse name=value.

    Numbers, lists and booleans are read as in Python, all else is a text. Raises InputError: There is no name.
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"{what} is written as name=value", given=repr(text), allowed="NAME=VALUE")
        try:
            values[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            values[name] = value
    return values
