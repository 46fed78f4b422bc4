"""What entries of every form share: how they are stored, read, and compared with their golden prediction.

An entry is a folder with a card, a predictor, a manifest and a golden prediction: a few operations, and what they were
predicted to cost when it was made. Loading runs no code, because entries hold JSON and arrays only. Every file is
compared with its sha256 before it is parsed. Afterwards the golden prediction is made again. So neither a changed byte
nor a library that computes something else goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, ZooError, damaged_entry
from ...operations.network import Network
from ...operations.operation import Operation
from .cards import ModelCard, card_files
from .files import FACTS, StoredEntry, json_bytes, write_files

if TYPE_CHECKING:
    from ...predictors.networks.on_cpu import CpuNetworkPredictor
    from ...predictors.networks.prepared import NetworkPredictor

GOLDEN_OPERATIONS = 8
"""How many operations a golden prediction has; where it covers several GPUs, per GPU."""
_MOST_OPERATIONS = 64
# Sums in fp32 differ between processors: those of trees by 1e-6, and those of a transformer, whose large terms
# cancel, by up to 5e-4 (measured against fp64). A different forest differs by far more.
_TOLERANCE = 2e-3


def save_as_entry(
    folder: str | Path,
    card: ModelCard,
    facts: Mapping[str, Any],
    files: Mapping[str, bytes],
    golden: Mapping[str, Any],
    predictor: str,
) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        predictor: What the manifest names as the predictor, by which the entry is read (`load_any`).
    """
    return write_files(
        folder, {**card_files(card.to_dict()), FACTS: json_bytes(facts), **files}, golden, predictor=predictor
    )


def golden_sample(operations: Collection[Operation]) -> list[Operation]:
    """Choose operations for a golden prediction, spread evenly over those that a predictor was trained on.

    The choice does not depend on the order of the operations.
    """
    listed = sorted(operations, key=lambda operation: operation.digest)
    return listed[:: max(1, len(listed) // GOLDEN_OPERATIONS)]


def golden_operations(values: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """The operations of a golden prediction.

    Raises ZooError: there is no operation, or there are more than an entry may have. Raises InputError: one of the
    values does not describe an operation.
    """
    if not 0 < len(values) <= _MOST_OPERATIONS:
        raise damaged_entry(
            "a golden prediction has an impossible number of operations", len(values), f"1 to {_MOST_OPERATIONS}"
        )
    return [Operation.from_dict(value) for value in values]


def golden_of(operations: Iterable[Operation], predicted: Any, *columns: str) -> dict[str, Any]:
    """A golden prediction: operations, and columns of what is predicted of them."""
    costs = {name: getattr(predicted, name).tolist() for name in columns}
    return {"operations": [operation.to_dict() for operation in operations], **costs}


def smoke_test(predictor: NetworkPredictor | CpuNetworkPredictor, operations: Sequence[Operation]) -> None:
    """Predict a network of these operations with its interval, so that damage shows when an entry is loaded.

    Raises ZooError: the prediction is not finite.
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
def refusing_damage(where: str) -> Iterator[None]:
    """Turn every exception that damaged content causes into a `ZooError`.

    Numbers out of range cause no warning here, because the golden prediction shows them later. Raises ZooError: the
    content is damaged.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except ZooError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise damaged_entry("this zoo entry is damaged", f"{where}: {cause}"[:400]) from error


def require_agreement(stored: StoredEntry, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Compare the golden prediction as it comes out now with the stored one.

    Raises ZooError: they differ by more than rounding, or are not numbers.
    """
    with refusing_damage(stored.where):
        agrees = all(
            np.shape(now) == np.shape(before) and np.allclose(now, before, rtol=_TOLERANCE, atol=0)
            for now, before in [*pairs]  # all of them exist, before one is compared
        )
    if not agrees:
        raise ZooError(
            "this zoo entry no longer predicts what it predicted when it was made",
            given=stored.where,
            hint=f"it was made with {str(stored.manifest.get('libraries'))[:300]}; install those versions, or train it "
            "again",
        )


def golden_values(again: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs of the seconds and watts of two golden predictions of one entry."""
    for name, value in again.items():
        if isinstance(value, Mapping):
            yield from golden_values(value, before[name])
        elif name != "operations":
            yield value, before[name]
