"""Carbon intensity of electricity: grams of CO2 per kilowatt-hour, by country, region of a cloud, or hour."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..errors import InputError, unknown_name


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

    Args:
        value: A number; a number for each hour; or a country or a cloud's region of the table.

    Raises:
        InputError: A number is negative, or there is none.
        UnknownNameError: The table does not have the place.
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
