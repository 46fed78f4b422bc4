"""A model of measurement loops over one operation, with a few constants for each group of operations.

An operation that is timed alone in a loop takes max(device, host): the time of the GPU's work, or the time that Python
and the driver need to launch it. The power shows which of the two it was. A GPU that waits draws static power only, so

    P_loop = P_static + busy x (P_active - P_static)

where busy is the share of time in which the GPU works. The dynamic energy (P_loop - P_static) x t_loop does not depend
on the host at all.

The constants are derived from measurements, group by group. A group is a kind in a precision, such as "conv2d tf32",
because another precision runs other kernels. Predictors learn the rest that these constants do not explain, and the
composition of networks uses them to turn loop times into device times and dynamic energies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ..formats.numbers import number, numbers
from .norms import smooth_max

_HOST_QUANTILE = 0.05  # The fastest loops of a kind show the host time. A quantile, because the fastest is an outlier.
_CLEARLY_DEVICE = 3.0  # A loop that takes at least this multiple of the host time is bound by the device.
# Loops that take less than this multiple of the host time may have waited for the host, so low power means waiting. In
# longer loops, low power means that few multiprocessors work.
_DEVICE_DECIDES = 2.0
_STATIC_QUANTILE = 0.01  # Quantile of all loop powers that is taken as static power.
_ACCUMULATION_PASSES = 3  # Adding a gradient to the one before takes two reads and one write.
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
"""Family -> measured kinds whose constants are used for an unmeasured kind of the family, the most similar first."""


def stand_ins(operation: Operation) -> tuple[str, ...]:
    """The kind of an operation, and those whose constants are used where it was not measured."""
    return (operation.kind, *(() if operation.row.measured_only else STAND_INS[operation.row.family]))


def group_of(operation: Operation, gpu: GPU) -> str:
    """The group of an operation on a GPU: its kind and the precision in which it really runs there.

    Raises:
        InputError: The GPU does not support the precision.
    """
    return f"{operation.kind} {gpu.running_precision(operation.precision)}"


@dataclass(frozen=True)
class GroupConstants:
    """Constants of the measurement loops of one group.

    Args:
        host_s: Measuring method -> seconds that the host needs for a launch.
        slowdown: Median of loop time over that by physics, over loops that are bound by the device.
        device_slowdown: The same without the time that only a loop spends, such as accumulating gradients.
        active_power_w: Median board power in watts of loops that are bound by the device.
        large_loops: Number of loops that are bound by the device; the three constants before come from these.
    """

    host_s: Mapping[str, float]
    slowdown: float
    device_slowdown: float
    active_power_w: float
    large_loops: int = 0


class Loops(NamedTuple):
    """Predicted or measured loops of operations: seconds of one iteration and mean board power, shape (operations,)."""

    time_s: FloatArray
    power_w: FloatArray


class DeviceCosts(NamedTuple):
    """What operations cost inside a network as well: device seconds and joules above static power, (operations,)."""

    time_s: FloatArray
    dynamic_energy_j: FloatArray


@dataclass(frozen=True)
class Baseline:
    """The model of measurement loops on one GPU in one mode.

    Args:
        groups: Group -> its constants.
        static_power_w: Board power in watts while the GPU waits for the host at its full clock.
        method: The measuring method whose host times are used by default.
        accumulates_gradients: Measuring methods whose loops add the gradients of input and parameters to those of the
            iteration before. A network does not do so for its activations.
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
        methods: Sequence[str],
        physics_s: FloatArray,
        gpu: GPU,
        accumulates_gradients: frozenset[str] = frozenset(),
    ) -> Self:
        """Derive the constants from measured loops.

        Args:
            operations: The measured operations.
            loops: Their times and powers; NaN where a power is not usable.
            methods: Measuring method of each loop.
            physics_s: Seconds of each operation by physics, shape (operations,).
            gpu: The GPU that they were measured on.
            accumulates_gradients: The methods whose loops accumulate gradients.
        """
        has_power = ~np.isnan(loops.power_w)
        group_of_each, method_array = np.array([group_of(each, gpu) for each in operations]), np.array(methods)
        groups = {group: group_of_each == group for group in sorted(set(group_of_each.tolist()))}
        names, counts = np.unique(method_array, return_counts=True)
        host_s = {group: _host_times_s(loops.time_s[mine], method_array[mine], names) for group, mine in groups.items()}
        own_host_s = np.array([host_s[group][method] for group, method in zip(group_of_each, methods, strict=True)])
        # An identity has no work to relate its time to.
        works = np.array([not operation.is_identity for operation in operations])
        large = works & (loops.time_s > _CLEARLY_DEVICE * own_host_s)
        accumulates = np.array([method in accumulates_gradients for method in methods])
        artefact_s = np.where(accumulates, _artefact_s(operations, loops.time_s, gpu), 0.0)
        slower = {
            "slowdown": loops.time_s / physics_s,
            "device_slowdown": (loops.time_s - artefact_s) / physics_s,
        }
        in_large = {group: mine & large for group, mine in groups.items()}
        medians = {
            name: {group: float(np.median(each[some])) for group, some in in_large.items() if some.any()}
            for name, each in slower.items()
        }
        typical_w = float(np.median(loops.power_w[large & has_power if (large & has_power).any() else has_power]))
        constants = {}
        for group, mine in groups.items():
            powered = in_large[group] & has_power
            constants[group] = GroupConstants(
                host_s=host_s[group],
                **{
                    name: medians[name].get(group) or _bounded_slowdown(each[mine & works], [*medians[name].values()])
                    for name, each in slower.items()
                },
                active_power_w=float(np.median(loops.power_w[powered])) if powered.any() else typical_w,
                large_loops=int(in_large[group].sum()),
            )
        return cls(
            groups=constants,
            static_power_w=float(np.quantile(loops.power_w[has_power], _STATIC_QUANTILE)),
            method=str(names[np.argmax(counts)]),
            accumulates_gradients=accumulates_gradients,
        )

    def stand_in(self, operation: Operation, gpu: GPU) -> str | None:
        """The measured group whose constants are used for an operation: its own, a similar one, or None."""
        for kind in stand_ins(operation):
            group = f"{kind} {gpu.running_precision(operation.precision)}"
            if group in self.groups:
                return group
        return None

    def host_s(self, groups: Sequence[str], methods: Sequence[str] | None = None) -> FloatArray:
        """Seconds that the host needs for a launch in a measurement loop, shape (operations,).

        Without methods, that of the default method.
        """
        if methods is None:
            return self._of_each(groups, lambda constants: constants.host_s[self.method])
        return np.array([self.groups[group].host_s[method] for group, method in zip(groups, methods, strict=True)])

    def device_s(self, groups: Sequence[str], physics_s: FloatArray) -> FloatArray:
        """Device seconds by the constants of the groups, without what only a loop spends; shape (operations,)."""
        device_s: FloatArray = physics_s * self._of_each(groups, lambda constants: constants.device_slowdown)
        return device_s

    def loop_s(self, groups: Sequence[str], physics_s: FloatArray, methods: Sequence[str] | None = None) -> FloatArray:
        """Loop seconds by the constants of the groups, a smooth max(device, host); shape (operations,).

        Without methods, by the default method.
        """
        device_s = physics_s * self._of_each(groups, lambda constants: constants.slowdown)
        loop_s: FloatArray = smooth_max(self.host_s(groups, methods), device_s)
        return loop_s

    def active_power_w(self, groups: Sequence[str]) -> FloatArray:
        """Board power in watts while the device works on operations of these groups, shape (operations,)."""
        return self._of_each(groups, lambda constants: constants.active_power_w)

    def _of_each(self, groups: Sequence[str], value: Callable[[GroupConstants], float]) -> FloatArray:
        known = {group: value(self.groups[group]) for group in set(groups)}
        return np.fromiter(map(known.__getitem__, groups), dtype=float, count=len(groups))

    def device_costs(
        self, operations: Sequence[Operation], groups: Sequence[str], loops: Loops, gpu: GPU
    ) -> DeviceCosts:
        """Remove from loops what a network does not spend: waiting for the host, and accumulating gradients.

        In a loop that may be bound by the host, the device worked for a share of the time that follows from the power.
        """
        active_w = np.maximum(self.active_power_w(groups) - self.static_power_w, 1.0)
        dynamic_w = np.maximum(loops.power_w - self.static_power_w, 0.0)
        busy = np.clip(dynamic_w / active_w, 0.0, 1.0)
        device_s = np.where(loops.time_s > _DEVICE_DECIDES * self.host_s(groups), loops.time_s, loops.time_s * busy)
        energy_j = dynamic_w * loops.time_s
        if self.method in self.accumulates_gradients:
            artefact_s = _artefact_s(operations, device_s, gpu)
            # Accumulation draws about as much power as the rest, so the energy shrinks by the same factor as the time.
            energy_j = energy_j * (1 - artefact_s / np.maximum(device_s, 1e-15))
            device_s = device_s - artefact_s
        return DeviceCosts(device_s, energy_j)

    def to_dict(self) -> dict[str, Any]:
        """The constants as plain dictionaries."""
        return {
            "static_power_w": self.static_power_w,
            "method": self.method,
            "accumulates_gradients": sorted(self.accumulates_gradients),
            "groups": {group: {**vars(row), "host_s": dict(row.host_s)} for group, row in self.groups.items()},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            groups={
                group: GroupConstants(
                    host_s=numbers(row["host_s"]),
                    **{name: number(row[name]) for name in ("slowdown", "device_slowdown", "active_power_w")},
                    large_loops=int(number(row["large_loops"])),
                )
                for group, row in value["groups"].items()
            },
            static_power_w=number(value["static_power_w"]),
            method=value["method"],
            accumulates_gradients=frozenset(value["accumulates_gradients"]),
        )


