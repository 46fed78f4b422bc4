"""An operation on a GPU as a short sequence of tokens, as a transformer reads it.

Eleven tokens, each in a role: what runs (kind), where (machine), how much (work, waves), how large (batch, rows,
columns, reduction), what convolutions and poolings add (window, channels), and what boosted trees see of it (physics).
A token is a vector of numbers; everything that depends on the GPU is relative to it, and to its default clock, where
operations were measured, as in relative.py: what is learned of them there holds at other clocks, where only the least
time changes.

A size stands in a token several times: as a logarithm, as its place between powers of two (so that each octave can be
learned apart; Gorishniy et al., NeurIPS 2022, call it piecewise linear encoding), by how well it fills tiles, and by
what divides it. In a single run, places between powers of two lowered the mean error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...hardware import GPU
from ...operation_list import OperationList
from ...operations import Operation
from ...rules import size
from ..physics.features import FAMILIES, FloatArray, numbers_of
from ..physics.least_times import LeastTimes
from ..physics.relative import RELATIVE_NAMES, _generation, relative_features

ROLES: tuple[str, ...] = (
    "kind",
    "machine",
    "work",
    "waves",
    "batch",
    "rows",
    "columns",
    "reduction",
    "window",
    "channels",
    "physics",
)
"""The tokens of an operation, in their order."""

# What other tokens tell: the kind and the GPU.
_TOLD = ("family_", "kind_", "generation", "log_ridge", "log_sms", "log_watts_per_tflops")
_PHYSICS = [place for place, name in enumerate(RELATIVE_NAMES) if not name.startswith(_TOLD)]
PHYSICS_NAMES: tuple[str, ...] = tuple(RELATIVE_NAMES[place] for place in _PHYSICS)
"""The numbers of the token `physics`: features of relative.py, in units that training finds."""

WIDTH = max(36, len(PHYSICS_NAMES))
"""Numbers per token; what a role does not use is zero."""

IN_NETWORK = 4
"""Numbers at the end of the token `kind` that say what the operation is to its network; zero where it is alone."""

UNKNOWN = ""
"""The first kind of every vocabulary: all that were not in the training data."""

_TILES = ((64, 64), (128, 64), (128, 128), (256, 128))  # Rows and columns per thread block in cuBLAS and cuDNN.
_FILLS = (32.0, 64.0, 128.0)
_DIVISORS = (2, 4, 8, 16, 32, 64, 128)
_ELEMENTS_PER_BLOCK = 1024.0
_LEAST_S = 1e-12
_KEPT = 20_000  # Operations whose attributes are read once, for all GPUs.
_LONGEST = 3.0  # Of the log ratio of host to device time, either way: beyond it only one of them matters.


@dataclass(frozen=True)
class Tokens:
    """Operations on one GPU.

    Args:
        values: Shape (operations, len(ROLES), WIDTH).
        families: Index into FAMILIES, one per operation.
        kinds: Index into a vocabulary, one per operation.
        least: The least times that predictions relate to, at one clock.
    """

    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]
    least: LeastTimes


def tokens(operations: Sequence[Operation], gpu: GPU, clock_mhz: float, vocabulary: Sequence[str]) -> Tokens:
    """Describe operations on a GPU.

    Args:
        operations: At least one.
        gpu: Where they run.
        clock_mhz: Graphics clock that the least times are for.
        vocabulary: The kinds that are told apart, UNKNOWN first.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    operations = OperationList.of(operations)  # Whose numbers are read off once.
    default_mhz = float(gpu.boost_clock_mhz)
    at_default = LeastTimes.of(operations, gpu, default_mhz)
    columns = {
        "kind": _kind(operations, gpu),
        "machine": np.tile(_machine(gpu), (len(operations), 1)),
        "work": _work(operations, gpu, at_default),
        **_sizes(operations, gpu),
        "window": np.array([_window(operation) for operation in operations]),
        "channels": np.array([_channels(operation) for operation in operations]),
        "physics": _physics(operations, gpu),
    }
    values = np.zeros((len(operations), len(ROLES), WIDTH), dtype=np.float32)
    for position, role in enumerate(ROLES):
        values[:, position, : columns[role].shape[1]] = columns[role]
    known = {kind: index for index, kind in enumerate(vocabulary)}
    return Tokens(
        values,
        np.array([FAMILIES.index(operation.row.family) for operation in operations]),
        np.array([known.get(operation.kind, 0) for operation in operations]),
        at_default if clock_mhz == default_mhz else LeastTimes.of(operations, gpu, clock_mhz),
    )


def in_network(
    values: NDArray[np.float32], counts: FloatArray, device_s: FloatArray, host_s: FloatArray
) -> NDArray[np.float32]:
    """Tokens of a network's operations, told what each is to it.

    Args:
        values: Of its operations, each alone; shape (..., operations, len(ROLES), WIDTH).
        counts: How often each runs; shape (..., operations), as all that follow.
        device_s: Seconds of one call that the GPU works.
        host_s: Seconds of one call that launching takes; zero where nothing waits for the host.
    """
    told = values.copy()
    device, host = counts * device_s, counts * host_s
    total = device.sum(axis=-1, keepdims=True)
    told[..., 0, -IN_NETWORK] = np.log(counts) / 4
    told[..., 0, -IN_NETWORK + 1] = device / total
    told[..., 0, -IN_NETWORK + 2] = _log_ratio(host, device)
    told[..., 0, -IN_NETWORK + 3] = _log_ratio(host.sum(axis=-1, keepdims=True), total)
    return told


