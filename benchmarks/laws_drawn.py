"""Random operations of all kinds, GPUs, precisions and modes, and what a predictor says about a batch of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from law import OperationLaw, Subject, Tally

from joulecast.arrays import FloatArray
from joulecast.errors import InputError
from joulecast.hardware import GPU, gpus
from joulecast.operations.kinds import KINDS
from joulecast.operations.operation import MODES, Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.operation_predictions import OperationPredictions

COSTS = ("device_time_s", "time_s", "dynamic_energy_j", "energy_j")
"""What predictions of operations are compared by."""

# Kinds that laws of their own hold for, and that make up most of networks' costs, are drawn more often.
_OFTEN = {"attention": 6, "linear": 6, "matmul": 3, "conv2d": 3}
_MOST_BYTES = 16e9  # Operations that move more do not occur in practice.

Sizes = tuple[list[tuple[int, ...]], dict[str, object]]


class Pair(NamedTuple):
    """An operation, and the same with twice the batch."""

    one: Operation
    twice: Operation


@dataclass(frozen=True)
class Batch:
    """Random operations of one mode on one GPU; what is predicted for them is asked once for all laws.

    Args:
        subject: The predictor that is judged.
        gpu: The GPU.
        mode: Of all operations.
        clock_mhz: A clock below the default.
        pairs: The operations, and each with twice the batch.
    """

    subject: Subject
    gpu: GPU
    mode: str
    clock_mhz: float
    pairs: Sequence[Pair]

    @cached_property
    def ones(self) -> OperationList:
        """The operations."""
        return OperationList(pair.one for pair in self.pairs)

    @cached_property
    def faster(self) -> OperationPredictions:
        """What is predicted for them at the default clock."""
        return self.subject.operations(self.gpu, self.mode).predict(self.ones)

    @cached_property
    def slower(self) -> OperationPredictions:
        """What is predicted for them at the lower clock."""
        return self.subject.operations(self.gpu, self.mode).predict(self.ones, self.clock_mhz)

    @cached_property
    def costs(self) -> FloatArray:
        """Their costs at the default clock, shape (COSTS, operations)."""
        return costs(self.faster)

    @cached_property
    def costs_of_twice(self) -> FloatArray:
        """The costs of twice the batch, shape (COSTS, operations)."""
        return costs(self.subject.operations(self.gpu, self.mode).predict([pair.twice for pair in self.pairs]))

    @cached_property
    def works(self) -> np.ndarray:
        """Which operations do anything, as dropout in inference does not."""
        return np.array([not one.is_identity for one in self.ones])

    def changed(self, change: Callable[[Operation], Operation | None]) -> FloatArray:
        """The costs of variants of the operations, shape (COSTS, operations); NaN where there is no variant.

        Args:
            change: Gives the variant of an operation, in any mode; None where there is none.
        """
        variants = [change(one) for one in self.ones]
        values = np.full((len(COSTS), len(variants)), np.nan)
        for mode in MODES:
            places = [place for place, each in enumerate(variants) if each is not None and each.mode == mode]
            if places:
                some = [each for each in variants if each is not None and each.mode == mode]
                values[:, places] = costs(self.subject.operations(self.gpu, mode).predict(some))
        return values


def costs(predictions: OperationPredictions) -> FloatArray:
    """The costs of predictions, shape (COSTS, operations)."""
    return np.array([getattr(predictions, name) for name in COSTS])


def batches(subject: Subject, operations: int, at_once: int, seed: int) -> Iterator[Batch]:
    """Batches on all GPUs of the catalogue, until there are so many operations.

    Args:
        subject: The predictor that is judged.
        operations: Number of operations in all batches.
        at_once: Number of operations in one batch.
        seed: Of the source of chance.
    """
    rng, done = random.Random(seed), 0
    each = [(gpu, mode) for gpu in gpus().values() for mode in MODES]
    while True:
        rng.shuffle(each)
        for gpu, mode in each:
            pairs = list(islice(random_pairs(rng, gpu, mode), min(at_once, operations - done)))
            if not pairs:
                return
            done += len(pairs)
            yield Batch(subject, gpu, mode, rng.uniform(gpu.min_clock_mhz, gpu.boost_clock_mhz), pairs)


def check(batch: Batch, laws: dict[str, OperationLaw], tallies: dict[str, Tally]) -> None:
    """Add a batch to the tallies of laws, by name."""
    for name, law in laws.items():
        tally = tallies.setdefault(name, Tally(law))
        tally.add(law.excess(batch), lambda place: f"{batch.ones[place]} on {batch.gpu.name}")


def random_pairs(rng: random.Random, gpu: GPU, mode: str) -> Iterator[Pair]:
    """An endless stream of random operations that a GPU can run.

    Args:
        rng: The source of chance.
        gpu: Whose precisions are drawn from.
        mode: Of all operations.
    """
    kinds = sorted(KINDS)
    kinds += [kind for kind, more in _OFTEN.items() for _ in range(more - 1)]
    while True:
        kind, batch = rng.choice(kinds), _power_of_two(rng, 1, 512)
        precision = rng.choice([p for p in KINDS[kind].precisions if p in gpu.peak_flops])
        # Rows of about the size at which a tensor outgrows the last cache.
        row = 1 + int(gpu.l2_bytes * rng.uniform(0.1, 1.0) / 4 / batch)
        state = rng.getstate()
        pair = []
        for each in (batch, 2 * batch):
            rng.setstate(state)
            try:
                shapes, attributes = _sizes(rng, kind, each, row)
                pair.append(Operation(kind, shapes, attributes, precision=precision, mode=mode))
            except InputError:
                break
        if len(pair) == 2 and pair[1].bytes_read + pair[1].bytes_written < _MOST_BYTES:
            yield Pair(*pair)


def _power_of_two(rng: random.Random, low: int, high: int) -> int:
    return int(2 ** rng.uniform(np.log2(low), np.log2(high)))


def _convolution(rng: random.Random, kind: str, batch: int) -> Sizes:
    dimensions = int(kind[-2])
    side = rng.choice({1: (64, 1000, 16000), 2: (7, 14, 28, 56, 112, 224), 3: (4, 8, 16, 28)}[dimensions])
    groups = rng.choice((1, 1, 1, 4))
    channels_in, channels_out = (groups * _power_of_two(rng, 1, 512 // groups) for _ in range(2))
    kernel = rng.choice((1, 3, 3, 5, 7)) if side >= 7 else rng.choice((1, 3))
    attributes = {
        "out_channels": channels_out,
        "kernel_size": kernel,
        "stride": rng.choice((1, 1, 2)),
        "padding": kernel // 2,
        "groups": groups,
    }
    return [(batch, channels_in, *[side] * dimensions)], attributes


def _attention(rng: random.Random, kind: str, batch: int) -> Sizes:
    heads, length, head = rng.choice((4, 8, 12, 16, 32)), _power_of_two(rng, 1, 16384), rng.choice((32, 64, 128))
    keys = rng.choice((length, _power_of_two(rng, 16, 8192)))
    cached_heads = rng.choice((heads, heads, heads // 4))
    shapes = [(batch, heads, length, head), (batch, cached_heads, keys, head), (batch, cached_heads, keys, head)]
    return shapes, {"causal": length <= keys and rng.random() < 0.5}


def _image(rng: random.Random, batch: int) -> tuple[int, ...]:
    side = rng.choice((1, 7, 14, 28, 56, 112, 224))
    return batch, 8 * _power_of_two(rng, 1, 256), side, side


def _sizes(rng: random.Random, kind: str, batch: int, row: int) -> Sizes:
    """Input shapes and attributes of a random operation of a kind; guessed if the kind is not listed here."""
    family = KINDS[kind].family
    if family == "convolution":
        return _convolution(rng, kind, batch)
    if family == "attention":
        return _attention(rng, kind, batch)
    m, k, n = (_power_of_two(rng, 1, high) for high in (4096, 8192, 8192))
    sequence = (batch, _power_of_two(rng, 1, 1024), 8 * _power_of_two(rng, 1, 1024))
    image = _image(rng, batch)
    match kind:
        case "linear":
            return [rng.choice(((batch, k), (batch, 1 + m // 8, k)))], {"out_features": n}
        case "grouped_linear":
            return [(batch, 1 + m // 8, k)], {"out_features": n, "num_experts": rng.choice((4, 8, 64))}
        case "experts":
            attributes = {"intermediate": 256 * _power_of_two(rng, 1, 64), "top_k": 2, "experts": rng.choice((8, 64))}
            return [(batch, 128 * _power_of_two(rng, 4, 64))], attributes
        case "lstm" | "gru" | "rnn":
            return [(1 + sequence[1] // 8, batch, sequence[2])], {"hidden_size": 8 * _power_of_two(rng, 1, 256)}
        case "matmul":
            return [(batch, m, k), (batch, k, 1 + n // 4)], {}
        case "cdist":
            return [(batch, m, 1 + k // 64), (batch, 1 + n // 4, 1 + k // 64)], {}
        case "embedding":
            return [sequence[:2]], {"num_embeddings": _power_of_two(rng, 100, 200_000), "embedding_dim": sequence[2]}
        case "group_norm":
            return [image], {"num_groups": 8}
        case "add" | "sub" | "mul" | "div" | "pow" | "compare":
            return [image, image][: rng.choice((1, 2))], {}
        case "complex_mul":
            return [(*image, 2), (*image, 2)], {}
        case "fft":
            return [(*sequence, 2)], {}
        case "masked_fill" | "gather":
            return [image, image], {"dim": 1} if kind == "gather" else {}
        case "scatter":
            return [sequence, sequence, sequence], {}
        case "index_select":
            return [(1 + n, sequence[2]), (batch * sequence[1],)], {}
        case "embedding_bag":
            return [(batch * sequence[1],), (batch,)], {"num_embeddings": 10_000, "embedding_dim": sequence[2]}
        case "one_hot":
            return [sequence[:2]], {"num_classes": 1 + n // 8}
        case "topk":
            return [sequence], {"k": 5}
        case "roi_align":
            return [image], {"boxes": 8 * batch, "output_size": 7}
        case "grid_sample":
            return [image, (batch, image[2], image[3], 2)], {}
        case "cat":
            return [image, image], {"dim": 1}
        case "max_pool2d" | "avg_pool2d":
            return [(*image[:2], 56, 56)], {"kernel_size": rng.choice((2, 3)), "stride": 2}
        case "max_pool3d" | "avg_pool3d":
            return [(*image[:2], 8, 28, 28)], {"kernel_size": 2, "stride": 2}
        case "adaptive_avg_pool3d":
            return [(*image[:2], 8, 28, 28)], {"output_size": 1}
        case "adaptive_avg_pool2d" | "adaptive_max_pool2d":
            return [image], {"output_size": 1}
        case "interpolate":
            return [image], {"output_size": (2 * image[2], 2 * image[3])}
        case "mean" | "sum" | "norm" | "max" | "argmax" | "var" | "prod" | "logsumexp":
            return [image], {"dim": rng.choice((1, -1))}
        case "softmax" | "cumsum":
            return [sequence], {"dim": -1}
        case "dropout" | "stochastic_depth":
            return [sequence], {"p": 0.1}
    return [rng.choice((image, sequence, (batch, sequence[2]), (batch, row)))], {}
