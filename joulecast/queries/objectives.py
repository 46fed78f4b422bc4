"""Objectives that choices are compared by. The lower an objective, the better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError, unknown_name
from ..hardware import find_gpu
from ..hardware.clouds import find_machine
from ..units import number, si
from .prices import carbon_intensity, cloud_prices

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
        if price_per_hour is None:
            by_gpu: dict[str, float] = {}
        elif isinstance(price_per_hour, Mapping):
            by_gpu = {
                find_gpu(name).name if name else "": _not_negative("price per hour", price) / _boards(name)
                for name, price in price_per_hour.items()
            }
        else:
            by_gpu = {"": _not_negative("price per hour", price_per_hour)}
        return cls(
            by_gpu,
            None if price_per_kwh is None else _not_negative("price per kWh", price_per_kwh),
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
        return _mean(self.carbon_g_per_kwh, time_s / _S_PER_HOUR) * energy_j / _J_PER_KWH


def _mean(intensity: float | tuple[float, ...], hours: float) -> float:
    """The mean of an intensity over so many hours."""
    if not isinstance(intensity, tuple):
        return intensity
    rounds, left = divmod(hours, len(intensity)) if math.isfinite(hours) and hours > 0 else (1, 0.0)
    whole = int(left)
    added = math.fsum(intensity[:whole]) + intensity[whole] * (left - whole)
    return (rounds * math.fsum(intensity) + added) / (rounds * len(intensity) + left)


def _boards(name: str) -> int:
    """Number of GPUs that a price is for: those of a cloud's machine, or one."""
    machine = find_machine(name)
    return 1 if machine is None else machine.boards


def _not_negative(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"a {what} is a number of at least 0", given=repr(value), allowed="such as 1.5")
    return float(value)


@dataclass(frozen=True)
class Job:
    """What an objective may depend on besides time and energy."""

    gpu: str  # Full name of the GPU
    batch_size: int | None  # Samples per iteration; None where it is not known
    tariff: Tariff
    per_sample: bool = False  # Whether values are per sample, because iterations of different batch sizes are compared


@dataclass(frozen=True)
class Objective:
    """A quantity to be minimized."""

    name: str
    words: str  # Description, such as "energy per sample"
    unit: str
    # Function from seconds and joules (numbers or arrays) to its value; it grows with both.
    of: Callable[[Any, Any, Job], Any]

    def value(self, time_s: Any, energy_j: Any, job: Job) -> Any:
        """The value of an iteration, or per sample where the job says so; None where a price is missing."""
        if job.per_sample and job.batch_size is not None:
            time_s, energy_j = time_s / job.batch_size, energy_j / job.batch_size
            job = replace(job, batch_size=1)
        return self.of(time_s, energy_j, job)

    def text(self, value: float) -> str:
        """A value as text with its unit."""
        return si(value, self.unit) if self.unit else number(value)


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("energy", "energy", "J", lambda time_s, energy_j, job: energy_j),
        Objective("time", "time", "s", lambda time_s, energy_j, job: time_s),
        Objective("edp", "EDP", "Js", lambda time_s, energy_j, job: energy_j * time_s),
        Objective("ed2p", "ED2P", "Js2", lambda time_s, energy_j, job: energy_j * time_s**2),
        Objective(
            "energy_per_sample", "energy per sample", "J", lambda time_s, energy_j, job: energy_j / job.batch_size
        ),
        Objective("time_per_sample", "time per sample", "s", lambda time_s, energy_j, job: time_s / job.batch_size),
        Objective("cost", "cost", "", lambda time_s, energy_j, job: job.tariff.cost(time_s, energy_j, job.gpu)),
        Objective("carbon", "carbon", "g", lambda time_s, energy_j, job: job.tariff.carbon_g(energy_j)),
    )
}
"""Name -> objective, for all objectives."""


def find_objective(name: str, tariff: Tariff, has_batch: bool) -> Objective:
    """Find an objective by name, and check that the prices or sizes that it needs are given."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    refuse_without(name, tariff)
    if name.endswith("_per_sample") and not has_batch:
        raise InputError(
            f"the objective {name} needs a batch size",
            given="a list of operations without an input shape",
            hint="give a model and its input shape, batch first",
        )
    return OBJECTIVES[name]


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
        )
