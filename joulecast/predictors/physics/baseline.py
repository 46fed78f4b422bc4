"""What a measurement loop shows of an operation, as physics with a handful of constants per group.

An operation that is timed alone in a loop takes max(device, host): the GPU's work, or the time that Python and the
driver need to launch it. Its power tells the two apart: while the GPU waits it draws static power only, so
P_loop = P_static + busy x (P_active - P_static), and the dynamic energy (P_loop - P_static) x t_loop does not
depend on the host at all. The constants are read off the measurements, group by group (a group is a kind in a
precision, such as "conv2d tf32": other kernels run in another precision); predictors learn what they
leave unexplained, and composition uses them to turn loops into device time and dynamic energy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ..formats.numbers import number, numbers
from .norms import smooth_max

_HOST_QUANTILE = 0.05  # The fastest loops of a kind are host-bound; the very fastest is an outlier.
_CLEARLY_DEVICE = 3.0  # Times the host time, from where a loop counts as showing the device.
# Between the two a loop may wait or work; from twice the host time on, low power means few multiprocessors at work.
_DEVICE_DECIDES = 2.0
_STATIC_QUANTILE = 0.01
_ACCUMULATION_PASSES = 3  # Two reads and one write.
# Reached bandwidth over the data sheet's in simple elementwise kernels: 1/1.17 on the A30 (relu), 1/1.2 on the
# A100 (add, mul, relu; NeuSight).
_REACHED_BANDWIDTH = 1 / 1.17

STAND_INS: Mapping[str, tuple[str, ...]] = {
    "convolution": ("conv2d",),
    "matmul": ("linear", "matmul"),
    "attention": ("matmul", "linear"),
    "normalization": ("layer_norm", "batch_norm"),
    "elementwise": ("relu", "silu", "gelu"),
    # A softmax reads its rows as a layer norm does.
    "softmax": ("layer_norm", "batch_norm"),
    "pooling": ("adaptive_avg_pool2d", "max_pool2d"),
    "movement": ("relu", "copy"),
}
"""Family -> measured kinds, best first, that stand in for a kind of it that was not measured."""


def _group(kind: str, precision: str) -> str:
    return f"{kind} {precision}"


def group_of(operation: Operation, gpu: GPU) -> str:
    """The group of an operation on a GPU: its kind in the precision that it really runs in there.

    Raises:
        InputError: The GPU does not support the precision.
    """
    return _group(operation.kind, gpu.running_precision(operation.precision))


@dataclass(frozen=True)
class GroupConstants:
    """What the loops of one group have in common.

    Args:
        host_s: Seconds that launching it takes, by measuring method.
        slowdown: Loop time over roofline time of large ones.
        device_slowdown: The same for what a network pays of it, without the artefacts of the loop.
        active_power_w: Board power while the device works on large ones.
        large_loops: How many loops show the device, not the host; slowdown and power are read off these.
    """

    host_s: Mapping[str, float]
    slowdown: float
    device_slowdown: float
    active_power_w: float
    large_loops: int = 0


@dataclass(frozen=True)
class Loops:
    """Predicted or measured loops of operations, as arrays of one length: seconds and watts."""

    time_s: FloatArray
    power_w: FloatArray


@dataclass(frozen=True)
class DeviceCosts:
    """The part of loops that a network pays too: device seconds and dynamic joules, one value per operation."""

    time_s: FloatArray
    dynamic_energy_j: FloatArray


@dataclass(frozen=True)
class Baseline:
    """Constants of a GPU and mode, and the physics around them.

    Args:
        groups: Constants per measured group.
        static_power_w: Board power while the GPU waits for the host with its clocks up.
        method: The measuring method whose host times are meant when nothing else is said.
        accumulates_gradients: Methods whose loop adds the gradients of input and parameters to those of the
            iteration before, which a network does not do for its activations.
    """

    groups: Mapping[str, GroupConstants]
    static_power_w: float
    method: str
    accumulates_gradients: frozenset[str] = frozenset()

    @classmethod
    def fit(
        cls,
        operations: Sequence[Operation],
        loops: Loops,
        has_power: NDArray[np.bool_],
        methods: Sequence[str],
        roofline_s: FloatArray,
        gpu: GPU,
        accumulates_gradients: frozenset[str] = frozenset(),
    ) -> Self:
        """Read the constants off measured loops.

        Args:
            operations: What was measured.
            loops: Its times and powers.
            has_power: Where the power can be used.
            methods: How each loop was run.
            roofline_s: Roofline time of each operation.
            gpu: Where they were measured.
            accumulates_gradients: Which of the methods accumulate gradients.
        """
        groups = np.array([group_of(operation, gpu) for operation in operations])
        method_array = np.array(methods)
        names, counts = np.unique(method_array, return_counts=True)
        reference = str(names[np.argmax(counts)])
        host_s = {
            group: _host_times_s(loops.time_s[groups == group], method_array[groups == group], names)
            for group in sorted(set(groups.tolist()))
        }
        own_host_s = np.array([host_s[group][method] for group, method in zip(groups, methods, strict=True)])
        # An identity has no work to relate its time to.
        works = np.array([not operation.is_identity for operation in operations])
        large = works & (loops.time_s > _CLEARLY_DEVICE * own_host_s)
        slower = loops.time_s / roofline_s
        accumulates = np.array([method in accumulates_gradients for method in methods])
        artefact_s = np.where(accumulates, _artefact_s(operations, loops.time_s, gpu), 0.0)
        device_slower = (loops.time_s - artefact_s) / roofline_s
        typical_w = float(np.median(loops.power_w[large & has_power if (large & has_power).any() else has_power]))
        large_slowdowns = {
            group: (float(np.median(slower[mine])), float(np.median(device_slower[mine])))
            for group in host_s
            if (mine := large & (groups == group)).any()
        }
        constants = {}
        for group in host_s:
            mine = groups == group
            powered = mine & large & has_power
            slowdown, device_slowdown = large_slowdowns.get(group) or (
                _bounded_slowdown(slower[mine & works], [row[0] for row in large_slowdowns.values()]),
                _bounded_slowdown(device_slower[mine & works], [row[1] for row in large_slowdowns.values()]),
            )
            constants[group] = GroupConstants(
                host_s=host_s[group],
                slowdown=slowdown,
                device_slowdown=device_slowdown,
                active_power_w=float(np.median(loops.power_w[powered])) if powered.any() else typical_w,
                large_loops=int((mine & large).sum()),
            )
        return cls(
            groups=constants,
            static_power_w=float(np.quantile(loops.power_w[has_power], _STATIC_QUANTILE)),
            method=reference,
            accumulates_gradients=accumulates_gradients,
        )

    def stand_in(self, operation: Operation, gpu: GPU) -> str | None:
        """The measured group whose constants hold for an operation: its own, one like it, or None."""
        for kind in (operation.kind, *(() if operation.row.measured_only else STAND_INS[operation.row.family])):
            group = _group(kind, gpu.running_precision(operation.precision))
            if group in self.groups:
                return group
        return None

    def host_s(self, groups: Sequence[str], methods: Sequence[str] | None = None) -> FloatArray:
        """Seconds that launching each takes in a measurement loop."""
        if methods is None:
            return self._of_each(groups, lambda constants: constants.host_s[self.method])
        return np.array([self.groups[group].host_s[method] for group, method in zip(groups, methods, strict=True)])

    def device_s(self, groups: Sequence[str], roofline_s: FloatArray) -> FloatArray:
        """Device time of each as far as the group's constants tell, without the artefacts of a loop."""
        device_s: FloatArray = roofline_s * self._of_each(groups, lambda constants: constants.device_slowdown)
        return device_s

    def loop_s(self, groups: Sequence[str], roofline_s: FloatArray, methods: Sequence[str] | None = None) -> FloatArray:
        """Loop time of each as far as the group's constants tell: a smooth max(device, host)."""
        device_s = roofline_s * self._of_each(groups, lambda constants: constants.slowdown)
        loop_s: FloatArray = smooth_max(self.host_s(groups, methods), device_s)
        return loop_s

    def active_power_w(self, groups: Sequence[str]) -> FloatArray:
        """Board power while the device works on operations of these groups."""
        return self._of_each(groups, lambda constants: constants.active_power_w)

    def _of_each(self, groups: Sequence[str], value: Callable[[GroupConstants], float]) -> FloatArray:
        known = {group: value(self.groups[group]) for group in set(groups)}
        return np.fromiter(map(known.__getitem__, groups), dtype=float, count=len(groups))

    def device_costs(
        self, operations: Sequence[Operation], groups: Sequence[str], loops: Loops, gpu: GPU
    ) -> DeviceCosts:
        """Take off loops what a network does not pay: waiting for the host, and accumulating gradients.

        Where the loop is host-bound, the device was busy for the share of the time that the power tells.
        """
        active_w = np.maximum(self.active_power_w(groups) - self.static_power_w, 1.0)
        dynamic_w = np.maximum(loops.power_w - self.static_power_w, 0.0)
        busy = np.clip(dynamic_w / active_w, 0.0, 1.0)
        device_s = np.where(loops.time_s > _DEVICE_DECIDES * self.host_s(groups), loops.time_s, loops.time_s * busy)
        energy_j = dynamic_w * loops.time_s
        if self.method in self.accumulates_gradients:
            artefact_s = _artefact_s(operations, device_s, gpu)
            # Moving bytes draws about as much power as the rest, so energy shrinks as device time does.
            energy_j = energy_j * (1 - artefact_s / np.maximum(device_s, 1e-15))
            device_s = device_s - artefact_s
        return DeviceCosts(device_s, energy_j)

    def to_json(self) -> dict[str, Any]:
        """The constants as plain dictionaries."""
        return {
            "static_power_w": self.static_power_w,
            "method": self.method,
            "accumulates_gradients": sorted(self.accumulates_gradients),
            "groups": {
                group: {
                    "host_s": dict(row.host_s),
                    "slowdown": row.slowdown,
                    "device_slowdown": row.device_slowdown,
                    "active_power_w": row.active_power_w,
                    "large_loops": row.large_loops,
                }
                for group, row in self.groups.items()
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            groups={
                group: GroupConstants(
                    host_s=numbers(row["host_s"]),
                    slowdown=number(row["slowdown"]),
                    device_slowdown=number(row["device_slowdown"]),
                    active_power_w=number(row["active_power_w"]),
                    large_loops=int(number(row["large_loops"])),
                )
                for group, row in value["groups"].items()
            },
            static_power_w=number(value["static_power_w"]),
            method=value["method"],
            accumulates_gradients=frozenset(value["accumulates_gradients"]),
        )


def _bounded_slowdown(host_bound: FloatArray, of_other_groups: Sequence[float]) -> float:
    """Slowdown of a group whose loops all wait for the host: the usual one, if its quickest loop allows."""
    usual = [float(np.median(of_other_groups))] if of_other_groups else []
    return min([*usual, *host_bound.tolist()], default=1.0)


def _host_times_s(time_s: FloatArray, methods: NDArray[np.str_], names: NDArray[np.str_]) -> dict[str, float]:
    """Host time of one group by method; a method that left the group out launches about as fast as the others."""
    known = {
        str(name): float(np.quantile(time_s[methods == name], _HOST_QUANTILE)) for name in names if name in methods
    }
    return {str(name): known.get(str(name), min(known.values())) for name in names}


def _artefact_s(operations: Sequence[Operation], device_s: FloatArray, gpu: GPU) -> FloatArray:
    """Seconds of each device time that go into accumulating the gradients of input and parameters."""
    moved = np.array([_ACCUMULATION_PASSES * 4.0 * (op.input_size + op.parameters) for op in operations])
    own = np.array([float(op.bytes_read + op.bytes_written) for op in operations])
    # In the cache the artefact is as much quicker as the rest is; then its share of the bytes counts.
    artefact_s: FloatArray = np.minimum(
        moved / (gpu.memory_bandwidth * _REACHED_BANDWIDTH), device_s * moved / (moved + own)
    )
    return artefact_s
