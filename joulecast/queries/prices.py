"""Prices of GPU hours: tables that users write, and the list prices of clouds (hardware/clouds.toml)."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from ..errors import InputError, unknown_name
from ..hardware import find_gpu
from ..hardware.clouds import machines

COLUMNS = ("gpu", "price_per_hour", "spot_per_hour", "date", "source")
"""Columns of a table of prices. The first two are required; the last two are for people."""
_COLUMNS = ", ".join(f'"{name}"' for name in COLUMNS)


def cloud_prices(cloud: str, spot_share: float = 0.0) -> dict[str, float]:
    """The list prices of a cloud: full name of a GPU -> price of an hour of one, in its cheapest machine.

    Raises UnknownNameError: the prices of such a cloud are not known. Raises InputError: the share is not between 0 and
    1, or no spot prices are known.

    Args:
        cloud: Name of the cloud, such as "AWS".
        spot_share: Share of the hours for which machines are rented at the spot price.
    """
    priced = [each for each in machines().values() if each.usd_per_hour]
    own = [each for each in priced if each.cloud.lower() == cloud.lower()]
    if not own:
        names = sorted({each.cloud for each in priced})
        raise unknown_name("cloud with prices", cloud, names, hint="give a table: --prices FILE.csv")
    found: dict[str, float] = {}
    for machine in own:
        if not spot_share or len(machine.usd_per_hour) > 1:
            price = _mixed(machine.name, machine.usd_per_hour, spot_share) / machine.boards
            gpu = find_gpu(machine.gpu).name
            found[gpu] = min(found.get(gpu, price), price)
    return found


def read_prices(path: str | Path, spot_share: float = 0.0) -> dict[str, float]:
    """Read a table of prices: a CSV file with the columns gpu and price_per_hour.

    Returns name as in the file -> price of an hour, as `price_per_hour` of all functions takes it. Raises InputError:
    the file cannot be read, or has an unknown column, no rows, or a price that is no number.

    Args:
        path: The file. A machine of a cloud may stand in the column gpu; its price is that of all its boards.
        spot_share: Share of the hours at the price in the column spot_per_hour.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            header, rows = tuple(table.fieldnames or ()), list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            "the table of prices cannot be read",
            given=f"{path}: {error}",
            allowed=f"a CSV file with the columns {_COLUMNS}, or a cloud such as AWS",
        ) from None
    strange = [name for name in header if name not in COLUMNS]
    if strange or not {"gpu", "price_per_hour"} <= set(header) or not rows:
        raise InputError(
            "the table of prices has an unknown column" if strange else "the table of prices lacks a column or rows",
            given=f"{path}: {', '.join(strange or header)}",
            allowed=_COLUMNS,
            hint='required are "gpu" (a name, or a cloud\'s machine) and "price_per_hour"',
        )
    return {row["gpu"]: _mixed(f"{path}, {row['gpu']}", _prices(path, row), spot_share) for row in rows}


def _prices(path: str | Path, row: dict[str, str]) -> tuple[float, ...]:
    texts = [row["price_per_hour"], row.get("spot_per_hour") or ""]
    try:
        return tuple(float(text) for text in texts if text)
    except ValueError:
        raise InputError(
            "a price in the table is no number", given=f"{path}, {row['gpu']}: {texts}", allowed="such as 2.5"
        ) from None


def _mixed(what: str, prices: tuple[float, ...], spot_share: float) -> float:
    """The price of an hour, some of which are bought at the spot price."""
    if not 0 <= spot_share <= 1:
        raise InputError("the share of spot hours is out of range", given=spot_share, allowed="from 0 to 1")
    if len(prices) < 1 + (spot_share > 0):
        raise InputError(
            "a spot price is missing", given=what, allowed="a spot price for each machine", hint="leave the share out"
        )
    return (1 - spot_share) * prices[0] + spot_share * prices[-1]


# Carbon intensity of electricity: grams of CO2 per kilowatt-hour, by country, region of a cloud, or hour.


@dataclass(frozen=True)
class Grid:
    """Electricity of a country or of a place, averaged over a year."""

    code: str  # ISO 3166-1 alpha-2, WORLD, or the name of a cloud's region
    name: str  # Name of the country or place
    carbon_g_per_kwh: float  # Grams of CO2 equivalent per kilowatt-hour
    year: int
    source: str  # Publication that the figure is from


@cache
def grids() -> Mapping[str, Grid]:
    """All countries and regions of the table by their codes."""
    content = tomllib.loads(files(__package__).joinpath("carbon.toml").read_text(encoding="utf-8"))
    found = {
        code: Grid(code, row["name"], float(row["g_per_kwh"]), part["year"], part["source"])
        for part in (content["countries"], content["regions"])
        for code, row in part["grids"].items()
    }
    return found | {code: found[like] for code, like in content["alike"].items()}


def carbon_intensity(value: float | str | Sequence[float]) -> float | tuple[float, ...]:
    """Grams of CO2 equivalent per kilowatt-hour: a number, one for each hour, or the yearly average of a place.

    Raises InputError: a number is negative, or there is none. Raises UnknownNameError: the table does not have the
    place.

    Args:
        value: A number; a number for each hour; or a country or a cloud's region of the table.
    """
    if isinstance(value, str) and not value.replace(".", "").isdigit():
        by_code = grids()
        by_name = {grid.name.lower(): grid for grid in by_code.values()}
        found = by_code.get(value.upper()) or by_code.get(value.lower()) or by_name.get(value.lower())
        if found is None:
            raise unknown_name("country or region in the table of grids", value, by_code, hint="give grams per kWh")
        return found.carbon_g_per_kwh
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(_number, value)) or _number(value)
    return _number(float(value) if isinstance(value, str) else value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(
            "the carbon intensity of a grid is a number of at least 0, in g/kWh, or one for each hour",
            given=repr(value)[:60],
            allowed="such as 381, [300, 250, ...], a country such as DE, or a cloud's region such as eu-north-1",
        )
    return float(value)
