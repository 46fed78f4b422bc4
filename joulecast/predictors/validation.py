"""How good a recipe is on what it has not seen: operations in folds, networks and their families left out.

Splits are honest: all repeats of an operation lie in one fold, with the operation in the other mode and in other
precisions, and a network that is left out takes along every operation that no other network has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..datasets import Dataset, NetworkMeasurement
from ..networks import Network
from .fitting import LEAST_OPERATIONS
from .network_validation import NetworkError, counts_of, fit_host, leave_networks_out, network_summary
from .operation_validation import OperationErrors, cross_validate
from .recipe import OwnRecipe

__all__ = [
    "SPLITS",
    "NetworkError",
    "OperationErrors",
    "Validation",
    "counts_of",
    "cross_validate",
    "fit_host",
    "leave_networks_out",
    "network_summary",
    "validate",
]

SPLITS = (
    "Operations: k-fold over unique operations within one campaign, trained on that campaign only; an operation lies "
    "in one fold with all its repeats, in both modes and all precisions. Networks: each name, and each family of names "
    "(all ResNets with their wide and grouped variants, all Swins, ...), is left out in all its shapes and precisions, "
    "with every operation that no other measured network has, in both modes and all precisions; the host cost is "
    "learned without it, too."
)


@dataclass(frozen=True)
class Validation:
    """All that is known about how good a recipe is on one dataset and mode.

    Args:
        gpu, mode: What was predicted.
        operations: Cross-validation, by campaign, those with enough operations for it.
        networks: Networks left out by name, where any was measured.
        families: The same networks, each left out with its whole family.
        networks_seen: The same with their operations left in, which shows the composition alone.
    """

    gpu: str
    mode: str
    operations: tuple[OperationErrors, ...]
    networks: tuple[NetworkError, ...]
    families: tuple[NetworkError, ...] = ()
    networks_seen: tuple[NetworkError, ...] = ()

    def metrics(self) -> dict[str, float]:
        """Everything as flat numbers, for tracking."""
        flat = {
            f"{errors.campaign}/{name}": value for errors in self.operations for name, value in errors.summary().items()
        }
        for split, errors in (("networks", self.networks), ("families", self.families)):
            flat |= {f"{split}/{name}": value for name, value in network_summary(errors).items()}
        return flat


def validate(
    dataset: Dataset, mode: str, recipe: OwnRecipe, networks: Mapping[NetworkMeasurement, Network]
) -> Validation:
    """Cross-validate every campaign that is large enough, and leave every measured network out.

    Args:
        dataset: Of one GPU.
        mode: inference or training.
        recipe: See `fit_own`.
        networks: The operations of each measured network of this mode.
    """
    operations = []
    for campaign in dataset.campaigns(mode):
        rows = [m for m in dataset.usable(mode) if m.campaign == campaign]
        with_power = {m.operation for m in rows if m.power_usable and m.power_w is not None}
        # Every fold must leave enough to train on.
        if len(with_power) * (1 - 1 / recipe.folds) >= 2 * LEAST_OPERATIONS:
            operations.append(cross_validate(dataset, mode, recipe, campaign))
    by_name, by_family, seen = (
        leave_networks_out(dataset, mode, recipe, networks, by=by) if dataset.usable_networks(mode) else []
        for by in ("name", "family", "none")
    )
    return Validation(dataset.card.gpu, mode, tuple(operations), tuple(by_name), tuple(by_family), tuple(seen))
