"""Which operations to measure first on a board: those of common networks that take the most time and are least sure.

The operations of a few networks of different families are predicted in all modes and precisions of the GPU. What a
measurement is worth is the operation's share of its network's device time, times the width of its interval. Operations
are grouped by family, precision and by what bounds them, so that every unit and every family is measured. The list
begins with the most valuable of each group; then comes one of each by chance, the second of each, and so on. Without
those by chance, the errors of a calibration would be known for large operations only, and its intervals too narrow.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..errors import JoulecastError
from ..extraction import network_of
from ..hardware import GPU
from ..operations.network import Network
from ..operations.operation import MODES, Operation
from ..operations.operation_list import OperationList
from ..predictors.physics.variants import refuse_precisions
from ..predictors.predictor import OperationPredictor

COMMON: Sequence[tuple[str, tuple[int, ...], int | None]] = (
    *((name, (32, 3, 224, 224), None) for name in ("resnet50", "efficientnet_b0", "convnext_tiny", "vit_b_16")),
    *(("bert_base", shape, None) for shape in ((1, 128), (32, 512))),
    *(("gpt2", shape, None) for shape in ((8, 128), (4, 1024))),
    ("llama3_8b", (1, 512), None),
    ("llama3_8b", (32, 1), 1024),
)
"""Networks whose operations are measured: models that users run most, in sizes of a few milliseconds; those that decode
with the number of tokens that are cached."""

_OPTIMIZERS = {"resnet50": "sgd", "bert_base": "adamw", "gpt2": "adamw_fused"}

PRECISIONS = ("default", "fp32", "tf32", "fp16", "bf16")
_LONGEST_S = 0.05  # What takes longer measures nothing that a shorter one does not.
_WIDTH = 1.0  # Where no interval is known: as if it were a factor of 2.7.


def common_networks(gpu: GPU, mode: str) -> Iterator[Network]:
    """The networks of `COMMON` in the precisions that a GPU has."""
    # A GPU without TF32 runs fp32 instead, which is measured as such.
    precisions = [each for each in PRECISIONS if each != "tf32" or gpu.running_precision(each) == each]
    for (name, shape, cached), precision in itertools.product(COMMON, precisions):
        optimizer = _OPTIMIZERS.get(name) if mode == "training" else None
        try:
            network = network_of(name, shape, mode=mode, precision=precision, cache_length=cached, optimizer=optimizer)
            refuse_precisions(gpu, network.operations)
        except JoulecastError:
            continue  # A precision that the GPU lacks, a model whose library is not installed, or decoding in training.
        yield network


def worth_measuring(
    predictors: Mapping[str, OperationPredictor],
    count: int,
    networks: Callable[[GPU, str], Iterator[Network]] = common_networks,
) -> dict[str, list[Operation]]:
    """Choose the operations to measure.

    `predictors`: Mode -> predictor of the GPU. `networks`: Function that gives the networks that are common, by GPU and
    mode. Returns mode -> operations, the most valuable first.
    """
    training = count // 3 if len(predictors) == len(MODES) else 0
    counts = {"inference": count - training, "training": training or count}
    return {
        mode: _most_valuable(predictor, networks(predictor.gpu, mode))[: counts[mode]]
        for mode, predictor in predictors.items()
    }


def _most_valuable(predictor: OperationPredictor, networks: Iterator[Network]) -> list[Operation]:
    values: dict[Operation, float] = defaultdict(float)
    groups: dict[tuple[str, str, bool], set[Operation]] = defaultdict(set)
    for network in networks:
        operations = OperationList(entry.operation for entry in network if not entry.operation.is_identity)
        counts = np.array([entry.count for entry in network if not entry.operation.is_identity], dtype=float)
        found = predictor.predict(operations)
        interval = found.interval(0.8)
        widths = np.full(len(operations), _WIDTH) if interval is None else np.log(interval.time_s[1] / found.time_s)
        shares = np.nan_to_num(counts * found.device_time_s)
        worth = shares / max(shares.sum(), 1e-30) * np.nan_to_num(widths, nan=_WIDTH)
        parts = found.work.parts if found.work is not None else None
        in_memory = np.zeros(len(operations), dtype=bool) if parts is None else parts.memory_s > parts.compute_s
        for operation, value, seconds, memory in zip(
            operations, worth.tolist(), found.time_s.tolist(), in_memory.tolist(), strict=True
        ):
            if 0 < seconds < _LONGEST_S:
                values[operation] += value
                # Steps of optimizers differ by whether they are fused, and hardly by precision.
                stepping = operation.row.is_optimizer_step
                kind = (operation.kind, "") if stepping else (operation.row.family, operation.precision)
                groups[*kind, bool(memory)].add(operation)
    ordered = []
    for some in groups.values():
        by_value = sorted(some, key=lambda each: (-values[each], each.digest))
        by_chance = sorted(some, key=lambda each: each.digest)
        ordered.append(list(dict.fromkeys(itertools.chain.from_iterable(zip(by_value, by_chance, strict=True)))))
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*ordered))
    return list(dict.fromkeys(each for each in in_turn if each is not None))
