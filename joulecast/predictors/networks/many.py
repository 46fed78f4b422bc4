"""Totals of many networks at once, for a search over architectures.

The candidates of a search share most of their operations, so each different operation is predicted only once. Only
totals are computed, as arrays over all networks, and intervals if they are asked for. For notes and the cost of each
operation, call `predict` on the few best candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, front_of
from ...errors import InputError, UncoveredError
from ...operations.columns import Calls
from ...progress import paced
from ...rendering.answers import Answer, Table
from ...rendering.pictures import Picture, front_picture
from ..intervals.conformal import conformal_rank
from ..intervals.network_calibration import Interval
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from ..physics.power_cap import Jobs
from .composition import composed
from .parts import part_factors
from .predictor import AtClock, NetworkPredictor
from .prepared import PreparedNetwork, over_gpus

Item = TypeVar("Item")

_DOTS = 2_000  # Networks in a picture.
_AT_ONCE = 1_000  # Networks whose operations are predicted together: enough to share most, few enough for memory.
_WHERE = ("gpu", "clock_mhz")
_TOTALS = ("time_s", "energy_j", "device_time_s", "host_time_s", "held_clock_mhz", "uncovered_share")
_COLUMNS = ("time_s", "power_w", "energy_j", "edp_js", "device_time_s", "host_time_s", "held_clock_mhz")


@dataclass(frozen=True, repr=False)
class NetworkPredictions(Answer):
    """Totals of networks, as arrays with one value per row; NaN where there is no total.

    A row is a network. Where several GPUs or clocks are asked for, it is a network on one of these GPUs at one of these
    clocks: first all rows of the first network, GPU by GPU.

    Args:
        names: Name of each row's network.
        gpu: Full name of the GPU; where several GPUs or clocks are asked for, that of each row, as with the next three.
        clock_mhz: Requested graphics clock in MHz.
        power_limit_w: Power cap in watts.
        predictor: Name of the zoo entry that predicted.
        time_s: Seconds per iteration.
        energy_j: Joules per iteration.
        device_time_s, host_time_s: Seconds that GPU and host need per iteration; the larger decides the time.
        held_clock_mhz: Graphics clock that the GPU settles at.
        uncovered_share: Share of each network's FLOPs or bytes that the totals lack; NaN where it is not known.
        problems: Why a row has no total; empty where it has one.
        intervals: Interval of each row, None where no errors are known; empty where none were asked for.
    """

    names: tuple[str, ...]
    gpu: str | tuple[str, ...]
    clock_mhz: float | FloatArray
    power_limit_w: float | FloatArray
    predictor: str | tuple[str, ...]
    time_s: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    host_time_s: FloatArray
    held_clock_mhz: FloatArray
    uncovered_share: FloatArray
    problems: tuple[str, ...]
    intervals: tuple[Interval | None, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[NetworkPredictions]) -> NetworkPredictions:
        """Predictions for several groups of networks as one, in their order."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            each = [getattr(part, field.name) for part in parts]
            if isinstance(each[0], np.ndarray):
                values[field.name] = np.concatenate(each)
            elif isinstance(each[0], tuple):
                values[field.name] = tuple(chain.from_iterable(each))
        return replace(parts[0], **values)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def power_w(self) -> FloatArray:
        """Mean board power over an iteration, shape (rows,)."""
        return self.energy_j / self.time_s

    @property
    def edp_js(self) -> FloatArray:
        """Energy-delay product, shape (rows,)."""
        return self.energy_j * self.time_s

    def __str__(self) -> str:
        count, missing = len(self), sum(map(bool, self.problems))
        without = f", {missing} of them without a total" if missing else ""
        if isinstance(self.gpu, str):
            on = f"on {self.gpu} at {self.clock_mhz:g} MHz, predicted by {self.predictor}"
            return f"{count:,} networks{without}, {on}"
        clocks = len(set(np.atleast_1d(self.clock_mhz).tolist()))
        return f"{count:,} predictions{without}, on {len(set(self.gpu))} GPUs at {clocks} clocks"

    def pareto(self) -> tuple[int, ...]:
        """The Pareto front, fastest first: indices of rows that no other beats in energy without taking longer.

        All rows are compared, whatever their network: of networks that do not do the same, the smallest win.
        """
        return tuple(front_of(self.time_s, self.energy_j))

    def _picture(self) -> Picture:
        """The networks as dots, and the Pareto front as a line."""
        known = np.flatnonzero(~np.isnan(self.energy_j * self.time_s))
        if not len(known):
            raise InputError(
                "there is nothing to draw", given=str(self), hint="`problems` says why networks have no total"
            )
        shown = known[:: max(1, len(known) // _DOTS)]
        dots = [(float(self.time_s[i]), float(self.energy_j[i])) for i in shown]
        front = [(float(self.time_s[i]), float(self.energy_j[i])) for i in self.pareto()]
        return front_picture(("networks", dots), front, "time", str(self))

    def to_dict(self) -> dict[str, Any]:
        """One object for each row, with None where a value is not known, and what all have in common."""
        table = self._table()
        common = {name: getattr(self, name) for name in (*_WHERE, "power_limit_w", "predictor")}
        return {
            **{name: [*value] if isinstance(value, tuple | np.ndarray) else value for name, value in common.items()},
            "networks": [dict(zip(table.header, row, strict=True)) for row in table.rows],
        }

    def _table(self) -> Table:
        several = [] if isinstance(self.gpu, str) else _WHERE
        columns: dict[str, Iterable[Any]] = {"network": self.names, **{name: getattr(self, name) for name in several}}
        columns |= {name: getattr(self, name) for name in _COLUMNS}
        if self.intervals:
            ends = [None if each is None else each.to_dict() for each in self.intervals]
            for name in ("time_s", "power_w", "energy_j", "edp_js"):
                for place, side in enumerate(("low", "high")):
                    columns[f"{name}_{side}"] = [each and each[name] and each[name][place] for each in ends]
        columns |= {"uncovered_share": self.uncovered_share, "problem": self.problems}
        plain = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values())
        known = ([None if value != value else value for value in column] for column in plain)
        return Table([*columns], zip(*known, strict=True))


def batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items, as many at a time as networks are predicted together."""
    remaining = iter(items)
    while some := list(islice(remaining, _AT_ONCE)):
        yield some


def predict_networks(
    predictors: Sequence[NetworkPredictor],
    pieces: Iterable[Calls],
    clocks_mhz: Sequence[float | None] = (None,),
    power_limit_w: float | None = None,
    *,
    composition: str | None = None,
    level: float | None = None,
) -> NetworkPredictions:
    """Predict the totals of many networks, equal to those of `NetworkPredictor.predict` to the last bit.

    Raises InputError: another mode, a clock or a cap that a GPU cannot hold, an unknown composition, or a level that is
    not between 0 and 1.

    Args:
        predictors: A predictor for each GPU, all of one mode.
        pieces: Networks in that mode, some at a time.
        clocks_mhz: Graphics clocks of each GPU; None for its default.
        power_limit_w: Power cap; None for each board's default.
        composition: "overlap" or "sum"; None for overlap.
        level: Level of intervals; None for none. Each network is predicted apart then, in milliseconds.
    """
    if level is not None:
        conformal_rank(level, 1)
    asked = []
    for predictor in predictors:
        gpu = predictor.operations.gpu
        clocks = np.array([gpu.checked_clock_mhz(clock) for clock in clocks_mhz], dtype=float)
        asked.append((predictor, clocks, gpu.checked_power_limit_w(power_limit_w)))
    ways = [(predictor, clock, cap_w) for predictor, clocks, cap_w in asked for clock in clocks.tolist()]

    def answer(calls: Calls) -> NetworkPredictions:
        count, several = len(calls.names), len(ways) > 1
        beside = zip(*(_totals(calls, *each, composition, level) for each in asked), strict=True)
        values, problems, intervals = (np.concatenate(arrays, axis=-1) for arrays in beside)
        known, clocks, caps = zip(*ways, strict=True)
        gpus, by = (tuple(each.operations.gpu.name for each in known), tuple(each.name for each in known))
        return NetworkPredictions(
            tuple(name for name in calls.names for _ in ways),
            gpus * count if several else gpus[0],
            np.tile(clocks, count) if several else clocks[0],
            np.tile(caps, count) if several else caps[0],
            by * count if several else by[0],
            **dict(zip(_TOTALS, values.reshape(len(_TOTALS), -1), strict=True)),
            problems=tuple(problems.ravel().tolist()),
            intervals=() if level is None else tuple(intervals.ravel().tolist()),
        )

    return NetworkPredictions.joined([answer(Calls.of(())), *map(answer, paced(pieces))])


def _totals(
    calls: Calls,
    predictor: NetworkPredictor,
    clocks_mhz: FloatArray,
    cap_w: float,
    composition: str | None,
    level: float | None,
) -> tuple[FloatArray, NDArray[np.object_], NDArray[np.object_]]:
    """Totals of some networks at each clock, shape (6, networks, clocks); why there are none, and intervals.

    Networks that are not fully covered are predicted apart, and so are all networks if they are compiled, if the cost
    of an operation depends on the rest of its network, or if intervals are asked for.
    """
    shape, operations = (len(calls.names), len(clocks_mhz)), predictor.operations
    totals, problems, intervals = np.empty((6, *shape)), np.full(shape, "", object), np.empty(shape, object)
    found = operations.in_network(operations.predict_for_network(calls.operations, cap_w))
    alone = np.ones(shape[0], dtype=bool)
    if calls.names and level is None and composition in (None, "overlap") and _same_everywhere(predictor, calls):
        totals[:] = _of_shared(predictor, calls, found, clocks_mhz, cap_w)
        missing = np.array([source == "missing" for source in found.source], dtype=bool)
        alone = calls.sums(missing[calls.places].astype(float)) > 0
        if calls.listed:
            alone |= [bool(network.uncounted) for network in calls.listed]
    places, prepared = np.flatnonzero(alone).tolist(), []
    for place in places:
        network = calls.network(place)
        known = found.take(calls.places_of(place), network.operations)
        prepared.append((PreparedNetwork(predictor, network, cap_w, known=known), clocks_mhz))
    for place, over in zip(places, over_gpus(prepared, composition=composition), strict=True):
        try:
            over.prepared.refuse_uncovered()
        except (InputError, UncoveredError) as error:
            totals[:, place], problems[place, :] = np.nan, str(error)
            continue
        share = np.nan if over.prepared.coverage.share is None else over.prepared.coverage.share
        of_one = (over.time_s, over.energy_j, over.device_time_s, over.host_time_s, over.held_clocks_mhz, share)
        totals[:, place] = [np.broadcast_to(each, shape[1]) for each in of_one]
        if level is not None:
            for clock in paced(range(shape[1])):
                intervals[place, clock] = AtClock(over, clock).interval(level)
    return totals, problems, intervals


def _same_everywhere(predictor: NetworkPredictor, calls: Calls) -> bool:
    """Whether each operation costs what it costs in any network, or what parts.py says of listed networks."""
    if predictor.host.execution.name == "compiled":
        return False
    # In training, the cost of a depthwise convolution depends on its network (parts.py), which a table does not list.
    listed = bool(calls.listed) or predictor.operations.mode == "inference"
    return listed or not any(operation.is_depthwise for operation in calls.operations)


def _of_shared(
    predictor: NetworkPredictor, calls: Calls, found: OperationPredictions, clocks_mhz: FloatArray, cap_w: float
) -> FloatArray:
    """Totals of networks whose operations are all covered, shape (6, networks, clocks); of others NaN or too low."""
    gpu, host, count = predictor.operations.gpu, predictor.host, len(calls.names)
    shape = (count, len(clocks_mhz))
    if found.work is None:
        return np.full((6, *shape), np.nan)
    host_s = host.fixed_s + calls.sums(np.nan_to_num(host.calls_s(found)[calls.places]))
    gaps_s = host.execution.gap_s * calls.sums(np.ones(len(calls.places)))
    static = found.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
    facts = np.array([host_s, np.full(count, static), np.full(count, cap_w)])
    work, places = found.work, calls.places
    if any(network.mode == "training" or network.channels_last for network in calls.listed):
        factors = np.concatenate([part_factors(network, gpu) for network in calls.listed])
        work, places = work.take(places).scaled_by(factors, factors), np.arange(len(places))
    jobs = Jobs.sharing(work, *calls.as_table(places), facts)
    wanted = np.broadcast_to(np.minimum(clocks_mhz, predictor.host.execution.most_clock_mhz), shape)
    _, held_mhz, time_s, energy_j, device_s = composed(jobs, wanted, gaps_s[:, None])
    return np.array([time_s, energy_j, device_s, np.broadcast_to(host_s[:, None], shape), held_mhz, np.zeros(shape)])
