"""best_run: the GPUs, their number, clock, and division of work that train a model best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import InputError
from ..extraction import Job, network_of_job
from ..generation.parallel import boards_of, compared
from ..hardware import GPU
from ..hardware.host import Host
from ..operations.network import Network
from ..predictors.board.profile import profile_among
from ..predictors.networks.memory import MemoryNeed, shortage
from ..progress import paced
from ..queries.evaluation import held_clocks_mhz
from ..queries.ways import Search, Ways, asked_tariff
from ..rendering.answers import Table
from ..rendering.described import Column, quantity, word
from ..units import duration
from .layout import RECOMPUTES, SHARDINGS, Layout
from .predict import Training
from .run import Run, kilograms, kwh, money
from .state import State

if TYPE_CHECKING:
    from ..extraction.sources import InputShape, Model
    from ..predictors.board.profile import Calibrated

OBJECTIVES: Mapping[str, str] = {"energy": "wall_energy_j", "time": "time_s", "cost": "cost", "carbon": "carbon_kg"}
"""Name of an objective -> the quantity of a run that it is; the lowest is best."""

CLOCKS = 8
"""Clocks of each GPU that are compared unless others are asked for."""


def best_run(
    model: Model,
    input_shape: InputShape | None,
    *,
    objective: str = "energy",
    gpus: str | GPU | Iterable[str | GPU] | None = None,
    counts: Iterable[int] = (1, 8),
    clocks: Iterable[float] | None = None,
    samples: float | None = None,
    tokens: float | None = None,
    epochs: float = 1,
    precision: str = "default",
    lora: int | None = None,
    lora_targets: str | Sequence[str] | None = None,
    optimizer: str | None = "adamw",
    max_time_s: float | None = None,
    max_cost: float | None = None,
    power_limit_w: float | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    predictor: str | Path | None = None,
    model_options: Mapping[str, object] | None = None,
    price_per_hour: float | str | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | None = None,
    pue: float = 1.0,
    calibration: Calibrated | None = None,
) -> RunChoices:
    """Choose where and how to train: for each GPU and number of GPUs the best way that fits, best first.

    On each, all that replicas can divide among each other is compared, with the largest micro-batch that fits. What is
    computed again is compared only where its micro-batch is larger, since it takes longer otherwise.

    Args:
        model: As in `predict_run`.
        input_shape: Shape of the input of a step, batch first: of all GPUs and micro-batches together.
        objective: energy (at the plug), time, cost or carbon of the whole run; the lowest value is best.
        gpus: Names, aliases or files of GPUs, or "8x H100 SXM"; None for the whole catalogue.
        counts: Numbers of GPUs to compare, for names without a number.
        clocks: Graphics clocks in MHz, to choose from; None for eight of each GPU, its default among them.
        samples: Samples of the data, all of which an epoch passes through.
        tokens: Tokens of the data, in place of samples.
        epochs: Number of epochs.
        precision: As in `predict_run`, such as "bf16" or "amp".
        lora: Rank of low-rank adapters, beside which all parameters are frozen; None to train all.
        lora_targets: Names of the layers with adapters; None for those that peft chooses.
        optimizer: As in `joulecast.extract`, such as "adamw".
        max_time_s: Longest time of the run in seconds: its deadline.
        max_cost: Highest cost of the run, in the currency of the prices.
        power_limit_w: Power cap of a board in watts; None for each board's default.
        execution: How each GPU runs its part; see `joulecast.predict`.
        host: The machine that launches operations; see `joulecast.predict`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        model_options: Arguments of a model that is given by name, as in `joulecast.extract`.
        price_per_hour: Price of an hour of one GPU, or a mapping from GPU to price.
        price_per_kwh: Price of a kilowatt-hour, in the same currency.
        carbon: Intensity of the grid in grams of CO2 per kWh, or a country such as "DE": its yearly average.
        pue: Joules that the data centre draws for each joule of its servers, which price and carbon contain.
        calibration: What was measured on a board of one of the GPUs; see `joulecast.predict`. Others are predicted as
            usual.

    Raises:
        UnknownNameError: No such model, GPU, precision, objective, optimizer, country or predictor.
        InputError: A number that cannot be; or nothing fits and ends within the limits: the error says what is closest.
        ZooError, ExtractionError, UncoveredError, MissingDependencyError: See `joulecast.predict`.

    Examples:
        >>> ways = best_run("bert_base", (32, 128), samples=1e5, precision="bf16", gpus=["L4", "A30"], counts=[1])
        >>> [way.gpu for way in ways]
        ['NVIDIA A30', 'NVIDIA L4']
    """
    return best_of(network_of_job, locals())


class RunChoices(Ways[Run]):
    """The best way to train on each GPU and number of GPUs, best first; of a service, `rows` are these and the front.

    Attributes:
        objective: What was minimized, one of `OBJECTIVES`.
    """

    AIM = "to train"
    AXES = "time_s", "wall_energy_j", "time"

    objective: str

    def __new__(cls, rows: Iterable[Run], left_out: Mapping[str, str], objective: str) -> Self:
        """Choose the best of the rows for each GPU and number of GPUs.

        `left_out`: GPUs with their number -> the reason why none of the rows is of them.
        """
        made = super().__new__(cls, rows, left_out, lambda run: float(getattr(run, OBJECTIVES[objective])))
        made.objective = objective
        return made

    def _columns(self) -> list[Column]:
        first, aim = self[0], OBJECTIVES[self.objective]

        def behind(run: Run) -> str | None:
            chance = None if run is first else first.chance_below(run, aim)
            return None if chance is None else "> 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"

        return [
            word("GPUs", "boards"),
            quantity("clock MHz", "clock_mhz", "{:g}".format),
            Column(
                "micro-batch", lambda run: str(run.input_shape[0] // run.layout.replicas // run.layout.accumulation)
            ),
            Column("divided", lambda run: run.layout.sharding, right=False),
            Column("computed again", lambda run: run.layout.recompute, right=False),
            quantity("time", "time_s", duration),
            quantity("at the plug", "wall_energy_j", kwh),
            quantity("cost", "cost", money),
            quantity("carbon", "carbon_kg", kilograms),
            Column("behind the best", behind),
        ]

    @staticmethod
    def table_of(rows: Iterable[Run]) -> Table:
        """See `Ways`."""
        totals = ("clock_mhz", "time_s", "energy_j", "wall_energy_j", "cost", "carbon_kg", "memory_bytes")
        ways = [each.name for each in fields(Layout)]
        return Table(
            ("gpu", *ways, *totals),
            ([run.gpu, *vars(run.layout).values(), *(getattr(run, name) for name in totals)] for run in rows),
        )


def best_of(extract: Callable[[Job], Network], asked: Mapping[str, Any]) -> RunChoices:
    """Choose as `best_run` does, with networks from a given function."""
    objective = asked["objective"]
    asked_tariff(objective, OBJECTIVES, asked)
    limits = {name: asked[f"max_{name}"] for name in ("time_s", "cost") if asked[f"max_{name}"] is not None}
    needed = {OBJECTIVES[objective]: math.inf, **limits}
    clocks = None if asked["clocks"] is None else tuple(asked["clocks"])
    listed = compared(asked["gpus"], asked["counts"])
    profile = profile_among(asked.get("calibration"), (gpu.name for _, gpu in listed))
    training = Training.of(extract, {**asked, "calibration": None})
    # A model that cannot be extracted is refused at once.
    training.micro_batch(Layout(1, accumulation=Layout(1).micro_shape(training.job.input_shape)[0]))

    @cache
    def need(layout: Layout) -> MemoryNeed:
        return State.of(training.micro_batch(layout), layout).memory(compiled=training.job.execution == "compiled")

    def keeps(run: Run) -> bool:
        found = ((getattr(run, name), most) for name, most in needed.items())
        return all(value is not None and value <= most for value, most in found)

    search: Search[Run] = Search()
    seen: list[Run] = []
    for count, gpu in paced(listed):
        boards = boards_of(count, gpu)
        with search.trying(boards):
            job = replace(training.job, calibration=profile and profile.of_gpu(gpu.name))
            layouts = _layouts(count, gpu, training.job.input_shape, need)
            found = list(_ways(replace(training, job=job), layouts, gpu, clocks, OBJECTIVES[objective]))
            seen += found
            search.add(boards, filter(keeps, found))
            unknown = [name for name in needed if getattr(found[0], name) is None]
            reason = f"no {unknown[0]}: give its prices or intensity" if unknown else "outside a limit"
            search.leave(boards, f"{reason}; at best {_quickest(found)}")
    if search.rows:
        return RunChoices(search.rows, search.left_out, objective)
    if not seen:
        raise search.refuse("nothing trains this model so", None, "give other GPUs, counts or batches")
    lacking = [name for name in needed if all(getattr(run, name) is None for run in seen)]
    raise search.refuse(
        f"no {lacking[0]} is known of these ways" if lacking else "no way to train keeps these limits",
        f"the quickest is {min(seen, key=attrgetter('time_s')).boards}: {_quickest(seen)}",
        "give their prices, or an intensity" if lacking else "give more or other GPUs (gpus, counts), or wider limits",
        ", ".join(f"max_{name}={value:g}" for name, value in limits.items()) or None,
    )


def _ways(
    training: Training, layouts: Iterable[Layout], gpu: GPU, asked_clocks: Iterable[float] | None, quantity: str
) -> Iterator[Run]:
    """Runs on some GPUs: each layout at the default clock, and the best and the quickest at the other clocks."""
    clocks = held_clocks_mhz(gpu, asked_clocks, most=CLOCKS).tolist()
    usual = min(clocks, key=lambda clock: abs(clock - gpu.boost_clock_mhz))
    at_usual = [training.on(gpu, layout, usual) for layout in layouts]
    yield from at_usual
    known = getattr(at_usual[0], quantity) is not None
    ways = [min(at_usual, key=attrgetter(way)) for way in ("time_s", *([quantity] if known else []))]
    for layout in dict.fromkeys(run.layout for run in ways):
        yield from (training.on(gpu, layout, clock) for clock in clocks if clock != usual)


def _layouts(count: int, gpu: GPU, input_shape: Any, need: Callable[[Layout], MemoryNeed]) -> list[Layout]:
    """The layouts that fit, each with the largest micro-batch; one that computes more only if that is larger.

    `need`: The memory of each GPU in a layout. Raises InputError: none fits, or the batch cannot be divided so.
    """
    found: list[Layout] = []
    lacking = None
    batch = Layout(count).micro_shape(input_shape)[0]
    pieces = [number for number in range(1, batch + 1) if batch % number == 0]
    for sharding in SHARDINGS if count > 1 else SHARDINGS[:1]:
        fewer = pieces
        for recompute in RECOMPUTES:
            for accumulation in fewer:
                layout = Layout(count, accumulation=accumulation, sharding=sharding, recompute=recompute)
                lacking = shortage(need(layout), gpu)
                if lacking is None:
                    found.append(layout)
                    fewer = [number for number in pieces if number < accumulation]
                    break
    if not found:
        raise InputError(
            f"a micro-batch of one sample does not fit: each GPU {lacking}",
            given=boards_of(count, gpu),
            allowed="what the memory of each GPU holds",
            hint="give more GPUs, adapters (lora), or a smaller model",
        )
    return found


def _quickest(runs: Iterable[Run]) -> str:
    run = min(runs, key=attrgetter("time_s"))
    return duration(run.time_s) + ("" if run.cost is None else f" and {run.cost:,.2f}")
