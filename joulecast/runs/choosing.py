"""best_run: the GPUs, their number, clock, and division of work that train a model best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import InputError
from ..extraction import Job, network_of_job
from ..generation.parallel import boards_of, compared
from ..hardware import GPU
from ..hardware.host import Host
from ..operations.network import Network
from ..predictors.board.profile import find_profile, profile_among
from ..predictors.networks.memory import MemoryNeed, shortage
from ..progress import paced
from ..queries.evaluation import clock_grid_mhz
from ..queries.ways import Search, Ways, asked_tariff
from ..rendering.answers import Table
from ..units import duration
from .layout import RECOMPUTES, SHARDINGS, Layout
from .predict import Training
from .run import Run
from .state import memory_of

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

    On each, what replicas divide among each other and what is computed again are tried in turn, each with the largest
    micro-batch that fits. A way that divides or computes more is compared only if its micro-batch is larger.

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
    listed = compared(asked["gpus"], asked["counts"])
    profile = profile_among(asked.get("calibration"), (gpu.name for _, gpu in listed))
    question = _Question(
        Training.of(extract, {**asked, "calibration": profile}),
        OBJECTIVES[objective],
        limits,
        None if asked["clocks"] is None else tuple(asked["clocks"]),
    )
    question.training.micro_batch(question.finest)  # A model that cannot be extracted is refused at once.
    search: Search[Run] = Search()
    seen: list[Run] = []
    for count, gpu in paced(listed):
        boards = boards_of(count, gpu)
        with search.trying(boards):
            found = list(question.on(gpu).ways(count, gpu))
            seen += found
            search.add(boards, [run for run in found if question.keeps(run)])
            search.leave(boards, question.why_not(found))
    if search.rows:
        return RunChoices(search.rows, search.left_out, objective)
    if not seen:
        raise search.refuse("nothing trains this model so", None, "give other GPUs, counts or batches")
    closest = min(seen, key=lambda run: run.time_s)
    raise search.refuse(
        "no way to train keeps these limits",
        f"the quickest is {closest.boards}: {_summary(closest)}",
        "give more or other GPUs (gpus, counts), or wider limits",
        ", ".join(f"max_{name}={value:g}" for name, value in limits.items()) or f"no {question.quantity}",
    )


@dataclass(frozen=True)
class _Question:
    """What does not depend on the GPU."""

    training: Training
    quantity: str  # The quantity of a run that should be low
    limits: Mapping[str, float]  # Name of a quantity of a run -> its highest value
    clocks: Sequence[float] | None  # Graphics clocks to choose from; None for those of `CLOCKS`
    memory: dict[Layout, MemoryNeed] = field(default_factory=dict)  # Memory of the layouts that were tried

    @property
    def finest(self) -> Layout:
        """One GPU, with micro-batches of one sample."""
        return Layout(1, accumulation=Layout(1).micro_shape(self.training.job.input_shape)[0])

    def on(self, gpu: GPU) -> _Question:
        """The question on one of the GPUs: a calibration is that of a single one."""
        job = self.training.job
        profile = find_profile(job.calibration)
        if profile is None or profile.of_gpu(gpu.name) is not None:
            return self
        return replace(self, training=replace(self.training, job=replace(job, calibration=None)))

    def ways(self, count: int, gpu: GPU) -> Iterator[Run]:
        """Runs on some GPUs: each layout at the default clock, and the best and the quickest at the other clocks.

        Raises InputError: nothing fits, or the batch cannot be divided so.
        """
        grid = clock_grid_mhz(gpu, CLOCKS) if self.clocks is None else map(gpu.checked_clock_mhz, self.clocks)
        clocks = [float(clock) for clock in grid]
        usual = min(clocks, key=lambda clock: abs(clock - gpu.boost_clock_mhz))
        at_usual = [self.training.on(gpu, layout, usual) for layout in self._layouts(count, gpu)]
        yield from at_usual
        chosen = [min(at_usual, key=self._value), min(at_usual, key=lambda run: run.time_s)]
        for layout in dict.fromkeys(run.layout for run in chosen):
            yield from (self.training.on(gpu, layout, clock) for clock in clocks if clock != usual)

    def keeps(self, run: Run) -> bool:
        """Whether a run has the quantity, and is within the limits."""
        return getattr(run, self.quantity) is not None and not self._beyond(run)

    def why_not(self, runs: Sequence[Run]) -> str:
        """Why none of these is within the limits."""
        if all(getattr(run, self.quantity) is None for run in runs):
            return f"no {self.quantity}: give its prices or intensity"
        return f"outside a limit: at best {_summary(min(runs, key=lambda run: run.time_s))}"

    def _beyond(self, run: Run) -> bool:
        found = {name: getattr(run, name) for name in self.limits}
        return any(value is None or value > self.limits[name] for name, value in found.items())

    def _value(self, run: Run) -> float:
        value = getattr(run, self.quantity)
        return float("inf") if value is None else float(value)

    def _layouts(self, count: int, gpu: GPU) -> list[Layout]:
        """The layouts that fit, each with the largest micro-batch; one that divides more only if that is larger."""
        found: list[Layout] = []
        lacking = None
        for sharding in SHARDINGS if count > 1 else SHARDINGS[:1]:
            for recompute in RECOMPUTES:
                for accumulation in self._accumulations(count):
                    if found and accumulation >= found[-1].accumulation:
                        break
                    layout = Layout(count, accumulation=accumulation, sharding=sharding, recompute=recompute)
                    lacking = shortage(self._memory(layout), gpu)
                    if lacking is None:
                        found.append(layout)
                        break
        if not found:
            raise InputError(
                f"a micro-batch of one sample does not fit: each GPU {lacking}",
                given=boards_of(count, gpu),
                hint="give more GPUs, adapters (lora), or a smaller model",
            )
        return found

    def _accumulations(self, count: int) -> list[int]:
        """Numbers of micro-batches that divide the batch of a replica, the fewest first."""
        batch = Layout(count).micro_shape(self.training.job.input_shape)[0]
        return [number for number in range(1, batch + 1) if batch % number == 0]

    def _memory(self, layout: Layout) -> MemoryNeed:
        if layout not in self.memory:
            compiled = self.training.job.execution == "compiled"
            self.memory[layout] = memory_of(self.training.micro_batch(layout), layout, compiled=compiled)
        return self.memory[layout]


def _summary(run: Run) -> str:
    cost = "" if run.cost is None else f" and {run.cost:,.2f}"
    return f"{duration(run.time_s)}{cost}"
