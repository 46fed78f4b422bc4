"""Known networks: what was asked for before on a GPU, so that another clock takes no features and no regressors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..predictors.prediction import Prediction
from ..predictors.prepared import PreparedNetwork


@dataclass(frozen=True)
class KnownNetwork:
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
        prediction: As the library gives it.
        known: See `KnownNetwork`.
    """

    prediction: Prediction
    known: KnownNetwork

    def to_json(self) -> dict[str, Any]:
        """What `Prediction.to_json` says, with the rows that are known."""
        rows = zip(self.known.rows, self.prediction.operations, strict=True)
        value = self.prediction.to_json(details=False)
        value["operations"] = [{**row, **cost.costs_json()} for row, cost in rows]
        return value

    def to_csv(self) -> str:
        """See `Prediction.to_csv`."""
        return self.prediction.to_csv()
