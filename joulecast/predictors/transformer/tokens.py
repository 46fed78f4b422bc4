"""Turns an operation on a GPU into a short sequence of tokens, the input of a transformer.

There are eleven tokens, each with a role: the kind of operation (kind), the GPU (machine), the amount of work (work,
waves), the sizes (batch, rows, columns, reduction), the attributes of convolutions and pooling (window, channels), and
the features of boosted trees (physics). A token is a vector of numbers. As in relative.py, all numbers that depend on
the GPU are relative to it and hold at its default clock, at which operations are measured. Ratios that are learned
there are taken to hold at other clocks, where only the least time changes.

A size is encoded several times in its token: as a logarithm, as its position between powers of two (piecewise linear
encoding, Gorishniy et al., NeurIPS 2022, so that each octave can be learned separately), by how well it fills tiles,
and by its divisors. In a single training run, the positions between powers of two lowered the mean error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.rules import size
from ..physics.cached import cached
from ..physics.least_times import LeastTimes
from ..physics.operation_numbers import numbers_of
from ..physics.relative import RELATIVE_NAMES, relative_features
from ..physics.roofline import on_tensor_cores
from ..physics.tiling import Tile, padded, tile_count

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
"""The roles of the tokens of an operation, in their order."""

# Features that other tokens contain already: the kind and the GPU. (`kernel_generation` is not one of them, because the
# compute capability in the token `machine` does not say which generation's fp32 kernels run.)
_TOLD = ("family_", "kind_", "log_ridge", "log_sms", "log_watts_per_tflops")
_PHYSICS = [place for place, name in enumerate(RELATIVE_NAMES) if not name.startswith(_TOLD)]
PHYSICS_NAMES: tuple[str, ...] = tuple(RELATIVE_NAMES[place] for place in _PHYSICS)
"""Names of the numbers of the token `physics`: features of relative.py, scaled by units that training determines."""

# These features are not logarithms, and differ between operations by factors of a thousand.
_NO_LOGARITHMS = [place for place, name in enumerate(PHYSICS_NAMES) if not name.startswith("log_")]

WIDTH = max(36, len(PHYSICS_NAMES))
"""Numbers per token; the numbers that a role does not use are zero."""

IN_NETWORK = 4
"""Numbers at the end of the token `kind` that relate the operation to its network; zero for an operation by itself."""

_SIZES = ("batch", "rows", "columns", "reduction")  # Roles of the tokens that describe one size each.
# Positions of numbers in the tokens `kind` and `work`.
_TENSOR_CORES = 2
_AMOUNTS, _TOUCHED, _PARAMETERS, _PLACES = 2, 6, 7, 8

UNKNOWN = ""
"""The first kind of every vocabulary, which stands for all kinds that were not in the training data."""

_TILES = (Tile(64, 64), Tile(128, 64), Tile(128, 128), Tile(256, 128))  # Outputs of thread blocks in cuBLAS and cuDNN.
_FILLS = (32, 64, 128)
_DIVISORS = (2, 4, 8, 16, 32, 64, 128)
_ELEMENTS_PER_BLOCK = 1024.0
_LEAST_S = 1e-12
_CACHED = 20_000  # Operations whose attributes are read once, for all GPUs.
_LONGEST = 3.0  # Largest absolute log ratio of host to device time; beyond it only the longer one matters.


@dataclass(frozen=True)
class Tokens:
    """Operations on one GPU as tokens.

    Args:
        values: The tokens of each operation, shape (operations, len(ROLES), WIDTH).
        families: Index of each operation's family in FAMILIES, shape (operations,).
        kinds: Index of each operation's kind in a vocabulary, shape (operations,).
        least: The least times of physics at one clock, which predictions multiply by a factor.
    """

    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]
    least: LeastTimes


def tokens(operations: Sequence[Operation], gpu: GPU, clock_mhz: float, vocabulary: Sequence[str]) -> Tokens:
    """Describe operations on a GPU.

    Least times hold at the clock. The vocabulary has the kinds with vectors of their own, UNKNOWN first. Raises
    InputError: the GPU does not support the precision of an operation.
    """
    operations = OperationList.of(operations)
    default_mhz = float(gpu.boost_clock_mhz)
    at_default = LeastTimes.of(operations, gpu, default_mhz)
    n = numbers_of(operations)
    values = _same_everywhere(operations).copy()
    kind, machine, work, waves, physics = (
        values[:, ROLES.index(role)] for role in ("kind", "machine", "work", "waves", "physics")
    )
    kind[:, _TENSOR_CORES] = on_tensor_cores(n, gpu)
    machine[:, : len(_machine(gpu))] = _machine(gpu)
    _put_work(work, n, gpu, at_default)
    _put_waves(waves, n, gpu)
    physics[:, : len(PHYSICS_NAMES)] = _physics(operations, gpu)
    return Tokens(
        values,
        n.family.astype(np.int64),
        _places_in(tuple(vocabulary))[n.kind.astype(np.int64)],
        at_default if clock_mhz == default_mhz else LeastTimes.of(operations, gpu, clock_mhz),
    )


@lru_cache(maxsize=8)
def _places_in(vocabulary: tuple[str, ...]) -> NDArray[np.int64]:
    """Index in the vocabulary of every kind in KINDS, shape (kinds,); 0, for UNKNOWN, where it is not in it."""
    known = {kind: place for place, kind in enumerate(vocabulary)}
    return np.array([known.get(kind, 0) for kind in KINDS], dtype=np.int64)


@cached
def _same_everywhere(operations: OperationList) -> NDArray[np.float32]:
    """Tokens with the numbers that do not depend on the GPU, and zeros elsewhere. The array cannot be written to."""
    n = numbers_of(operations)
    moved = n.bytes_read + n.bytes_written
    amounts = [np.log(amount + 1) / 8 - 2 for amount in (n.flops, moved, n.bytes_written, n.input_size)]
    sizes = np.split(_one_size(np.concatenate([getattr(n, name) for name in _SIZES])), len(_SIZES))
    values = np.zeros((len(operations), len(ROLES), WIDTH), dtype=np.float32)
    for role, first, columns in (
        ("kind", 0, np.column_stack([n.is_training, n.element_bytes == ELEMENT_BYTES["fp16"]])),
        ("work", _AMOUNTS, np.column_stack(amounts)),
        ("work", _PARAMETERS, np.log(n.parameters + 1)[:, None] / 8),
        *((name, 0, columns) for name, columns in zip(_SIZES, sizes, strict=True)),
        ("window", 0, np.array([_window(operation) for operation in operations])),
        ("channels", 0, np.array([_channels(operation) for operation in operations])),
    ):
        values[:, ROLES.index(role), first : first + columns.shape[1]] = columns
    values.flags.writeable = False
    return values


def in_network(
    values: NDArray[np.float32], counts: FloatArray, device_s: FloatArray, host_s: FloatArray
) -> NDArray[np.float32]:
    """Add to tokens the four numbers that relate each operation to its network.

    They are the logarithm of its calls, its share of the network's device time, and the log ratios of host to device
    time of the operation and of the network.

    The tokens have the shape (..., operations, len(ROLES), WIDTH); calls in one iteration, device seconds of a call and
    seconds to launch it (..., operations). Where the GPU never waits for the host, the latter are zero.
    """
    found = values.copy()
    device, host = counts * device_s, counts * host_s
    total = device.sum(axis=-1, keepdims=True)
    found[..., 0, -IN_NETWORK] = np.log(counts) / 4
    found[..., 0, -IN_NETWORK + 1] = device / total
    found[..., 0, -IN_NETWORK + 2] = _log_ratio(host, device)
    found[..., 0, -IN_NETWORK + 3] = _log_ratio(host.sum(axis=-1, keepdims=True), total)
    return found


def _log_ratio(host: FloatArray, device: FloatArray) -> FloatArray:
    ratio = np.log((host + _LEAST_S) / (device + _LEAST_S))
    clipped: FloatArray = np.clip(ratio, -_LONGEST, _LONGEST) / _LONGEST
    return clipped


def _between(values: FloatArray, low: int, high: int) -> FloatArray:
    """Piecewise linear encoding: the weights of the integers from low to high, shape (values, high - low + 1).

    Only the two integers next to a value have weights above zero: 2.25 gives 0.75 for 2 and 0.25 for 3.
    """
    centres = np.arange(low, high + 1)
    weights: FloatArray = np.maximum(0.0, 1 - np.abs(np.clip(values, low, high)[:, None] - centres))
    return weights


def _machine(gpu: GPU) -> tuple[float, ...]:
    peak = gpu.peak_flops["fp32"]
    return (
        gpu.generation - 7,
        math.log(peak / gpu.memory_bandwidth) - 2.5,
        math.log(gpu.sms) - 4,
        math.log(gpu.power_limit_w / (peak / 1e12)) - 2.5,
        math.log(gpu.l2_bytes / gpu.sms / 1e5),
        float(gpu.has_hbm),
    )


def _put_work(token: NDArray[np.float32], n: Any, gpu: GPU, least: LeastTimes) -> None:
    balance = np.log((least.compute_s + _LEAST_S) / (least.memory_s + _LEAST_S))
    cycles = np.log(least.time_s * gpu.boost_clock_mhz * 1e6)
    touched = n.element_bytes * (n.input_size + n.output_size + n.parameters)
    token[:, 0], token[:, 1], token[:, _TOUCHED] = balance / 4, cycles / 4 - 3, np.log(touched / gpu.l2_bytes) / 4
    places = np.hstack([_between(balance, -6, 6), _between(cycles, 6, 19)])
    token[:, _PLACES : _PLACES + places.shape[1]] = places


def _put_waves(token: NDArray[np.float32], n: Any, gpu: GPU) -> None:
    """Write the waves of thread blocks into the token, for operations as batched matrix products."""
    batch, rows, columns = n.batch, n.rows, n.columns
    waves = [tile_count(rows, columns, tile, batch) / gpu.sms for tile in _TILES]
    waves += [n.output_size / _ELEMENTS_PER_BLOCK / gpu.sms, batch * rows / gpu.sms]
    for place, wave in enumerate(waves):
        token[:, 2 * place], token[:, 2 * place + 1] = np.log(wave) / 4, wave / np.ceil(wave)
    blocks = tile_count(rows, columns, Tile(128, 128), batch) / gpu.sms
    places = _between(np.log2(blocks), -7, 11)
    token[:, 2 * len(waves) : 2 * len(waves) + places.shape[1]] = places


def _physics(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    seen = relative_features(operations, gpu)[:, _PHYSICS]
    seen[:, _NO_LOGARITHMS] = np.arcsinh(seen[:, _NO_LOGARITHMS])
    return seen


def _one_size(n: FloatArray) -> FloatArray:
    octave = np.log2(n)
    return np.column_stack(
        [
            _between(octave, 0, 20),
            octave / 6,
            n / 2 ** np.ceil(octave),
            *(n / padded(n, tile) for tile in _FILLS),
            *(n % divisor == 0 for divisor in _DIVISORS),
        ]
    )


def _pair(value: Any) -> tuple[float, float]:
    if isinstance(value, tuple):
        return float(value[0]), float(value[-1])
    return (float(value), float(value)) if isinstance(value, int) else (0.0, 0.0)


@lru_cache(maxsize=_CACHED)
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


@lru_cache(maxsize=_CACHED)
def _channels(operation: Operation) -> tuple[float, ...]:
    inputs, attributes = operation.input_shapes[0] or (1,), operation.attributes
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