def _bounded_slowdown(host_bound: FloatArray, of_other_groups: Sequence[float]) -> float:
    """Slowdown of a group whose loops are all bound by the host: the median of the other groups, or less.

    No loop is quicker than its device, so each loop's time over that by physics is an upper limit.
    """
    usual = [float(np.median(of_other_groups))] if of_other_groups else []
    return min([*usual, *host_bound.tolist()], default=1.0)


def _host_times_s(time_s: FloatArray, methods: NDArray[np.str_], names: NDArray[np.str_]) -> dict[str, float]:
    """Measuring method -> host seconds of one group; a method that lacks the group gets the least of the others."""
    known = {
        str(name): float(np.quantile(time_s[methods == name], _HOST_QUANTILE)) for name in names if name in methods
    }
    return {str(name): known.get(str(name), min(known.values())) for name in names}


def _artefact_s(operations: Sequence[Operation], device_s: FloatArray, gpu: GPU) -> FloatArray:
    """Seconds of each device time that are spent on accumulating the gradients of input and parameters."""
    moved = np.array([_ACCUMULATION_PASSES * 4.0 * (op.input_size + op.parameters) for op in operations])
    own = np.array([float(op.bytes_read + op.bytes_written) for op in operations])
    # If the data lies in the cache, accumulation is as much quicker as the rest. It then takes its share of the bytes.
    artefact_s: FloatArray = np.minimum(
        moved / (gpu.memory_bandwidth * _REACHED_BANDWIDTH), device_s * moved / (moved + own)
    )
    return artefact_s
