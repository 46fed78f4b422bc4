"""The golden prediction of an entry: a few operations and what they were predicted to cost when it was made."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, ZooError, damaged_entry
from ...operations.network import Network
from ...operations.operation import Operation
from .files import disagreement

if TYPE_CHECKING:
    from ...predictors.cpu.network import CpuNetworkPredictor
    from ...predictors.networks.network_predictor import NetworkPredictor

GOLDEN_OPERATIONS = 8
"""How many operations a golden prediction has; where it covers several GPUs, per GPU."""
_MOST_OPERATIONS = 64
# Sums in fp32 differ between processors: those of trees by 1e-6, and those of a Gaussian process, whose large terms
# cancel, by up to 5e-4 (measured against fp64). A different forest differs by far more.
_TOLERANCE = 2e-3


def golden_sample(operations: Collection[Operation]) -> list[Operation]:
    """Choose operations for a golden prediction, spread evenly over those that a predictor was trained on.

    The choice does not depend on the order of the operations.
    """
    listed = sorted(operations, key=lambda operation: operation.digest)
    return listed[:: max(1, len(listed) // GOLDEN_OPERATIONS)]


def golden_operations(values: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """The operations of a golden prediction.

    Raises:
        ZooError: There is no operation, or there are more than an entry may have.
        InputError: One of the values does not describe an operation.
    """
    if not 0 < len(values) <= _MOST_OPERATIONS:
        raise damaged_entry(
            "a golden prediction has an impossible number of operations", len(values), f"1 to {_MOST_OPERATIONS}"
        )
    return [Operation.from_dict(value) for value in values]


def smoke_test(predictor: NetworkPredictor | CpuNetworkPredictor, operations: Sequence[Operation]) -> None:
    """Predict a network of these operations with its interval, so that damage shows when an entry is loaded.

    Raises:
        ZooError: The prediction is not finite.
    """
    prediction = predictor.predict(Network.of([(operation, 2) for operation in operations]))
    interval = prediction.interval(0.5)
    ends = (*interval.time_s, *(interval.energy_j or ())) if interval else ()
    energies = () if prediction.energy_j is None else (prediction.energy_j,)
    numbers = [prediction.time_s, *energies, *ends]
    if not all(type(number) in (float, np.float64) and np.isfinite(number) and number >= 0 for number in numbers):
        raise ZooError(
            "a zoo entry predicts times or energies that are not finite numbers",
            given=numbers[:2],
            hint="pull it again",
        )


@contextmanager
def refusing_damage(folder: Path) -> Iterator[None]:
    """Turn every exception that damaged content causes into a `ZooError`.

    Numbers out of range cause no warning here, because the golden prediction shows them later.

    Raises:
        ZooError: The content is damaged.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except ZooError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise damaged_entry("this zoo entry is damaged", f"{folder}: {cause}"[:400]) from error


def require_agreement(folder: Path, manifest: Mapping[str, Any], pairs: Sequence[tuple[Any, Any]]) -> None:
    """Compare the golden prediction as it comes out now with the stored one.

    Args:
        folder: Folder of the entry.
        manifest: Manifest of the entry.
        pairs: Values as predicted now, and as stored.

    Raises:
        ZooError: They differ by more than rounding, or are not numbers.
    """
    with refusing_damage(folder):
        agrees = all(
            np.shape(again) == np.shape(stored) and np.allclose(again, stored, rtol=_TOLERANCE, atol=0)
            for again, stored in pairs
        )
    if not agrees:
        raise disagreement(folder, manifest)
