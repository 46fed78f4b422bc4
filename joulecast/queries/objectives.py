"""Objectives that choices are compared by, the lower the better; prices of GPU hours, and carbon of electricity."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..checked import in_range
from ..errors import InputError, named, unknown_name
from ..hardware import find_gpu
from ..hardware.catalogue import find_machine, machines
from ..units import number, si

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
        raise unknown_name("cloud with prices", cloud, names, hint="or a price for each GPU (`--prices FILE.csv`)")
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
            hint="give the path of such a file",
        ) from None
    strange = [name for name in header if name not in COLUMNS]
    if strange or not {"gpu", "price_per_hour"} <= set(header) or not rows:
        raise InputError(
            "the table of prices has an unknown column" if strange else "the table of prices lacks a column or rows",
            given=f"{path}: {', '.join(strange or header) or 'nothing'}",
            allowed=_COLUMNS,
            hint='required are "gpu" (a name, or a cloud\'s machine) and "price_per_hour"',
        )
    mixed: dict[str, float] = {}
    for row in rows:
        where, texts = f"{path}, {row['gpu']}", [row["price_per_hour"], row.get("spot_per_hour") or ""]
        try:
            prices = tuple(in_range("price", float(text)) for text in texts if text)
        except ValueError:
            what, hint = "a price in the table is no number of 0 or more", "correct this line"
            raise InputError(what, given=f"{where}: {texts}", allowed="such as 2.5", hint=hint) from None
        mixed[row["gpu"]] = _mixed(where, prices, spot_share)
    return mixed


def _mixed(what: str, prices: tuple[float, ...], spot_share: float) -> float:
    """The price of an hour, some of which are bought at the spot price."""
    in_range("spot_share", spot_share, high=1)
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
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return tuple(in_range("carbon", each) for each in value)
    return in_range("carbon", float(value) if isinstance(value, str) else value)


_S_PER_HOUR, _J_PER_KWH = 3600.0, 3.6e6


@dataclass(frozen=True)
class Tariff:
    """What an hour of a GPU, a kilowatt-hour and its generation cost."""

    # Full name of a GPU -> price of an hour; "" stands for all others. Empty where time is free.
    price_per_hour: Mapping[str, float]
    # Price of a kilowatt-hour; None where electricity is free or included in the price per hour.
    price_per_kwh: float | None = None
    # Carbon intensity of the grid, or that of each hour; None where carbon is not computed.
    carbon_g_per_kwh: float | tuple[float, ...] | None = None

    @classmethod
    def of(
        cls,
        price_per_hour: float | str | Mapping[str, float] | None,
        price_per_kwh: float | None,
        carbon: float | str | Sequence[float] | None,
    ) -> Tariff:
        """Check prices, and look up those of a cloud and the carbon intensity of a place.

        Raises InputError: a price or an intensity is negative or not a number. Raises UnknownNameError: there is no
        such GPU, cloud, country or region.
        """
        if isinstance(price_per_hour, str):
            price_per_hour = cloud_prices(price_per_hour)
        prices = {} if price_per_hour is None else price_per_hour
        if not isinstance(prices, Mapping):
            prices = {"": prices}
        by_gpu = {}
        for name, price in prices.items():
            machine = find_machine(name) if name else None
            by_gpu[find_gpu(name).name if name else ""] = in_range("price_per_hour", price) / (
                machine.boards if machine else 1
            )
        return cls(
            by_gpu,
            None if price_per_kwh is None else in_range("price_per_kwh", price_per_kwh),
            None if carbon is None else carbon_intensity(carbon),
        )

    @property
    def has_prices(self) -> bool:
        """Whether anything costs money."""
        return bool(self.price_per_hour) or self.price_per_kwh is not None

    def hourly(self, gpu: str) -> float | None:
        """Price of an hour of a GPU; None where other GPUs have a price but this one has none."""
        if not self.price_per_hour:
            return 0.0
        return self.price_per_hour.get(gpu, self.price_per_hour.get(""))

    def notes(self, gpu: str) -> tuple[str, ...]:
        """What prices and intensity a cost and its carbon are computed with, or that a price is missing."""
        hourly, grams = self.hourly(gpu), self.carbon_g_per_kwh
        paid = {"an hour of a GPU": hourly if self.price_per_hour else None, "a kWh": self.price_per_kwh}
        cost = "cost: " + " and ".join(f"{number(each)} for {what}" for what, each in paid.items() if each is not None)
        cost = f"no cost: no price of an hour of {gpu} is known" if hourly is None else cost
        emitted = (
            f"g CO2e for a kWh of {len(grams)} hours"
            if isinstance(grams, tuple)
            else f"{number(grams)} g CO2e for a kWh"
        )
        return (*((cost,) if self.has_prices else ()), *(() if grams is None else (f"carbon: {emitted}",)))

    def cost(self, time_s: Any, energy_j: Any, gpu: str) -> Any:
        """Price of iterations: rent of the GPU for their time plus their electricity; None where it is not known."""
        hourly = self.hourly(gpu)
        if not self.has_prices or hourly is None:
            return None
        return hourly * time_s / _S_PER_HOUR + (self.price_per_kwh or 0.0) * energy_j / _J_PER_KWH

    def carbon_g(self, energy_j: Any, time_s: float = math.inf) -> Any:
        """Grams of CO2 equivalent of some joules; None where the intensity is not known.

        Where each hour has an intensity, the energy is spread evenly over the time, which begins with the first hour;
        after the last hour of the table follows its first again.

        Args:
            energy_j: Joules.
            time_s: Seconds in which they are used; infinite for any time of the year.
        """
        if self.carbon_g_per_kwh is None:
            return None
        mean = self.carbon_g_per_kwh
        if isinstance(mean, tuple):
            hours, each = time_s / _S_PER_HOUR, mean
            rounds, left = divmod(hours, len(each)) if math.isfinite(hours) and hours > 0 else (1, 0.0)
            added = math.fsum(each[: int(left)]) + each[int(left)] * (left - int(left))
            mean = (rounds * math.fsum(each) + added) / (rounds * len(each) + left)
        return mean * energy_j / _J_PER_KWH


@dataclass(frozen=True)
class Objective:
    """A quantity to be minimized."""

    name: str
    words: str  # Description, such as "energy per sample"
    unit: str
    # Function from seconds and joules (numbers or arrays), a tariff and the full name of a GPU to its value; it grows
    # with seconds and joules, and is None where a price is missing.
    of: Callable[[Any, Any, Tariff, str], Any]
    quantity: str = ""  # The quantity of a choice and of its interval that it is, or is a share of
    per_sample: bool = False  # Whether it is of a sample, where others are of an iteration

    def value(self, time_s: Any, energy_j: Any, samples: int | None, tariff: Tariff, gpu: str) -> Any:
        """The value of an iteration; or of one of its samples, where their number is given or the name says so."""
        return self.of(time_s / (samples or 1), energy_j / (samples or 1), tariff, gpu)

    def text(self, value: float) -> str:
        """A value as text with its unit."""
        return si(value, self.unit) if self.unit else number(value)


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("energy", "energy", "J", lambda time_s, energy_j, *_: energy_j, "energy_j"),
        Objective("time", "time", "s", lambda time_s, energy_j, *_: time_s, "time_s"),
        Objective("edp", "EDP", "Js", lambda time_s, energy_j, *_: energy_j * time_s, "edp_js"),
        Objective("ed2p", "ED2P", "Js2", lambda time_s, energy_j, *_: energy_j * time_s**2),
        Objective(
            "energy_per_sample", "energy per sample", "J", lambda time_s, energy_j, *_: energy_j, "energy_j", True
        ),
        Objective("time_per_sample", "time per sample", "s", lambda time_s, energy_j, *_: time_s, "time_s", True),
        Objective("cost", "cost", "", lambda time_s, energy_j, tariff, gpu: tariff.cost(time_s, energy_j, gpu)),
        Objective("carbon", "carbon", "g", lambda time_s, energy_j, tariff, gpu: tariff.carbon_g(energy_j)),
    )
}
"""Name -> objective, for all objectives."""


def find_objective(name: str, tariff: Tariff, has_batch: bool) -> Objective:
    """Find an objective by name, and check that the prices or sizes that it needs are given."""
    objective = named("objective", name, OBJECTIVES)
    refuse_without(name, tariff)
    if objective.per_sample and not has_batch:
        raise InputError(
            f"the objective {name} needs a batch size",
            given="a list of operations without an input shape",
            hint="give a model and its input shape, batch first",
        )
    return objective


def refuse_without(objective: str, tariff: Tariff) -> None:
    """Refuse an objective without the prices or the intensity that it needs."""
    if objective == "cost" and not tariff.has_prices:
        raise InputError(
            "the objective cost needs prices",
            given="none",
            allowed="price_per_hour (a number, or one for each GPU), price_per_kwh, or both",
            hint='give yours, or those of a cloud: price_per_hour="AWS"',
        )
    if objective == "carbon" and tariff.carbon_g_per_kwh is None:
        raise InputError(
            "the objective carbon needs the carbon intensity of the grid",
            given="none",
            allowed="carbon: grams of CO2 per kWh, or a country such as DE",
            hint='give carbon="DE", say',
        )
