"""Public functions that compare GPUs and clocks: best and sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..extraction import Job
from ..hardware import GPU
from ..hardware.host import Host
from ..predictors.board.profile import Calibrated
from ..queries import Choices, Question, Sweep
from ..queries import best as best_of
from ..queries import sweep as sweep_of
from ..queries.objectives import Tariff
from ..queries.search import Constraints

if TYPE_CHECKING:
    from ..extraction.conversions import CustomOperators
    from ..extraction.job import Assume
    from ..extraction.sources import InputShape, Model


def best(
    model: Model,
    input_shape: InputShape | None = None,
    *,
    objective: str = "energy",
    gpus: str | GPU | Iterable[str | GPU] | None = None,
    clocks: float | Iterable[float] | None = None,
    power_limit_w: float | None = None,
    mode: str = "inference",
    precision: str | Sequence[str] = "default",
    batch_sizes: Iterable[int] | None = None,
    cache_length: int | None = None,
    optimizer: str | None = None,
    predictor: str | Path | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    max_time_s: float | None = None,
    max_power_w: float | None = None,
    price_per_hour: float | str | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | None = None,
    operators: CustomOperators | None = None,
    assume: Assume | None = None,
    model_options: Mapping[str, object] | None = None,
) -> Choices:
    """Choose the GPU and the clock for a job: the best clock of each GPU, precision and batch size, best first.

    GPUs that lack the precision or the memory are left out; the list that is returned names them in `left_out`.

    Args:
        model: A name, module, configuration, file, Network or list of operations, as `extract` takes it.
        input_shape: Shape of the input, batch first, or of several inputs.
        objective: Quantity to minimize: energy, time, edp, ed2p, energy_per_sample, time_per_sample, cost or carbon.
        gpus: Names, aliases or files of GPUs; None for the whole catalogue.
        clocks: Graphics clocks in MHz; None for at most 40 that the GPU can hold, its default among them.
        power_limit_w: Power cap in watts; None for each board's default.
        mode: inference or training.
        precision: One, or several to choose from.
        batch_sizes: First sizes of the input to choose from instead of its own. Several are compared per sample,
            whatever the objective; the deadline and the power budget stay those of an iteration.
        cache_length: Tokens that a transformer has cached.
        optimizer: "adamw" or another, to include its step in a training iteration, as in `extract`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for each GPU's default.
        execution: How it is run; see `predict`.
        host: The machine that launches operations; see `predict`.
        calibration: What was measured on a board of one of the GPUs; see `predict`. Others are predicted as usual.
        max_time_s: Deadline of an iteration.
        max_power_w: Mean board power over an iteration.
        price_per_hour: Price of an hour of any GPU, a mapping from GPU to price, or a cloud ("AWS"): its list prices.
            GPUs without a price are left out. That of a cloud's machine ("p5.48xlarge") is divided by its GPUs.
        price_per_kwh: Price of a kilowatt-hour of electricity, in the same currency.
        carbon: Intensity of the grid in grams of CO2 per kWh, or a country such as "DE": its yearly average.
        operators: Your own operators, as in `extract`.
        assume: Assumptions about values of the input, as in `extract`.
        model_options: Arguments of a model that is given by name, as in `extract`.

    Raises:
        UnknownNameError: There is no such model, GPU, mode, precision, objective, country or predictor.
        InputError: A clock that a named GPU cannot hold, a negative price, an objective without what it needs; no GPU
            has the precision or the memory; or no choice meets the constraints (the message names the constraint and
            the nearest choice).
        ZooError, ExtractionError, MissingDependencyError: See `predict`.

    Examples:
        >>> best("resnet50", (32, 3, 224, 224), gpus=["A30", "T4"])[0].gpu
        'NVIDIA A30'
    """
    tariff = Tariff.of(price_per_hour, price_per_kwh, carbon)
    question = Question.of(Job.of(locals()), gpus, clocks, batch_sizes, precision)
    return best_of(question, objective, tariff, Constraints(max_time_s, max_power_w))


def sweep(
    model: Model,
    input_shape: InputShape | None = None,
    *,
    objective: str = "energy",
    gpus: str | GPU | Iterable[str | GPU] | None = None,
    clocks: float | Iterable[float] | None = None,
    power_limit_w: float | None = None,
    mode: str = "inference",
    precision: str | Sequence[str] = "default",
    batch_sizes: Iterable[int] | None = None,
    cache_length: int | None = None,
    optimizer: str | None = None,
    predictor: str | Path | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    price_per_hour: float | str | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | None = None,
    operators: CustomOperators | None = None,
    assume: Assume | None = None,
    model_options: Mapping[str, object] | None = None,
) -> Sweep:
    """Predict a job on GPUs over their clocks: a table, its Pareto front, and plots.

    The arguments are those of `best`. The objective is the value of each row, and plots mark its optimum.

    Raises:
        UnknownNameError, InputError, ZooError, ExtractionError, MissingDependencyError: See `best`.

    Examples:
        >>> sweep("resnet50", (32, 3, 224, 224), gpus="A30").best().clock_mhz
        1020.0
    """
    tariff = Tariff.of(price_per_hour, price_per_kwh, carbon)
    question = Question.of(Job.of(locals()), gpus, clocks, batch_sizes, precision)
    return sweep_of(question, objective, tariff)
