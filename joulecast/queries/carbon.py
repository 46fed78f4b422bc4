"""Carbon intensity of electricity: grams of CO2 per kilowatt-hour, by country."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..errors import InputError, unknown_name


@dataclass(frozen=True)
class Grid:
    """Electricity of a country, averaged over a year.

    Args:
        code: ISO 3166-1 alpha-2, or WORLD.
        name: Name of the country.
        carbon_g_per_kwh: Grams of CO2 equivalent per kilowatt-hour generated, life cycle.
        year: Year of the average.
        source: Publication that the figure is from.
    """

    code: str
    name: str
    carbon_g_per_kwh: float
    year: int
    source: str


@cache
def grids() -> Mapping[str, Grid]:
    """All countries of the table by their codes."""
    content = tomllib.loads(files(__package__).joinpath("carbon.toml").read_text(encoding="utf-8"))
    year, source = content["year"], content["source"]
    return {
        code: Grid(code, row["name"], float(row["g_per_kwh"]), year, source) for code, row in content["grids"].items()
    }


def carbon_intensity(value: float | str) -> float:
    """Grams of CO2 equivalent per kilowatt-hour: a number, or the yearly average of a country.

    Args:
        value: A number, or the code or name of a country in the table.

    Raises:
        InputError: The number is negative.
        UnknownNameError: The table does not have the country.
    """
    if isinstance(value, str) and not value.replace(".", "").isdigit():
        by_code = grids()
        by_name = {grid.name.lower(): grid for grid in by_code.values()}
        found = by_code.get(value.upper()) or by_name.get(value.lower())
        if found is None:
            raise unknown_name("country in the table of grids", value, by_code, hint="give grams of CO2 per kWh")
        return found.carbon_g_per_kwh
    value = float(value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(
            "the carbon intensity of a grid is a number of at least 0, in g/kWh",
            given=repr(value),
            allowed="such as 381, or a country such as DE",
        )
    return float(value)
