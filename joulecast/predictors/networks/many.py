"""Totals of many networks at once, for a search over architectures.

The candidates of a search share most of their operations, so each different operation is predicted only once. Only
totals are computed, as arrays over all networks. For intervals, notes and the cost of each operation, call
`predict` on the few best candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from ...arrays import FloatArray, front_of
from ...errors import InputError, UncoveredError
from ...operations.columns import Calls
from ...operations.network import Network
from ...progress import paced
from ...rendering.answers import Answer, Table
from ...rendering.notebook import Picture, front_picture
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from ..physics.power_cap import Jobs
from .builder import refuse_uncovered
from .composition import composed
from .knowledge import NetworkKnowledge
from .network_predictor import NetworkPredictor
from .parts import part_factors
from .prediction import checked_composition
from .prepared import PreparedNetwork, over_gpus

Item = TypeVar("Item")

_DOTS = 2_000  # Networks in a picture.
_AT_ONCE = 1_000  # Networks whose operations are predicted together: enough to share most, few enough for memory.
_COLUMNS = ("time_s", "power_w", "energy_j", "edp_js", "device_time_s", "host_time_s", "held_clock_mhz")


@dataclass(frozen=True, repr=False)
class NetworkPredictions(Answer):
    """Totals of networks on one GPU at one clock, as arrays with one value per network; NaN where there is no total.

    Args:
        names: Name of each network.
        gpu: Full name of the GPU.
        clock_mhz: Requested graphics clock in MHz.
        power_limit_w: Power cap in watts.
        predictor: Name of the zoo entry that predicted.
        time_s: Seconds per iteration.
        energy_j: Joules per iteration.
        device_time_s, host_time_s: Seconds that GPU and host need per iteration; the larger decides the time.
        held_clock_mhz: Graphics clock that the GPU settles at.
        uncovered_share: Share of each network's FLOPs or bytes that the totals lack; NaN where it is not known.
        problems: Why a network has no total; empty where it has one.
    """

    names: tuple[str, ...]
    gpu: str
    clock_mhz: float
    power_limit_w: float
    predictor: str
    time_s: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    host_time_s: FloatArray
    held_clock_mhz: FloatArray
    uncovered_share: FloatArray
    problems: tuple[str, ...]

    @classmethod
    def joined(cls, parts: Sequence[NetworkPredictions]) -> NetworkPredictions:
        """Predictions for several groups of networks as one, in their order.

        Args:
            parts: At least one; all on the same GPU and at the same clock.
        """
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
        """Mean board power over an iteration, shape (networks,)."""
        return self.energy_j / self.time_s

    @property
    def edp_js(self) -> FloatArray:
        """Energy-delay product, shape (networks,)."""
        return self.energy_j * self.time_s

    def __str__(self) -> str:
        count, missing = len(self), sum(map(bool, self.problems))
        without = f", {missing} of them without a total" if missing else ""
        return f"{count:,} networks{without}, on {self.gpu} at {self.clock_mhz:g} MHz, predicted by {self.predictor}"

    def pareto(self) -> tuple[int, ...]:
        """The Pareto front, fastest first: indices of networks that no other beats in energy without taking longer."""
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
        """One object for each network, with None where a value is not known, and what all have in common."""
        table = self._table()
        return {
            "gpu": self.gpu,
            "clock_mhz": self.clock_mhz,
            "power_limit_w": self.power_limit_w,
            "predictor": self.predictor,
            "networks": [dict(zip(table.header, row, strict=True)) for row in table.rows],
        }

    def _table(self) -> Table:
        header = ["network", *_COLUMNS, "uncovered_share", "problem"]
        columns = (getattr(self, name) for name in (*_COLUMNS, "uncovered_share"))
        known = ([None if value != value else value for value in column.tolist()] for column in columns)
        return Table(header, zip(self.names, *known, self.problems, strict=True))


def in_pieces(networks: Iterable[Network]) -> Iterator[Calls]:
    """Networks as calls, some at a time, for `predict_networks`.

    Args:
        networks: Read one after the other, and not held on to.
    """
    for some in batched(networks):
        yield Calls.of(some)


def batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items, as many at a time as networks are predicted together."""
    remaining = iter(items)
    while some := list(islice(remaining, _AT_ONCE)):
        yield some


