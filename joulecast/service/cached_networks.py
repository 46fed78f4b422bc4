"""Known networks: what was asked for before on a GPU, so that another clock takes no features and no regressors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..predictors.networks.prediction import Prediction
from ..predictors.networks.prepared import Costs, PreparedNetwork


@dataclass(frozen=True)
class CachedNetwork:
    """A network on a GPU under a power cap, by one predictor.

    Args:
        prepared: See `PreparedNetwork`.
    """

    prepared: PreparedNetwork

    def __len__(self) -> int:
        return len(self.prepared.network)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The operations as a prediction lists them, without what they cost; not to be changed."""
        return [
            {**entry.operation.to_json(), "count": entry.count, "module_paths": list(entry.module_paths)}
            for entry in self.prepared.network
        ]


@dataclass(frozen=True)
class Predicted:
    """A prediction, and the network that it is of.

    Args:
        summary: As the library gives it, without its operations.
        costs: Of those.
        known: The network.
    """

    summary: Prediction
    costs: Costs
    known: CachedNetwork

    @cached_property
    def prediction(self) -> Prediction:
        """As the library gives it."""
        return replace(self.summary, operations=tuple(self.costs.of(self.known.prepared.network)))

    def to_json(self, *, details: bool = True) -> dict[str, Any]:
        """What `Prediction.to_json` says, from the rows that are known."""
        costs = self.costs
        value = self.summary.to_json(details=False)
        if details:
            columns = (costs.device_time_s, costs.power_w, costs.energy_j, costs.source, costs.bound_by)
            value["operations"] = [
                {
                    **row,
                    "device_time_s": time_s,
                    "power_w": power_w,
                    "energy_j": energy_j,
                    "source": source,
                    "bound_by": by,
                }
                for row, time_s, power_w, energy_j, source, by in zip(self.known.rows, *columns, strict=True)
            ]
        return value

    def to_csv(self) -> str:
        """See `Prediction.to_csv`."""
        return self.prediction.to_csv()
