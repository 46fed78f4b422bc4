"""Golden samples: a few operations of an entry, and what they were predicted to cost when it was made.

They are predicted again when an entry is read. So neither a changed byte nor a library that computes something else
goes unnoticed. An entry of one device has a single sample, one for any GPU has a sample for each measured GPU, and one
of kernels has a sample for each generation and group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..errors import ZooError, damaged_entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.formats.numbers import refusing_damage

if TYPE_CHECKING:
    from ..predictors.networks.on_cpu import CpuNetworkPredictor
    from ..predictors.networks.predictor import NetworkPredictor
    from .files import StoredEntry

_OPERATIONS = 8  # of a sample
_MOST_OPERATIONS = 64
_MOST_SAMPLES = 128
# Sums in fp32 differ between processors: those of trees by 1e-6, and those of a transformer, whose large terms
# cancel, by up to 5e-4 (measured against fp64). A different forest differs by far more.
_TOLERANCE = 2e-3


class Sample(NamedTuple):
    """Operations of one mode that are predicted when an entry is read.

    Args:
        gpu: Name of the GPU that they run on; empty in entries of one device.
        trees: Generation and group of the trees that predict them, in entries of kernels; else None.
    """

    operations: Sequence[Operation]
    gpu: str = ""
    trees: tuple[str, str] | None = None


Columns = Mapping[str, Any]
"""What is predicted of a sample: name of a quantity -> one value for each operation."""


def chosen(operations: Collection[Operation]) -> list[Operation]:
    """Choose at most eight operations for a sample, spread evenly over those that a predictor learned from.

    The choice does not depend on the order of the operations.
    """
    listed = sorted(operations, key=lambda operation: operation.digest)
    return listed[:: max(1, len(listed) // _OPERATIONS)][:_OPERATIONS]


def golden_of(samples: Sequence[Sample], predicted: Callable[[Sample], Mapping[str, FloatArray]]) -> dict[str, Any]:
    """Samples and what is predicted of them, as manifests have them."""
    rows = [
        {
            "operations": [operation.to_dict() for operation in sample.operations],
            **{name: values.tolist() for name, values in predicted(sample).items()},
        }
        for sample in samples
    ]
    if any(sample.trees for sample in samples):
        pairs = zip(samples, rows, strict=True)
        return {"kernels": [{"trees": list(sample.trees or ()), "gpu": sample.gpu, **row} for sample, row in pairs]}
    return {sample.gpu: row for sample, row in zip(samples, rows, strict=True)} if samples[0].gpu else rows[0]


def samples_of(golden: Any) -> list[tuple[Sample, Columns]]:
    """Samples of a manifest, and what was predicted of them.

    Raises ZooError: there are none, or more than an entry may have. Raises InputError, LookupError, TypeError,
    ValueError, AttributeError: it is something else.
    """
    if "operations" in golden:
        found: list[tuple[Sample, Columns]] = [(Sample(_operations(golden)), golden)]
    elif "kernels" in golden:
        rows = ((row, *row["trees"]) for row in golden["kernels"])
        found = [(Sample(_operations(row), str(row["gpu"]), (str(of), str(group))), row) for row, of, group in rows]
    else:
        found = [(Sample(_operations(row), gpu), row) for gpu, row in golden.items()]
    _require_some(found, "samples", _MOST_SAMPLES)
    return found


def _operations(row: Columns) -> list[Operation]:
    _require_some(row["operations"], "operations", _MOST_OPERATIONS)
    return [Operation.from_dict(value) for value in row["operations"]]


def _require_some(values: Sequence[Any], what: str, most: int) -> None:
    if not 0 < len(values) <= most:
        raise damaged_entry(f"a golden prediction has an impossible number of {what}", len(values), f"1 to {most}")


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


def require_agreement(stored: StoredEntry, again: Columns, before: Columns) -> None:
    """Compare what is predicted of a sample now with what was predicted when its entry was made.

    Raises ZooError: they differ by more than rounding, or are not numbers.
    """
    with refusing_damage(stored.where):
        pairs = [(now, before[name]) for name, now in again.items()]  # all of them exist, before one is compared
        agrees = all(
            np.shape(now) == np.shape(then) and np.allclose(now, then, rtol=_TOLERANCE, atol=0) for now, then in pairs
        )
    if not agrees:
        raise ZooError(
            "this zoo entry no longer predicts what it predicted when it was made",
            given=stored.where,
            hint=f"it was made with {str(stored.manifest.get('libraries'))[:300]}; install those versions, or train it "
            "again",
        )
