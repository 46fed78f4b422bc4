"""Seconds and joules of collectives between the GPUs of a node.

The times of the engines' own collectives and of NCCL's were measured on six GPUs (benchmarks/generation_tables.py makes
the file). Between measured sizes they are interpolated in logarithms. A GPU that was not measured gets the times of the
measured GPU with the same kind of link and the most similar bandwidth. The part of a time beyond that of the smallest
message scales with the bandwidth.

Over PCI Express two GPUs were measured, which reach each other directly, at 20 GB/s. In a ring of n each sends n - 1 of
n parts of a message at that rate. Of the two servers with 8 L40S that were measured, one sums up 1 GB in 90 ms, where
this says 93, the other, without direct access, takes ten times as long, like some virtual machines.

The energy was not measured. Each byte that is sent is read, written and added, which are three accesses to memory, and
crosses the link, for which 5 pJ per bit are assumed. This is little compared with the static power of boards that wait
for each other.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from ..hardware import GPU, find_gpu
from ..operations.attributes import ELEMENT_BYTES
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.clock import Work
from ..predictors.physics.energy import PRIOR_ENERGY
from ..system.caches import remembered

FILE = "collectives.json.gz"
KINDS = frozenset({"all_reduce", "all_gather", "all_to_all"})
NCCL = "pytorch"
"""The implementation of collectives for which an engine calls NCCL."""

_LINK_J_PER_BYTE = 40e-12
_MEMORY_PASSES = 3
_HALF_BYTES = 2.0  # Messages were measured in elements of 16 bits.


class Curve(NamedTuple):
    """Times of a collective on a GPU by message size."""

    elements: Sequence[float]  # Message sizes in elements of 16 bits, of the larger of input and output, ascending
    seconds: Sequence[float]

    def at(self, elements: float) -> float:
        """Seconds at a size; proportional to it beyond the largest measured one."""
        if elements > self.elements[-1]:
            return self.seconds[-1] * elements / self.elements[-1]
        return float(np.exp(np.interp(math.log(elements), np.log(self.elements), np.log(self.seconds))))


@cache
def curves() -> Mapping[tuple[str, str, str, int], Curve]:
    """(GPU, implementation, kind, number of GPUs) -> the measured curve."""
    content = json.loads(gzip.decompress(files(__package__).joinpath(FILE).read_bytes()))
    return {
        (row["gpu"], row["implementation"], row["kind"], row["gpus"]): Curve(row["elements"], row["seconds"])
        for row in content["curves"]
    }


def collective_s(operation: Operation, gpu: GPU) -> float:
    """Seconds that a collective takes."""
    count, kind = operation.attributes["gpus"], operation.kind
    bytes_sent = size(operation.input_shapes[0]) * ELEMENT_BYTES[operation.precision]
    elements = max(1.0, bytes_sent / _HALF_BYTES * (count if kind == "all_gather" else 1))
    link = operation.attributes["link"]
    measured = min(count, 2) if link == "pcie" else count
    like = _measured_like(gpu, link, kind, measured)
    if like is None:
        raise InputError(
            "no collective of so many GPUs was measured",
            given=f"{kind} over {count} GPUs",
            allowed=", ".join(map(str, sorted({n for _, _, of, n in curves() if of == kind}))) or "none",
            hint="give another number of GPUs",
        )
    by_library = curves()[like.name, NCCL, kind, measured]
    curve = curves().get((like.name, operation.attributes["implementation"], kind, measured), by_library)
    least_s = curve.seconds[0]
    # A ring of n has n / 2 times the steps of a pair, in which each GPU sends 2 (n - 1) / n times as much.
    steps, sent = (count / 2, 2 * (count - 1) / count) if link == "pcie" else (1.0, 1.0)
    rate = _bandwidth(gpu, link) / _bandwidth(like, link)
    return steps * least_s + (curve.at(elements) - least_s) * sent / rate


def collective_j(operation: Operation) -> float:
    """Joules above static power of a collective, on each of its GPUs."""
    moved = size(operation.output_shape) * ELEMENT_BYTES[operation.precision]
    return moved * (_LINK_J_PER_BYTE + _MEMORY_PASSES * PRIOR_ENERGY.hbm_j_per_byte)


def with_collectives(predictions: OperationPredictions, gpu: GPU) -> OperationPredictions:
    """Predictions of a step, completed by those of its collectives, which no predictor of kernels covers."""
    places = np.array([operation.kind in KINDS for operation in predictions.operations], dtype=bool)
    if not places.any() or predictions.work is None:
        return predictions
    costs = [
        (collective_s(each, gpu), collective_j(each)) if here else (math.nan, math.nan)
        for each, here in zip(predictions.operations, places, strict=True)
    ]
    seconds, joules = np.array(costs).T
    still, clock = np.zeros(len(places)), float(gpu.boost_clock_mhz)
    # The time of a link does not depend on the graphics clock.
    seconds_known, joules_known = np.nan_to_num(seconds), np.nan_to_num(joules)
    work = Work(gpu, np.full(len(places), clock), still, seconds_known, still, still, still, joules_known)

    power_w = predictions.static_power_w + joules / seconds
    known: Mapping[str, FloatArray | float] = {
        "time_s": seconds,
        "device_time_s": seconds,
        "host_time_s": 0.0,
        "held_clock_mhz": clock,
        "power_w": power_w,
        "energy_j": power_w * seconds,
        "dynamic_energy_j": joules,
    }
    merged: dict[str, Any] = {
        name: np.where(places, values, getattr(predictions, name)) for name, values in known.items()
    }
    return replace(
        predictions,
        source=tuple("modelled" if here else each for here, each in zip(places, predictions.source, strict=True)),
        work=predictions.work.with_others(work, places),
        **merged,
    )


def _bandwidth(gpu: GPU, link: str) -> float:
    own = gpu.link_bandwidth if link == "nvlink" else gpu.pcie_bandwidth
    return own or find_gpu("L40S").pcie_bandwidth or 1.0


@remembered()  # Users choose the count.
def _measured_like(gpu: GPU, link: str, kind: str, count: int) -> GPU | None:
    names = sorted({name for name, library, *rest in curves() if library == NCCL and rest == [kind, count]})
    alike = [each for each in map(find_gpu, names) if bool(each.link_bandwidth) == (link == "nvlink")]
    # Of several with the same bandwidth, the same board under whatever name.
    return min(
        alike,
        key=lambda each: (abs(math.log(_bandwidth(each, link) / _bandwidth(gpu, link))), each.board != gpu.board),
        default=None,
    )