def _log_ratio(host: FloatArray, device: FloatArray) -> FloatArray:
    ratio = np.log((host + _LEAST_S) / (device + _LEAST_S))
    clipped: FloatArray = np.clip(ratio, -_LONGEST, _LONGEST) / _LONGEST
    return clipped


def _between(values: FloatArray, low: int, high: int) -> FloatArray:
    """Place of each value among the whole numbers from low to high: weights of the two that are next to it."""
    centres = np.arange(low, high + 1)
    weights: FloatArray = np.maximum(0.0, 1 - np.abs(np.clip(values, low, high)[:, None] - centres))
    return weights


def _kind(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    rows = [
        (
            operation.mode == "training",
            operation.precision in ("fp16", "bf16"),
            gpu.running_precision(operation.precision) != "fp32",
            *(0.0,) * (WIDTH - 3),
        )
        for operation in operations
    ]
    return np.array(rows, dtype=float)


def _machine(gpu: GPU) -> tuple[float, ...]:
    peak = gpu.peak_flops["fp32"]
    return (
        _generation(gpu) - 7,
        math.log(peak / gpu.memory_bandwidth) - 2.5,
        math.log(gpu.sms) - 4,
        math.log(gpu.power_limit_w / (peak / 1e12)) - 2.5,
        math.log(gpu.l2_bytes / gpu.sms / 1e5),
        float("HBM" in (gpu.memory_type or "")),
    )


def _work(operations: Sequence[Operation], gpu: GPU, least: LeastTimes) -> FloatArray:
    balance = np.log((least.compute_s + _LEAST_S) / (least.memory_s + _LEAST_S))
    cycles = np.log(least.time_s * gpu.boost_clock_mhz * 1e6)
    n = numbers_of(operations)
    touched = n.element_bytes * (n.input_size + n.output_size + n.parameters)
    moved = n.bytes_read + n.bytes_written
    return np.column_stack(
        [
            balance / 4,
            cycles / 4 - 3,
            *(np.log(amount + 1) / 8 - 2 for amount in (n.flops, moved, n.bytes_written, n.input_size)),
            np.log(touched / gpu.l2_bytes) / 4,
            np.log(n.parameters + 1) / 8,
            _between(balance, -6, 6),
            _between(cycles, 6, 19),
        ]
    )


def _physics(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    seen = relative_features(operations, gpu)[:, _PHYSICS]
    # What is no logarithm yet may be a thousand for one operation and one for the next.
    logs = [name.startswith("log_") for name in PHYSICS_NAMES]
    return np.where(logs, seen, np.arcsinh(seen))


def _sizes(operations: Sequence[Operation], gpu: GPU) -> dict[str, FloatArray]:
    """The tokens of the operation as a batched product, and of the waves of thread blocks that it makes."""
    n = numbers_of(operations)
    batch, rows, columns, reduction = n.batch, n.rows, n.columns, n.reduction
    waves: list[FloatArray] = []
    for high, wide in _TILES:
        wave = batch * np.ceil(rows / high) * np.ceil(columns / wide) / gpu.sms
        waves += [np.log(wave) / 4, wave / np.ceil(wave)]
    for wave in (n.output_size / _ELEMENTS_PER_BLOCK / gpu.sms, batch * rows / gpu.sms):
        waves += [np.log(wave) / 4, wave / np.ceil(wave)]
    blocks = batch * np.ceil(rows / 128) * np.ceil(columns / 128) / gpu.sms
    return {
        "waves": np.column_stack([*waves, _between(np.log2(blocks), -7, 11)]),
        "batch": _one_size(batch),
        "rows": _one_size(rows),
        "columns": _one_size(columns),
        "reduction": _one_size(reduction),
    }


def _one_size(n: FloatArray) -> FloatArray:
    octave = np.log2(n)
    return np.column_stack(
        [
            _between(octave, 0, 20),
            octave / 6,
            n / 2 ** np.ceil(octave),
            *(n / (np.ceil(n / tile) * tile) for tile in _FILLS),
            *(n % divisor == 0 for divisor in _DIVISORS),
        ]
    )


def _pair(value: Any) -> tuple[float, float]:
    if isinstance(value, tuple):
        return float(value[0]), float(value[-1])
    return (float(value), float(value)) if isinstance(value, int) else (0.0, 0.0)


@lru_cache(maxsize=_KEPT)
def _window(operation: Operation) -> tuple[float, ...]:
    attributes, inputs, out = operation.attributes, operation.input_shapes[0], operation.output_shape
    kernel = _pair(attributes.get("kernel_size") or 1)
    stride = _pair(attributes.get("stride") or 1)
    padding = _pair(attributes.get("padding", 0))
    return (
        *(math.log(n) for n in (*kernel, *stride)),
        *(each / n for each, n in zip(padding, kernel, strict=True)),
        *(float(kernel == (n, n)) for n in (1.0, 3.0, 5.0, 7.0)),
        *(math.log(size(shape[2:])) / 4 for shape in (inputs, out)),
        *(float(shape[-1] % n == 0) for shape in (inputs, out) if shape for n in (4, 8)),
    )


@lru_cache(maxsize=_KEPT)
def _channels(operation: Operation) -> tuple[float, ...]:
    inputs, attributes = operation.input_shapes[0], operation.attributes
    channels = inputs[1] if len(inputs) > 2 else inputs[-1]
    groups = attributes.get("groups", 1)
    return (
        math.log(groups) / 4,
        math.log(max(channels // groups, 1)) / 4,
        math.log(inputs[0]) / 4,
        *(float(channels % n == 0) for n in (4, 8, 32, 64)),
        float(bool(attributes.get("bias", False))),
        float(len(operation.input_shapes)),
        float(any(shape != operation.output_shape for shape in operation.input_shapes)),
    )
