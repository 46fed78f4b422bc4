"""Campaigns: what to measure, and the plan of single measurements that follows from it."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..checked import is_number
from ..errors import InputError, unknown_name
from ..extraction.own_file import own_model
from ..extraction.sources import network_of
from ..operations.inputs import normalized_shape
from ..operations.operation import Operation, require_mode, require_precision
from ..operations.rules import Shape
from ..system.regular_files import MOST_BYTES, read_regular, refusing_damage
from ..system.resources import named_file

# Whether the time of a loop is proportional to its iterations: the check of Nicolai (Heidelberg 2025).
#
# Loops of many lengths are timed. A line is fitted to the logarithms of iterations over those of seconds, for the
# longest six sevenths of the loops. A loop whose iterations lie more than five standard deviations of these residuals
# off the line is an outlier. Loops longer than the longest outlier can be trusted.

LEAST_LENGTHS = 7
"""Least number of loop lengths for the check."""

_LEFT_OUT = 1 / 7
_SIGMAS = 5
_RANGE = 1000.0  # Ratio of the longest loop to the shortest.
_LEAST_DEVIATION = 1e-6  # Below it, residuals are rounding.


def lengths(number: int, seconds: float) -> list[float]:
    """Durations of the loops to time, in seconds: spaced evenly on a logarithmic scale, the longest last."""
    return np.geomspace(seconds / _RANGE, seconds, number).tolist() if number else []


def outliers_s(loops: Sequence[tuple[int, float]]) -> list[float]:
    """The seconds of loops whose time is not proportional to their iterations, ascending.

    `loops` are the iterations and seconds of each loop; there are at least `LEAST_LENGTHS`.
    """
    iterations, seconds = np.log10(np.array(sorted(loops, key=lambda loop: loop[1]), dtype=float)).T
    longest = slice(int(len(loops) * _LEFT_OUT), None)
    residuals = iterations - np.polyval(np.polyfit(seconds[longest], iterations[longest], 1), seconds)
    deviation = max(float(np.std(residuals[longest])), _LEAST_DEVIATION)
    found: list[float] = (10 ** seconds[np.abs(residuals) > _SIGMAS * deviation]).tolist()
    return found


# Extra time of a measurement: warm-up, making instances, and checking that time is proportional to iterations.
_OVERHEAD_S = 1.0


@dataclass(frozen=True)
class Subject:
    """A network whose operations are measured.

    Args:
        model: A torchvision classification model, the path of a network saved as JSON, or FILE.py:NAME for a class or
            function in a Python file of yours, which is run.
        input_shapes: Shapes to extract it at, batch first; none for a saved network.
    """

    model: str
    input_shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Campaign:
    """What to measure, and how.

    Args:
        seconds: Seconds that each measurement runs. Power sensors need about a second.
        clocks: Graphics clocks in MHz to lock, one after the other; None leaves the GPU's default.
        whole_networks: Whether to measure each named network as a whole, too. Predictions are compared with these, and
            the host cost inside a network is learned from them.
        three_sigma: Drop power readings more than three standard deviations from their mean, as Nicolai (2025) does.
        loop_lengths: Number of lengths of the loop, up to `seconds`, by which Nicolai's check decides whether time is
            proportional to iterations (`outliers_s`); 0 for one short loop instead.
        floor_s: Seconds that the measured loop must take at least; his floor is 0.1.
        second_log: Whether nvidia-smi logs the power as well during the whole campaign, as a check on the sensor.
    """

    subjects: tuple[Subject, ...]
    name: str = "campaign"
    modes: tuple[str, ...] = ("inference",)
    precisions: tuple[str, ...] = ("default",)
    seconds: float = 3.0
    repeats: int = 1
    seed: int = 0
    clocks: tuple[int | None, ...] = (None,)
    whole_networks: bool = False
    three_sigma: bool = False
    loop_lengths: int = 0
    floor_s: float = 0.0
    second_log: bool = False

    def __post_init__(self) -> None:
        if not self.subjects:
            raise InputError(
                "a campaign needs at least one network",
                given="no network",
                hint="add [[network]] with model and input_shapes",
            )
        for name, good, allowed in self._limits():
            if not good:
                what, given = f"{name} of a campaign is out of range", repr(getattr(self, name))
                raise InputError(what, given=given, allowed=allowed, hint=f"write another {name}, or leave it out")
        for mode in self.modes:
            require_mode(mode)
        for precision in self.precisions:
            require_precision(precision)

    def _limits(self) -> Iterator[tuple[str, bool, str]]:
        """Names of fields, whether each is within its limits, and these. Later ones build on earlier ones."""
        for name in ("modes", "precisions", "clocks"):
            value = getattr(self, name)
            yield name, isinstance(value, tuple) and bool(value), f"a list of at least one, such as {name} = [...]"
        good = all(clock is None or is_number(clock, 1, types=int) for clock in self.clocks)
        yield "clocks", good, 'MHz as an integer, or "default"'
        for name in ("whole_networks", "three_sigma", "second_log"):
            yield name, isinstance(getattr(self, name), bool), "true or false"
        yield "seconds", is_number(self.seconds, 0, 600) and self.seconds > 0, "above 0, at most 600"
        yield "floor_s", is_number(self.floor_s, 0, self.seconds), f"0 to seconds, which is {self.seconds:g}"
        good = not self.loop_lengths or is_number(self.loop_lengths, LEAST_LENGTHS, types=int)
        yield "loop_lengths", good, f"0, or an integer from {LEAST_LENGTHS}"
        for name, least in (("repeats", 1), ("seed", 0)):
            yield name, is_number(getattr(self, name), least, types=int), f"an integer from {least}"

    def to_dict(self) -> dict[str, Any]:
        """The campaign as plain lists and dictionaries, by which its journal is recognized."""
        value: dict[str, Any] = json.loads(json.dumps(asdict(self)))  # In JSON, as in a journal, tuples are lists.
        return value


@dataclass(frozen=True)
class Task:
    """One measurement to make: an operation, a clock, and the number of the repeat."""

    operation: Operation
    repeat: int
    clock_mhz: int | None = None

    @property
    def key(self) -> str:
        """The key by which a journal recognizes this measurement."""
        return f"{self.operation.digest}/{self.repeat}{_at(self.clock_mhz)}"


@dataclass(frozen=True)
class NetworkTask:
    """One measurement of a whole network."""

    model: str
    input_shape: Shape
    mode: str
    precision: str
    repeat: int
    clock_mhz: int | None = None

    @property
    def key(self) -> str:
        """The key by which a journal recognizes this measurement."""
        shape = "x".join(map(str, self.input_shape))
        return f"{self.model}/{shape}/{self.mode}/{self.precision}/{self.repeat}{_at(self.clock_mhz)}"


def _at(clock_mhz: int | None) -> str:
    return "" if clock_mhz is None else f"@{clock_mhz}"


def load_campaign(path: str | Path | None, options: Mapping[str, Any] | None = None) -> Campaign:
    """Read a campaign from a TOML file, from options, or from both.

    Raises InputError: the file cannot be read, or a value is out of range. Raises UnknownNameError: a key, mode or
    precision does not exist.

    Args:
        path: The file, or the name of a campaign that came with joulecast, such as "small"; None where the options are
            complete.
        options: Keys and values as in the file. They override those of the file.
    """
    values: dict[str, Any] = {}
    if path is not None:
        path = Path(named_file(path, "profiling", "campaign"))
        with refusing_damage("this campaign cannot be read", path):
            values = tomllib.loads(read_regular(path, MOST_BYTES, "this campaign").decode())
        values = {"name": path.stem, **values}
    with refusing_damage("a value of this campaign has the wrong type", Path(path or "options")):
        return _campaign({**values, **(options or {})})


def _campaign(values: dict[str, Any]) -> Campaign:
    networks = values.pop("network", [])
    if not isinstance(networks, list) or not all(isinstance(row, Mapping) for row in networks):
        raise InputError("networks of a campaign are tables", given=repr(networks)[:100], allowed="[[network]]")
    subjects = []
    for row in networks:
        _refuse_unknown("key of a network in a campaign", row, ["model", "input_shapes"])
        model, shapes = row.get("model"), row.get("input_shapes", [])
        if not isinstance(model, str):
            allowed = 'such as model = "resnet50"'
            raise InputError("a network of a campaign needs a model", given=repr(dict(row)), allowed=allowed)
        subjects.append(Subject(model, tuple(normalized_shape(shape) for shape in shapes)))
    known = [field.name for field in fields(Campaign) if field.name != "subjects"]
    _refuse_unknown("key of a campaign", values, [*known, "network"])
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    if isinstance(settings.get("clocks"), tuple):
        settings["clocks"] = tuple(None if clock == "default" else clock for clock in settings["clocks"])
    if subjects:
        settings.setdefault("name", ", ".join(dict.fromkeys(subject.model for subject in subjects)))
    return Campaign(tuple(subjects), **settings)


def _refuse_unknown(what: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in values:
        if key not in known:
            raise unknown_name(what, key, known)


def operations_of(campaign: Campaign) -> list[Operation]:
    """The unique operations of a campaign's networks, without identities.

    Raises JoulecastError: a network cannot be extracted.
    """
    found = []
    for subject in campaign.subjects:
        shapes = subject.input_shapes or (None,)
        for mode, precision, shape in product(campaign.modes, campaign.precisions, shapes):
            network = network_of(own_model(subject.model, {})[0], shape, mode=mode, precision=precision)
            found += [entry.operation for entry in network if not entry.operation.is_identity]
    return list(dict.fromkeys(found))


def plan(campaign: Campaign, limit: int | None = None, part: tuple[int, int] = (1, 1)) -> list[Task | NetworkTask]:
    """The measurements to make, in random order, so that a drift of the machine does not look like an effect of size.

    Clock by clock, everything is measured once before anything is repeated. Whole networks are spread evenly over the
    plan.

    Args:
        limit: Most operations and whole networks to measure, together; None for all. Whole networks are taken first.
        part: Which of how many equal parts of the plan, of which GPUs of one model measure one each.
    """
    operations = operations_of(campaign)
    networks = [
        # A network saved as JSON, which has no shapes, is a list of operations, and cannot be run as a whole.
        NetworkTask(subject.model, shape, mode, precision, repeat=0)
        for subject in (campaign.subjects if campaign.whole_networks else ())
        for shape, mode, precision in product(subject.input_shapes, campaign.modes, campaign.precisions)
    ]
    rng = random.Random(campaign.seed)  # noqa: S311 (an order, no secret)
    rng.shuffle(operations)
    if limit is not None:
        networks = networks[:limit]
        operations = operations[: limit - len(networks)]
    tasks: list[Task | NetworkTask] = []
    for repeat in range(campaign.repeats):
        for clock in campaign.clocks:
            once: list[Task | NetworkTask] = [Task(operation, repeat, clock) for operation in operations]
            once += [replace(network, repeat=repeat, clock_mhz=clock) for network in networks]
            rng.shuffle(once)
            tasks += once
    number, parts = part
    return tasks[number - 1 :: parts]


def duration_s(campaign: Campaign, tasks: int) -> float:
    """Estimate how many seconds the measurements take."""
    return tasks * (campaign.seconds + sum(lengths(campaign.loop_lengths, campaign.seconds)) + _OVERHEAD_S)
