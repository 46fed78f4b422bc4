"""Run: hours, joules at the boards and at the plug, price and carbon of a whole training run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from ..generation.intervals import Listed, normal_quantile
from ..generation.parallel import boards_of
from ..hardware import GPU
from ..operations.inputs import shape_to_json, titled
from ..predictors.networks.prediction import Prediction
from ..queries.objectives import Tariff
from ..rendering.answers import Answer, Table
from ..rendering.described import LEVEL, Description, Grid, Unit, totals
from ..rendering.pictures import Bar, Picture, bars
from ..units import duration, number, si
from .layout import Layout

# What a server draws at the plug: its boards, processors, memory, fans, adapters and conversion.

PER_BOARD_W = 1.15
"""Watts for each watt of the boards. Conversion takes 5 to 6 % (80 PLUS Titanium), fans and adapters the rest. A free
fit to MLPerf's servers gives 1.03, since their only one with boards of 700 W is immersed and has no fans. With 1.15,
eight air-cooled H100 at their cap come out at 7.4 kW; 7.75 kW were measured under intensive training (arXiv
2506.14551)."""

# Fitted to MLPerf's measured servers (benchmarks/NODES.md): watts of a server of two processors without its boards, and
# of one whose boards are all linked with each other, by switches on a baseboard of its own.
BASE_W, LINKED_W = 466.0, 512.0
PLUG_ERROR = 1.22
"""Factor within which nine of ten servers of vendors that were left out lie."""


def servers_w(gpu: GPU, layout: Layout) -> float:
    """Watts of the servers of a run without their boards; of one that others use as well, the share of its GPUs."""
    linked = gpu.link(layout.gpus_per_node) == "nvlink"
    return layout.gpus / layout.gpus_per_node * (BASE_W + LINKED_W * linked)


def wall_energy_j(time_s: float, boards_j: float, others_w: float) -> float:
    """Joules at the plugs of all servers of a run."""
    return others_w * time_s + PER_BOARD_W * boards_j


_COMPUTED = frozenset({"forward", "backward", "recomputing", "optimizer", "evaluation"})
_DATA, _STORING = "waiting for data", "checkpoints"
# Factor that 90 % of collectives lie within, where they were not measured in the same place: assumed.
_COLLECTIVES = 1.3
_SHARED = 0.5
"""Correlation of errors of the same network's time on two GPUs. For timm's networks it is 0.7 in inference, between RTX
3090, 4090 and 5090, looked at and held back (benchmarks/public/REPORT.md); others may have less in common."""
_LEAST = 1e-18  # In place of no width, where both wait for their data.
_WRITTEN = (
    *("precision", "samples", "epochs", "steps", "step_s", "time_s", "energy_j", "wall_energy_j", "cost", "carbon_kg"),
    *("pue", "samples_per_s", "tokens_per_s", "memory_bytes"),
)
_J_PER_KWH, _S_PER_HOUR, _G_PER_KG = 3.6e6, 3600.0, 1e3

Ends = tuple[float, float]


def kwh(joules: float) -> str:
    """Joules in kilowatt-hours."""
    return f"{number(joules / _J_PER_KWH)} kWh"


def kilograms(value: float) -> str:
    """Kilograms of carbon dioxide."""
    return f"{number(value)} kg CO2e"


money = "{:,.2f}".format
_TOTALS: tuple[tuple[str, str, Unit], ...] = (
    ("time", "time_s", duration),
    ("energy of the boards", "energy_j", kwh),
    ("energy at the plug", "wall_energy_j", kwh),
    ("cost", "cost", money),
    ("carbon", "carbon_kg", kilograms),
)


@dataclass(frozen=True)
class Part:
    """A part of a run.

    Args:
        name: Name of the part, such as "forward".
        time_s: Seconds of the run that it takes.
        energy_j: Joules of all boards.
    """

    name: str
    time_s: float
    energy_j: float


@dataclass(frozen=True)
class RunInterval(Listed):
    """The interval of each quantity, as (low, high); price and carbon are None if not known."""

    time_s: Ends
    energy_j: Ends
    wall_energy_j: Ends
    cost: Ends | None = None
    carbon_kg: Ends | None = None


@dataclass(frozen=True, repr=False)
class Run(Answer):
    """A whole training run: how long it takes, and what it draws and costs.

    Args:
        model: Name of the network.
        gpu: Full name of the GPU model.
        layout: How a step is divided over the GPUs.
        input_shape: Shape of the input of a step, over all GPUs and micro-batches.
        precision: Precision as it was asked for.
        samples: Samples of an epoch.
        epochs: Number of epochs.
        steps: Number of steps.
        parts: Seconds and joules of the boards by part; their sum is the run.
        micro: Prediction of one micro-batch.
        memory_bytes: Estimated device memory that each GPU needs.
        tariff: Prices and carbon intensity.
        pue: Joules of the data centre for each joule at the plug of a server.
        notes: Warnings about this prediction.
        embodied_g_per_hour: Grams of CO2 equivalent of making a GPU and its share of a server, for each hour of use.
        servers_w: Watts of its servers, or its share of one, without boards.
    """

    model: str
    gpu: str
    layout: Layout
    input_shape: tuple[int, ...]
    precision: str
    samples: float
    epochs: float
    steps: int
    parts: tuple[Part, ...]
    micro: Prediction = field(repr=False)
    memory_bytes: int
    tariff: Tariff
    pue: float = 1.0
    notes: tuple[str, ...] = ()
    embodied_g_per_hour: float = 0.0
    servers_w: float = BASE_W

    @property
    def boards(self) -> str:
        """The GPUs with their number, such as "8x NVIDIA H200"."""
        return boards_of(self.layout.gpus, self.gpu)

    @property
    def clock_mhz(self) -> float | None:
        """Graphics clock that was asked for in MHz."""
        return self.micro.clock_mhz

    @property
    def time_s(self) -> float:
        """Seconds of the whole run."""
        return math.fsum(part.time_s for part in self.parts)

    @property
    def energy_j(self) -> float:
        """Joules of all boards."""
        return math.fsum(part.energy_j for part in self.parts)

    @property
    def wall_energy_j(self) -> float:
        """Joules at the plugs of the servers: boards, processors, memory, fans, adapters and conversion."""
        return wall_energy_j(self.time_s, self.energy_j, self.servers_w)

    @property
    def cost(self) -> float | None:
        """Price of all GPUs and of the electricity; None where no prices were given, or none for this GPU."""
        return self._cost(self.time_s, self.wall_energy_j)

    @property
    def carbon_kg(self) -> float | None:
        """Kilograms of CO2 equivalent of the electricity and, if asked for, of making the GPUs; None without a grid."""
        return self._carbon_kg(self.time_s, self.wall_energy_j)

    @property
    def step_s(self) -> float:
        """Seconds of a step, with its share of what happens between steps."""
        return self.time_s / self.steps

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs."""
        return self.samples * self.epochs / self.time_s

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second of all GPUs; None where the input is not of the form (samples, tokens)."""
        return self.samples_per_s * self.input_shape[1] if len(self.input_shape) == 2 else None

    @property
    def shares(self) -> Mapping[str, float]:
        """Name of a part -> its share of the time."""
        return {part.name: part.time_s / self.time_s for part in self.parts}

    def interval(self, level: float = 0.9) -> RunInterval | None:
        """An interval around each quantity; None where no errors of such networks are known.

        What is computed has the interval of its network. What is sent and waited for is between 1/1.3 and 1.3 times
        itself (for 90 %). Both are taken to be wrong in the same direction. Storing takes what the bandwidth says, and
        where steps wait for data, quicker steps wait longer. At the plug, the errors of servers that were left out are
        added in squares.

        Args:
            level: Share of such runs that should lie within, above 0 and below 1.

        Raises:
            InputError: The level is not between 0 and 1, or too high for the number of networks.
        """
        around = self.micro.interval(level)
        if around is None or around.energy_j is None:
            return None
        ends: list[tuple[float | None, ...]] = []
        for sign, low_or_high_s, low_or_high_j in zip((-1, 1), around.time_s, around.energy_j, strict=True):
            computed = low_or_high_s / self.micro.time_s, low_or_high_j / self.micro.known_energy_j
            sent = _COLLECTIVES**sign, _COLLECTIVES**sign
            factors = {part.name: computed if part.name in _COMPUTED else sent for part in self.parts}
            factors |= dict.fromkeys((_DATA, _STORING), (1.0, 1.0))
            waited_s = math.fsum(part.time_s for part in self.parts if part.name == _DATA)
            if waited_s:
                steps = (part for part in self.parts if part.name not in (_DATA, _STORING, "evaluation"))
                longer_s = math.fsum(part.time_s * (factors[part.name][0] - 1) for part in steps)
                factors[_DATA] = (max(0.0, 1 - longer_s / waited_s),) * 2
            time_s = math.fsum(part.time_s * factors[part.name][0] for part in self.parts)
            joules = math.fsum(part.energy_j * factors[part.name][1] for part in self.parts)
            ratio = wall_energy_j(time_s, joules, self.servers_w) / self.wall_energy_j
            wall = self.wall_energy_j * math.exp(sign * math.hypot(math.log(ratio), math.log(PLUG_ERROR)))
            ends.append((time_s, joules, wall, self._cost(time_s, wall), self._carbon_kg(time_s, wall)))
        found: list[Any] = [None if None in each else each for each in zip(*ends, strict=True)]
        return RunInterval(level, *found)

    def chance_below(self, other: Run, quantity: str = "time_s") -> float | None:
        """Probability that a quantity of this run is below that of another one; None where an interval is not known.

        The errors of both are taken as normal in the logarithm, and those of the time of the same network as correlated
        by `_SHARED`.

        Args:
            other: Another way to train.
            quantity: time_s, energy_j, wall_energy_j, cost or carbon_kg.

        Raises:
            AttributeError: There is no such quantity.
        """
        intervals = [run._usual_interval for run in (self, other)]
        known = [(each.time_s, getattr(each, quantity)) for each in intervals if each]
        if len(known) < len(intervals) or None in dict(known).values():
            return None
        (time, half), (other_time, other_half) = ([math.log(high / low) / 2 for low, high in each] for each in known)
        shared = _SHARED * time * other_time if self.model == other.model else 0.0
        width = math.sqrt(max(_LEAST, half**2 + other_half**2 - 2 * shared))
        apart = math.log(getattr(other, quantity) / getattr(self, quantity))
        return NormalDist().cdf(apart * normal_quantile(LEVEL) / width)

    def supports(self, level: float) -> bool:
        """Whether enough errors are known for an interval of this level."""
        return self.micro.supports(level)

    def to_dict(self) -> dict[str, Any]:
        """The run as plain lists and dictionaries; quantities in SI units, price in the currency that was given."""
        interval = self._usual_interval
        return {
            "model": self.model,
            "gpu": self.gpu,
            "clock_mhz": self.clock_mhz,
            **vars(self.layout),
            "replicas": self.layout.replicas,
            "nodes": self.layout.nodes,
            "input_shape": shape_to_json(self.input_shape),
            **{name: getattr(self, name) for name in _WRITTEN},
            "interval": None if interval is None else interval.to_dict(),
            "parts": [{**vars(part), "share": part.time_s / self.time_s} for part in self.parts],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.layout.gpus}x {self.gpu}: {self.steps:,} steps, {duration(self.time_s)}, "
            f"{si(self.energy_j, 'J')} at the boards, {kwh(self.wall_energy_j)} at the plug"
        )

    def described(self) -> Description:
        """What a terminal and a notebook show: totals with intervals, and the parts."""
        rate = "" if self.tokens_per_s is None else f", {self.tokens_per_s:,.0f} tokens/s"
        parts = [
            [part.name, duration(part.time_s), f"{100 * part.time_s / self.time_s:.1f} %", si(part.energy_j, "J")]
            for part in self.parts
        ]
        return Description(
            f"{titled(self.model, self.input_shape)}, {self.precision}, on {self.layout.gpus}x {self.gpu}\n"
            f"{self.steps:,} steps of {si(self.step_s, 's')}, {number(self.samples_per_s)} samples/s{rate}",
            [
                totals(self, self._usual_interval, _TOTALS),
                Grid(["part", "time", "share", "boards"], parts, {1, 2, 3}),
                f"memory needed on each GPU: {si(self.memory_bytes, 'B')}",
            ],
            self.notes,
        )

    @property
    def _usual_interval(self) -> RunInterval | None:
        return self.interval(LEVEL) if self.supports(LEVEL) else None

    def _picture(self) -> Picture:
        items = [
            Bar(part.name, part.time_s, f"{duration(part.time_s)}, {si(part.energy_j, 'J')}") for part in self.parts
        ]
        return Picture(bars(items, f"Time and energy of the boards: {self.model} on {self.layout.gpus}x {self.gpu}"))

    def _table(self) -> Table:
        header = ("part", "time_s", "energy_j", "share")
        return Table(header, [(p.name, p.time_s, p.energy_j, p.time_s / self.time_s) for p in self.parts])

    def _cost(self, time_s: float, wall_energy_j: float) -> float | None:
        found: float | None = self.tariff.cost(time_s * self.layout.gpus, wall_energy_j * self.pue, self.gpu)
        return found

    def _carbon_kg(self, time_s: float, wall_energy_j: float) -> float | None:
        grams: float | None = self.tariff.carbon_g(wall_energy_j * self.pue, time_s)
        made = self.layout.gpus * time_s / _S_PER_HOUR * self.embodied_g_per_hour
        return None if grams is None else (grams + made) / _G_PER_KG
