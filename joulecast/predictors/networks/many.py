"""Totals of many networks at once, for a search over architectures.

The candidates of a search share most of their operations, so each different operation is predicted only once. Only
totals are computed. For intervals, notes and the cost of each operation, call `predict` on the few best candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError, UncoveredError
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ...rendering.answers import Plain
from ...rendering.tables import Table, Tabular
from .builder import held_mean_mhz
from .network_predictor import NetworkPredictor
from .prepared import PreparedNetwork, checked_composition
from .uncovered import Coverage

_AT_ONCE = 1_000  # Networks whose operations are predicted together: enough to share most, few enough for memory.
_COLUMNS = ("time_s", "power_w", "energy_j", "edp_js", "device_time_s", "host_time_s", "held_clock_mhz")


@dataclass(frozen=True)
class NetworkPredictions(Tabular, Plain):
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


def predict_networks(
    predictor: NetworkPredictor,
    networks: Iterable[Network],
    clock_mhz: float | None = None,
    power_limit_w: float | None = None,
    *,
    composition: str | None = None,
) -> NetworkPredictions:
    """Predict the totals of many networks, each the same to the last bit as `NetworkPredictor.predict` gives it.

    Args:
        predictor: The predictor of a GPU and mode.
        networks: Networks in that mode; read once, some at a time, and not held on to.
        clock_mhz: Graphics clock; None for the GPU's default.
        power_limit_w: Power cap; None for the board's default.
        composition: "overlap" or "sum"; None for the predictor's own.

    Raises:
        InputError: Another mode, a clock or a cap that the GPU cannot hold, or an unknown composition.
    """
    gpu = predictor.operations.gpu
    clock, cap_w = gpu.checked_clock_mhz(clock_mhz), gpu.checked_power_limit_w(power_limit_w)
    if composition is not None:
        checked_composition(composition)
    names: list[str] = []
    rows: list[tuple[float, ...]] = []
    problems: list[str] = []
    remaining = iter(networks)
    while some := list(islice(remaining, _AT_ONCE)):
        for prepared in _prepared(predictor, some, cap_w):
            names.append(prepared.network.name)
            try:
                rows.append(_totals(prepared, clock, composition))
                problems.append("")
            except (InputError, UncoveredError) as error:
                rows.append((np.nan,) * 6)
                problems.append(str(error))
    time_s, energy_j, device_s, host_s, held_mhz, uncovered = np.array(rows, dtype=float).reshape(-1, 6).T
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


def _prepared(predictor: NetworkPredictor, networks: Sequence[Network], cap_w: float) -> Iterator[PreparedNetwork]:
    """The networks, with every different operation predicted once for all of them."""
    pool = OperationList(dict.fromkeys(operation for network in networks for operation in network.operations))
    found = predictor.operations.predict_for_network(pool, cap_w)
    place_of = {operation: place for place, operation in enumerate(pool)}
    for network in networks:
        places = np.array([place_of[operation] for operation in network.operations])
        yield PreparedNetwork(predictor, network, cap_w, known=found.take(places, network.operations))


def _totals(prepared: PreparedNetwork, clock_mhz: float, composition: str | None) -> tuple[float, ...]:
    """Seconds, joules, seconds of device and host, held clock, and the share that is not covered."""
    _, predictions, totals = prepared.composed(clock_mhz, composition=composition)
    share = Coverage.of(prepared.network, predictions.source, prepared.knowledge.name).share
    held_mhz = held_mean_mhz(prepared.counts, predictions, clock_mhz)
    whole = totals.time_s, totals.energy_j, totals.device_time_s, totals.host_time_s
    return (*whole, held_mhz, np.nan if share is None else share)
