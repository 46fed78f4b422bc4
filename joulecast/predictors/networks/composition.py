"""The composition of a network's time and energy from those of its operations.

Single operations were timed in loops that may wait for the host. In a network the host runs ahead of the device, so the
times of loops do not add up to the time of the network. Device times and dynamic energies do add up:

    T = max(sum of device times, sum of host times),    E = sum of dynamic energies + static power x T

The maximum is smooth, as for a single operation (physics/norms.py): if device and host take about the same time, each
waits for the other now and then.

The host time of a call differs between a network and a loop. In inference it is a little longer in a network, because
modules call modules. In training it is about 0.13 ms shorter, because a loop starts the autograd engine for every
single operation. The difference is one number per GPU and mode, which is learned from measured networks. So are the
cost of operations in TF32 and the power of a waiting board (see the table of effects in docs/how-it-works.md).

How a network is run, and on which host, decide the host time, which no GPU can shorten. Eager PyTorch launches one
operation after the other, and the device waits when the host is slower. A CUDA graph is recorded once: the host then
launches all of its kernels together. torch.compile generates kernels that compute several operations at once
(operations/fusion.py). It launches them from code that it generated for this network, which takes less time than
PyTorch's dispatcher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, total
from ...errors import unknown_name
from ...hardware.host import USUAL, Host
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ..board.profile import BoardProfile
from ..formats.numbers import number
from ..operation_predictions import OperationPredictions
from ..physics.norms import smooth_max
from ..physics.operation_numbers import KIND_PLACES, numbers_of
from ..physics.power_cap import Jobs

ExecutionName = Literal["eager", "graph", "compiled"]
EXECUTIONS: tuple[ExecutionName, ...] = ("eager", "graph", "compiled")

GRAPH_LAUNCH_S = 10e-6
"""Seconds that the reference host needs to launch a whole graph. This is an assumption, about the time of one kernel
launch. No data of this project shows it; it is small compared with the time of any real network."""

COMPILED_CALL_S = 50e-6
"""Seconds that the reference host needs to enter a compiled function, where it checks that the compiled code fits the
inputs. This is an assumption. On a CPU, torch.compile with PyTorch 2.13 took 40 to 70 us more than the kernels of a
small network."""

COMPILED_LAUNCH_S = 8e-6
"""Seconds that the reference host needs for a launch from compiled code. This is an assumption. On the same CPU a
launch took 0.7 times as long as an operation of eager PyTorch, which takes about 12 us on the reference host."""

KERNELS_IN_TRAINING = 3
"""Kernels of an operation with its backward: forward, gradient of the input, gradient of the parameters."""


@dataclass(frozen=True)
class Execution:
    """How a network is run.

    Args:
        name: "eager": PyTorch as it is. "graph": recorded once and replayed as a CUDA graph.
            "compiled": by torch.compile with its default mode.
        host: The machine that launches the kernels.
        profile: What was measured on the board that it runs on; None for any board of the GPU.
        gap_s: Seconds for which the device waits after each operation. Loops of PyTorch contain such gaps already;
            the kernels of engines were measured without them.
    """

    name: ExecutionName = "eager"
    host: Host = USUAL
    profile: BoardProfile | None = field(default=None, compare=False)  # It does not change how a network is run.
    gap_s: float = 0.0

    @property
    def most_clock_mhz(self) -> float:
        """The highest clock that the board holds, in MHz; infinite where it holds all that are asked for."""
        return (self.profile and self.profile.most_clock_mhz) or math.inf

    @classmethod
    def of(cls, name: str, host: Host, profile: BoardProfile | None = None) -> Execution:
        """An execution by its name. Raises UnknownNameError: there is no execution of this name."""
        for known in EXECUTIONS:
            if name == known:
                return cls(known, host, profile)
        raise unknown_name("execution", name, EXECUTIONS)


EAGER = Execution()

MeasuredNetworks: TypeAlias = Sequence[tuple[FloatArray, OperationPredictions, float]]
"""For each measured network the calls of each operation per iteration, shape (operations,), the predictions of its
operations, and the measured value: seconds of an iteration, or watts."""

LEAST_HOST_S = 5e-6
"""About what a kernel launch alone takes. No call inside a network costs the host less."""

# Mode -> the difference on the A30, which is also the prior for a GPU without measured networks.
_PRIOR_OFFSET_S = {"inference": 5e-6, "training": -125e-6}
_MOST_OFFSET_S = 1.0  # of what is read from a file
_OFFSETS_S = np.arange(-200e-6, 60.1e-6, 1e-6)
# Log errors per second between the offset and its prior. Networks that the device decides show hardly anything of the
# host: without this, ResNets left out of the A30's networks came out 45 to 50 % too quick in small images.
_DRAWN = 1e3


@dataclass(frozen=True)
class HostModel:
    """The host time of a call inside a network, relative to that in a measurement loop.

    Args:
        offset_s: Seconds that a call takes longer in a network; negative if it takes less.
        learned: Whether the offset was learned from measured networks; otherwise it is a prior.
        execution: How networks are run, and on which host. The offset was learned from eager runs on the reference
            host.
        host: The host of `execution` on a certain GPU (`Host.of`); None if no GPU is chosen yet.
    """

    offset_s: float
    learned: bool = False
    execution: Execution = EAGER
    host: Host | None = None

    @property
    def launcher(self) -> Host:
        """The host that launches operations."""
        return self.host or self.execution.host

    @classmethod
    def prior(cls, mode: str) -> Self:
        """The offset to assume where no network was measured."""
        return cls(_PRIOR_OFFSET_S[mode])

    @classmethod
    def fit(cls, networks: MeasuredNetworks, mode: str) -> Self:
        """Learn the offset from measured networks. What they do not decide stays at the prior of the mode."""
        errors = np.zeros(len(_OFFSETS_S))
        for counts, predictions, measured_s in networks:
            device_s = np.nansum(counts * predictions.device_time_s)
            calls_s = _in_network_s(predictions, _OFFSETS_S[:, None])
            errors += abs(np.log(smooth_max(device_s, np.nansum(counts * calls_s, axis=1)) / measured_s))
        if not len(networks) or np.ptp(errors) < 1e-9:
            return cls.prior(mode)
        drawn = errors + _DRAWN * np.abs(_OFFSETS_S - _PRIOR_OFFSET_S[mode])
        return cls(float(_OFFSETS_S[drawn.argmin()]), learned=True)

    def calls_s(self, predictions: OperationPredictions) -> FloatArray:
        """Seconds that the host needs for a call of each operation inside a network, shape (operations,)."""
        match self.execution.name:
            case "graph":
                return np.zeros(len(predictions.operations))
            case "compiled":
                return predictions.host_time_s * self.launcher.factor  # (see `as_compiled`)
        return _in_network_s(predictions, self.offset_s) * self.launcher.factor

    def total_s(self, counts: FloatArray, predictions: OperationPredictions) -> float:
        """Seconds that the host needs for an iteration of a network; missing operations are left out."""
        return self.fixed_s + float(total(counts * self.calls_s(predictions)))

    @property
    def fixed_s(self) -> float:
        """Seconds that the host needs for an iteration of any network, in addition to those for each call."""
        launch_s = {"eager": 0.0, "graph": GRAPH_LAUNCH_S, "compiled": COMPILED_CALL_S}[self.execution.name]
        return launch_s * self.launcher.factor

    def device_s(self, counts: FloatArray, predictions: OperationPredictions) -> float:
        """Seconds that the device needs for an iteration of a network; missing operations are left out."""
        return float(total(counts * predictions.device_time_s) + self.execution.gap_s * counts.sum())

    def to_dict(self) -> dict[str, Any]:
        """The model as a dictionary."""
        return {"offset_s": self.offset_s, "learned": self.learned}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(number(value["offset_s"], -_MOST_OFFSET_S, _MOST_OFFSET_S), bool(value["learned"]))


def _in_network_s(predictions: OperationPredictions, offset_s: Any) -> FloatArray:
    """Seconds that the reference host needs for a call of each operation inside a network.

    The offset is by how much a call takes longer than in a loop; a number, or an array of shape (offsets, 1).
    """
    calls_s = np.maximum(predictions.host_time_s + offset_s, LEAST_HOST_S)
    # PyTorch copies inside other operators, such as a product that needs its batches contiguous, or a cast by autocast.
    # This is a launch without a call from Python: on an A10, bert_large and gpt2 in batches of 2 take 0.5 and 0.1 ms
    # longer than in batches of 1, for 73 and 36 copies more (energaizer2026).
    copies = numbers_of(predictions.operations).kind == KIND_PLACES["copy"]
    found = np.where(copies, LEAST_HOST_S + 0.0 * predictions.host_time_s, calls_s)
    alone = OperationList.of(predictions.operations).derived(_forward_alone)
    return np.where(alone, np.maximum(found / 2, LEAST_HOST_S), found)


def _forward_alone(operations: OperationList) -> NDArray[np.bool_]:
    """Which operations are forwards of training without a backward: the host launches half of their kernels."""
    alone = (operation.mode == "training" and not operation.has_backward for operation in operations)
    return np.fromiter(alone, dtype=bool, count=len(operations))


class Totals(NamedTuple):
    """A network as the sum of its operations: seconds and joules of an iteration, and seconds of device and host."""

    time_s: float
    energy_j: float
    device_time_s: float
    host_time_s: float


def counts_of(network: Network) -> FloatArray:
    """How often each operation of a network runs."""
    return np.array([entry.count for entry in network], dtype=float)


def overlap(device_s: Any, host_s: Any, dynamic_j: Any, static_w: Any, power_limit_w: Any) -> tuple[Any, Any]:
    """Seconds and joules of a network whose host and device work at the same time; numbers, or arrays over clocks."""
    time_s = smooth_max(device_s, host_s)
    return time_s, np.minimum(dynamic_j + static_w * time_s, power_limit_w * time_s)


def composed(jobs: Jobs, clock_mhz: FloatArray, gaps_s: FloatArray) -> FloatArray:
    """Totals of networks on GPUs whose host and device overlap, at clocks of their own.

    Args:
        jobs: The networks, with their GPUs and power caps.
        clock_mhz: Requested graphics clocks in MHz, shape (jobs, clocks).
        gaps_s: Seconds of an iteration for which the device waits between operations, shape (jobs, 1).

    Returns:
        The clock that all operations share under the power cap, the mean clock over device time, seconds, joules, and
        device seconds of an iteration, shape (5, jobs, clocks).
    """
    host_s, _, cap_w, _ = jobs.facts
    shared, busy_s, dynamic_j = jobs.settled(clock_mhz)
    time_s, energy_j = overlap(busy_s + gaps_s, host_s, dynamic_j, jobs.static_w(shared), cap_w)
    held = np.where(busy_s > 0, jobs.mean_mhz(shared, busy_s), clock_mhz)
    return np.array([shared, held, time_s, energy_j, busy_s + gaps_s])


def compose(counts: FloatArray, predictions: OperationPredictions, host: HostModel, power_limit_w: float) -> Totals:
    """Totals of a network whose host and device overlap; its energy is dynamic energies and static power. The default.

    Missing operations are left out; the caller lists them.
    """
    device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
    dynamic_j = float(total(counts * predictions.dynamic_energy_j))
    time_s, energy_j = overlap(device_s, host_s, dynamic_j, predictions.static_power_w, power_limit_w)
    return Totals(float(time_s), float(energy_j), device_s, host_s)


def plain_sum(counts: FloatArray, p: OperationPredictions) -> Totals:
    """Totals as plain sums of loop times and loop energies, as in the literature."""
    return Totals(*(float(total(counts * each)) for each in (p.time_s, p.energy_j, p.device_time_s, p.host_time_s)))


TF32_FACTORS = (0.8, 1.2)
"""The least and the most that is learned, and that an entry may hold."""

MOST_NETWORK_STATIC_W = 40.0
"""The most that is learned, and the most that an entry may hold."""

_FACTORS = np.arange(320, 481) / 400
_WATTS = np.arange(0.0, MOST_NETWORK_STATIC_W + 0.5)
_ALIKE = 1e-9  # Of values that are equally good, the smallest effect is taken.


def fit_tf32_factor(networks: MeasuredNetworks, host: HostModel) -> float:
    """Factor on operations in TF32 such that the times of networks come out best.

    It is the one with the smallest sum of errors, as a median, over the networks that have operations in TF32 and take
    the device longer than the host. Few networks say little: of n, the n + 1st root of the nth power is taken, as if
    one more had shown a factor of 1.
    """
    errors, known = _ALIKE * abs(np.log(_FACTORS)), 0
    for counts, predictions, measured_s in networks:
        device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
        in_tf32_s = float(np.nansum((counts * predictions.device_time_s)[predictions.in_tf32]))
        if in_tf32_s and host_s < device_s:
            known += 1
            errors += abs(np.log(smooth_max(device_s + (_FACTORS - 1) * in_tf32_s, host_s) / measured_s))
    return float(_FACTORS[errors.argmin()] ** (known / (known + 1)))


def fit_network_static_w(networks: MeasuredNetworks, host: HostModel, power_limit_w: float) -> float:
    """Watts in addition to the static power of loops, such that the mean powers of networks come out best.

    Powers are compared, not energies, so that errors of time have no part in it. A network at the power cap draws no
    more with any addition; without any network it is 0. At lower clocks the addition is assumed to fall as static power
    does, which no measurement tests.
    """
    errors = _ALIKE * _WATTS
    for counts, predictions, measured_w in networks:
        dynamic_j = np.nansum(counts * predictions.dynamic_energy_j)
        device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
        static_w = predictions.static_power_w + _WATTS
        time_s, energy_j = overlap(device_s, host_s, dynamic_j, static_w, power_limit_w)
        errors = errors + abs(np.log(energy_j / time_s / measured_w))
    return float(_WATTS[errors.argmin()])