def predict_networks(
    predictor: NetworkPredictor,
    pieces: Iterable[Calls],
    clock_mhz: float | None = None,
    power_limit_w: float | None = None,
    *,
    composition: str | None = None,
) -> NetworkPredictions:
    """Predict the totals of many networks, equal to those of `NetworkPredictor.predict` to the last bit.

    Args:
        predictor: The predictor of a GPU and mode.
        pieces: Networks in that mode, some at a time.
        clock_mhz: Graphics clock; None for the GPU's default.
        power_limit_w: Power cap; None for the board's default.
        composition: "overlap" or "sum"; None for the predictor's own.

    Raises:
        InputError: Another mode, a clock or a cap that the GPU cannot hold, or an unknown composition.
    """
    gpu = predictor.operations.gpu
    clock, cap_w = gpu.checked_clock_mhz(clock_mhz), gpu.checked_power_limit_w(power_limit_w)
    chosen = predictor.composition if composition is None else checked_composition(composition)
    names: list[str] = []
    found = [np.empty((6, 0))]
    problems: list[str] = []
    for calls in paced(pieces):
        names += calls.names
        values, why = _totals(predictor, calls, clock, cap_w, chosen)
        found.append(values)
        problems += why
    time_s, energy_j, device_s, host_s, held_mhz, uncovered = np.concatenate(found, axis=1)
    return NetworkPredictions(
        names=tuple(names),
        gpu=gpu.name,
        clock_mhz=clock,
        power_limit_w=cap_w,
        predictor=predictor.name,
        time_s=time_s,
        energy_j=energy_j,
        device_time_s=device_s,
        host_time_s=host_s,
        held_clock_mhz=held_mhz,
        uncovered_share=uncovered,
        problems=tuple(problems),
    )


def _totals(
    predictor: NetworkPredictor, calls: Calls, clock_mhz: float, cap_w: float, composition: str
) -> tuple[FloatArray, list[str]]:
    """Totals of the networks, shape (6, networks), and why a network has none.

    Networks that are not fully covered are predicted apart, and so are all networks if the cost of an operation depends
    on the rest of its network.
    """
    found = predictor.operations.predict_for_network(calls.operations, cap_w)
    problems = [""] * len(calls.names)
    if composition == "overlap" and _same_everywhere(predictor, calls):
        values = _of_shared(predictor, calls, found, clock_mhz, cap_w)
        missing = np.array([source == "missing" for source in found.source], dtype=bool)
        alone = calls.sums(missing[calls.places].astype(float)) > 0
        if calls.listed:
            alone |= [bool(network.uncounted) for network in calls.listed]
    else:
        values, alone = np.empty((6, len(problems))), np.ones(len(problems), dtype=bool)
    prepared = {}
    for place in np.flatnonzero(alone).tolist():
        network = calls.network(place)
        known = found.take(calls.places_of(place), network.operations)
        prepared[place] = PreparedNetwork(predictor, network, cap_w, known=known), np.array([clock_mhz])
    for place, over in zip(prepared, over_gpus([*prepared.values()], composition=composition), strict=True):
        try:
            refuse_uncovered(over)
        except (InputError, UncoveredError) as error:
            values[:, place], problems[place] = np.nan, str(error)
            continue
        share, totals = over.coverage.share, (over.time_s[0], over.energy_j[0], over.device_time_s[0])
        values[:, place] = *totals, over.host_time_s, over.held_clocks_mhz[0], np.nan if share is None else share
    return values, problems


def _same_everywhere(knowledge: NetworkKnowledge, calls: Calls) -> bool:
    """Whether each operation costs what it costs in any network, or what parts.py says of listed networks.

    Args:
        knowledge: The predictor, and what it knows about networks.
        calls: The networks.
    """
    if not knowledge.operations.same_in_all_networks or knowledge.host.execution.name == "compiled":
        return False
    # In training, the cost of a depthwise convolution depends on its network (parts.py), which a table does not list.
    listed = bool(calls.listed) or knowledge.operations.mode == "inference"
    return listed or not any(operation.is_depthwise for operation in calls.operations)


def _of_shared(
    knowledge: NetworkKnowledge, calls: Calls, predictions: OperationPredictions, clock_mhz: float, cap_w: float
) -> FloatArray:
    """Totals of networks whose operations are all covered, shape (6, networks); those of others are NaN or too low.

    Args:
        knowledge: The predictor, and what it knows about networks; see `_same_everywhere`.
        calls: The networks.
        predictions: Their operations, alone at the default clock.
        clock_mhz: Requested graphics clock in MHz.
        cap_w: Power cap in watts.
    """
    gpu, host, count = knowledge.operations.gpu, knowledge.host, len(calls.names)
    found = knowledge.operations.in_network(predictions, np.ones(len(calls.operations)))
    if found.work is None:
        return np.full((6, count), np.nan)
    host_s = host.fixed_s + calls.sums(np.nan_to_num(host.calls_s(found)[calls.places]))
    gaps_s = host.execution.gap_s * calls.sums(np.ones(len(calls.places)))
    static = found.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
    facts = np.array([host_s, np.full(count, static), np.full(count, cap_w)])
    work, places = found.work, calls.places
    if any(network.mode == "training" or network.channels_last for network in calls.listed):
        factors = np.concatenate([part_factors(network, gpu) for network in calls.listed])
        work, places = work.take(places).scaled_by(factors, factors), np.arange(len(places))
    jobs = Jobs.sharing(work, *calls.as_table(places), facts)
    clocks_mhz = np.full((count, 1), min(clock_mhz, knowledge.host.execution.most_clock_mhz))
    _, held_mhz, time_s, energy_j, device_s = composed(jobs, clocks_mhz, gaps_s[:, None])[:, :, 0]
    return np.array([time_s, energy_j, device_s, host_s, held_mhz, np.zeros(count)])
