"""Operations and networks on one model of CPU.

The constants of operations were all measured, because there is no data sheet to start from. PyTorch runs an operation
on a CPU before it returns, so that a loop over it takes

    t = call + slowdown x max(FLOPs / rate, bytes / bandwidth)

The call is what Python and PyTorch's dispatcher need for an operation without work. Rate and bandwidth are close to the
best that any measured operation reached. The slowdown is one number per group, a kind in a precision. Regressors learn
what these constants do not explain.

A CPU runs one operation of a network after the other; this is the one place that says how their times add up:

    T = factor x sum of the times of operations + calls x between

Unlike a GPU's host, Python and the dispatcher cannot run ahead, so nothing overlaps. In a network an operation reads
what the one before has just written, which may still lie in a cache, while loops read each input from memory: the
factor may be below 1. Between operations, modules call modules. Both constants are learned from networks that were
measured whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ... import checked
from ...arrays import FloatArray
from ...errors import InputError
from ...hardware import CPU
from ...hardware.host import USUAL, find_cpu
from ...operations.network import Network
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...rendering.answers import Plain
from ..contract import INPUT_NAMES, Files, Regressor, regressor_inputs, require_mode
from ..formats.numbers import errors_to_text, number, numbers, require_features, sorted_errors
from ..intervals.network_calibration import NetworkSpread
from ..operation_predictions import Source
from ..physics.baseline import stand_ins
from ..physics.operation_numbers import numbers_of
from ..physics.relative import same_everywhere
from ..physics.variants import whole_operations, work_shares
from .composition import EAGER, EXECUTIONS, Execution, counts_of
from .costs import Bound, Coverage, OperationCost
from .memory import memory_need
from .prediction import Composition, Prediction

_REACHED = 0.95  # Quantile of rates and bandwidths; the very best one may be an outlier.
_LEAST_S = 1e-9


def as_run(operation: Operation) -> Operation:
    """The operation in the precision in which a CPU runs it: what a GPU runs in TF32, a CPU runs in fp32."""
    return operation.replace(precision="fp32") if operation.precision == "tf32" else operation


def group_of(operation: Operation) -> str:
    """The group of an operation: its kind in its precision."""
    return f"{operation.kind} {operation.precision}"


@dataclass(frozen=True)
class CallModel(Plain):
    """Constants of calls on one CPU in one mode.

    Args:
        call_s: Seconds that a call takes without any work.
        flops_per_s: Rate of arithmetic that the best operations reach.
        bytes_per_s: Bandwidth that the best operations reach.
        slowdowns: Group -> median of time beyond the call over the time that rate and bandwidth allow.
    """

    call_s: float
    flops_per_s: float
    bytes_per_s: float
    slowdowns: Mapping[str, float]

    @classmethod
    def fit(cls, operations: Sequence[Operation], time_s: FloatArray) -> Self:
        """Derive the constants from measured operations."""
        n, call_s = numbers_of(operations), float(time_s.min())
        product = n.is_product > 0
        rates = n.flops[product] / time_s[product] if product.any() else n.flops / time_s + 1
        bandwidths = (n.bytes_read + n.bytes_written) / time_s
        flops_per_s, bytes_per_s = (float(np.quantile(each, _REACHED)) for each in (rates, bandwidths))
        slower = np.maximum(time_s - call_s, _LEAST_S) / cls(call_s, flops_per_s, bytes_per_s, {}).least_s(operations)
        groups = np.array([group_of(operation) for operation in operations])
        slowdowns = {str(group): float(np.median(slower[groups == group])) for group in np.unique(groups)}
        return cls(call_s, flops_per_s, bytes_per_s, slowdowns)

    def stand_in(self, operation: Operation) -> str | None:
        """The measured group whose slowdown is used for an operation: its own, a similar one, or None."""
        groups = (f"{kind} {operation.precision}" for kind in stand_ins(operation))
        return next((group for group in groups if group in self.slowdowns), None)

    def least_s(self, operations: Sequence[Operation]) -> FloatArray:
        """Seconds that rate and bandwidth allow, shape (operations,)."""
        least_s: FloatArray = np.maximum(np.maximum(*self.parts_s(operations)), _LEAST_S)
        return least_s

    def parts_s(self, operations: Sequence[Operation]) -> tuple[FloatArray, FloatArray]:
        """Seconds of arithmetic and of memory by rate and bandwidth, shape (operations,) each."""
        n = numbers_of(operations)
        return n.flops / self.flops_per_s, (n.bytes_read + n.bytes_written) / self.bytes_per_s

    def time_s(self, operations: Sequence[Operation], groups: Sequence[str]) -> FloatArray:
        """Seconds per call by the constants alone, shape (operations,)."""
        return self.call_s + np.array([self.slowdowns[group] for group in groups]) * self.least_s(operations)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        call_s, flops_per_s, bytes_per_s = (number(value[name]) for name in ("call_s", "flops_per_s", "bytes_per_s"))
        return cls(call_s, flops_per_s, bytes_per_s, numbers(value["slowdowns"]))


@dataclass(frozen=True)
class PredictedCalls:
    """Costs of operations that run one after the other, one value per operation; NaN where missing.

    Args:
        power_w: Mean power during a call, shape (operations,); NaN where no power was measured.
        source: measured (the predictor was trained on this very operation), modelled, or missing.
    """

    operations: OperationList
    time_s: FloatArray
    power_w: FloatArray
    source: tuple[Source, ...]

    @property
    def energy_j(self) -> FloatArray:
        """Joules per call, shape (operations,); NaN where no power was measured."""
        return self.time_s * self.power_w

    @property
    def device_time_s(self) -> FloatArray:
        """Seconds that the CPU works on a call: all of them."""
        return self.time_s

    @property
    def dynamic_energy_j(self) -> FloatArray:
        """Joules that a call causes: all of them, because the idle power of a CPU is not known by itself."""
        return self.energy_j


@dataclass(frozen=True, eq=False)
class CpuPredictor:
    """Predicts single operations on a CPU.

    Args:
        time: Predicts the logarithm of the time over that by the constants.
        power: Predicts power over `typical_power_w`; None where no power was measured.
        typical_power_w: Median power of the measured operations; 0 where no power was measured.
        measured: Digests of the operations that it was trained on.
    """

    cpu: CPU
    mode: str
    threads: int
    calls: CallModel
    time: Regressor
    power: Regressor | None = None
    typical_power_w: float = 0.0
    measured: frozenset[str] = frozenset()

    @property
    def coverage(self) -> tuple[str, ...]:
        """The groups that were measured."""
        return tuple(self.calls.slowdowns)

    def predict(self, operations: Sequence[Operation], clock_mhz: float | None = None) -> PredictedCalls:
        """Predict operations. Raises InputError: an operation of another mode, or a clock."""
        self.cpu.checked_clock_mhz(clock_mhz)
        asked = OperationList(map(as_run, operations))
        require_mode(asked, self.mode)
        listed = whole_operations(asked)
        groups = [self.calls.stand_in(operation) for operation in listed]
        covered = np.array([group is not None for group in groups], dtype=bool)
        values = np.full((2, len(listed)), np.nan)
        some = listed.some(covered)
        if some:
            own = np.array([group_of(operation) for operation in some]) == np.array(list(filter(None, groups)))
            inputs, by_constants_s = call_inputs(some, self.calls, [group for group in groups if group is not None])
            # What was learned of one kind does not hold for another, for which it only stands in.
            values[0, covered] = by_constants_s * np.where(own, np.exp(self.time(inputs)), 1.0)
            if self.power is not None:
                values[1, covered] = self.typical_power_w * np.where(own, self.power(inputs), 1.0)
        sources: list[Source] = [
            "missing" if group is None else "measured" if operation.digest in self.measured else "modelled"
            for operation, group in zip(asked, groups, strict=True)
        ]
        return PredictedCalls(asked, values[0] * work_shares(asked, listed), values[1], tuple(sources))


def call_inputs(
    operations: Sequence[Operation], calls: CallModel, groups: Sequence[str]
) -> tuple[NDArray[np.float32], FloatArray]:
    """What regressors see of operations, shape (operations, len(INPUT_NAMES)), and their seconds by the constants.

    The columns are those of GPUs' own predictors; those that say something about a GPU are 0.
    """
    time_s = calls.time_s(operations, groups)
    matrix = OperationList.of(operations).derived(same_everywhere)
    return regressor_inputs(matrix, time_s, np.full(len(time_s), calls.call_s)), time_s


COMPOSITION: Composition = "serial"
_CLEARLY_WORK = 2.0  # A call that takes at least this multiple of an empty call is bound by its work.


@dataclass(frozen=True)
class SerialModel(Plain):
    """How the times of operations add up to that of a network.

    Args:
        factor: Time of operations in a network over that in loops.
        between_s: Seconds between two operations.
        networks: Number of measured networks that both were learned from; 0 where they are assumed.
    """

    factor: float = 1.0
    between_s: float = 0.0
    networks: int = 0

    def parts_s(self, counts: FloatArray, time_s: FloatArray) -> tuple[float, float]:
        """Seconds of the operations of a network, and between them; missing operations are left out."""
        return self.factor * float(np.nansum(counts * time_s)), self.between_s * float(counts.sum())

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(number(value["factor"]), number(value["between_s"]), int(number(value["networks"])))


@dataclass(frozen=True, eq=False)
class CpuNetworkPredictor:
    """Predicts networks on one CPU in one mode.

    Args:
        name: Name of the zoo entry, such as "cpu-amd-epyc/forest-inference".
        network_errors: Quantity ("time" and, where power was measured, "power", "energy" and "edp") -> sorted absolute
            log errors on networks that were left out; empty where no network was measured.
        recipe: Name of the predictor in its recipe, which says how its regressors are stored.
    """

    name: str
    operations: CpuPredictor
    serial: SerialModel
    network_errors: Mapping[str, tuple[float, ...]]
    recipe: str = "forest"

    def under(self, execution: Execution) -> Self:
        """The predictor itself: on a CPU only eager runs were measured, and there is no host beside it.

        Raises InputError: another execution, a host, or the calibration of a GPU.
        """
        if execution.profile is not None:
            execution.profile.check_gpu(self.operations.cpu.name)
        if execution.name != EAGER.name or execution.host is not USUAL:
            raise InputError(
                "on a CPU only eager runs are predicted, and the CPU is its own host",
                given=f"execution={execution.name!r}, host={execution.host.name!r}",
                allowed=f"execution={EAGER.name!r} and no host; GPUs have {', '.join(EXECUTIONS)}",
                hint="omit execution and host",
            )
        return self

    def predict(self, network: Network, *, composition: str | None = None, strict: bool = False) -> Prediction:
        """Predict one iteration of a network, in the precisions in which a CPU runs it.

        Raises InputError: another composition, or operations of another mode. Raises UncoveredError: too much of the
        network is not covered; in strict mode, anything is not.
        """
        if composition not in (None, COMPOSITION):
            raise InputError("unknown composition on a CPU", given=repr(composition), allowed=COMPOSITION)
        entries = tuple(replace(entry, operation=as_run(entry.operation)) for entry in network.entries)
        network = replace(network, entries=entries)
        calls, counts = self.operations.predict(network.operations), counts_of(network)
        coverage = Coverage.of(network, calls.source, self.name)
        coverage.refuse_too_much(network.name, strict=strict)
        work_s, between_s = self.serial.parts_s(counts, calls.time_s)
        costs = tuple(self._costs(network, calls, counts, (work_s + between_s) / work_s if work_s else 1.0))
        energies_j = [cost.energy_j for cost in costs if cost.energy_j is not None]
        errors, spread = self.network_errors, None
        if errors and coverage.share is not None:
            basis = f"{len(errors['time'])} measurements of networks on this CPU, each left out by name"
            spread = NetworkSpread(errors, dict.fromkeys(errors, 1.0), coverage.share, False, basis, None)
        need = None if network.input_shape is None else memory_need(network)
        return Prediction(
            network=network.name,
            input_shape=network.input_shape,
            mode=network.mode,
            gpu=self.operations.cpu.name,
            clock_mhz=None,
            predictor=self.name,
            composition=COMPOSITION,
            time_s=work_s + between_s,
            energy_j=sum(energies_j) if energies_j else None,
            device_time_s=work_s,
            host_time_s=between_s,
            power_limit_w=None,
            held_clock_mhz=None,
            operations=costs,
            spread=spread,
            notes=tuple(self._notes(network, coverage)),
            coverage=coverage,
            host=self.operations.cpu.name,
            memory_bytes=None if need is None else need.weights_bytes + need.activations_bytes,
        )

    def _costs(
        self, network: Network, calls: PredictedCalls, counts: FloatArray, longer: float
    ) -> Iterator[OperationCost]:
        """The cost of each operation, all calls together.

        A network takes `longer` times as long as its operations. The CPU draws as much power between operations as in
        them, so their joules are longer by the same factor, and add up to the network's.
        """
        model, times_s = self.operations.calls, self.serial.factor * counts * calls.time_s
        compute_s, memory_s = model.parts_s(calls.operations)
        by_work = np.where(memory_s > compute_s, "memory", "compute")
        bounds = np.where(calls.time_s > _CLEARLY_WORK * model.call_s, by_work, "launch")
        columns = times_s, calls.power_w, longer * times_s * calls.power_w
        for entry, bound, source, *values in zip(network, bounds, calls.source, *columns, strict=True):
            # NaN stands for what is missing, or was not measured.
            seconds, watts, joules = (None if np.isnan(value) else float(value) for value in values)
            yield OperationCost(entry, seconds, watts, joules, source, cast(Bound, str(bound)), joules)

    def _notes(self, network: Network, coverage: Coverage) -> Iterator[str]:
        if coverage:
            yield str(coverage)
        yield from (f"assumed: {assumption}" for assumption in network.assumptions)
        threads = self.operations.threads
        yield (
            f"measured on a CPU of this name with {threads} thread{'s' if threads > 1 else ''} of PyTorch: with another"
            " number of threads, or beside other programs, it takes another time"
        )
        if self.operations.power is None:
            yield "energy: not measured, because the energy counters of this CPU could not be read"
        if not self.serial.networks:
            yield "fewer than three networks were measured on this CPU: its time is the sum of its operations"

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """How it is stored: facts, and the files of its regressors."""
        own = self.operations
        errors = {name: np.array(values) for name, values in self.network_errors.items()}
        facts = {
            "gpu": own.cpu.name,
            "mode": own.mode,
            "threads": own.threads,
            "inputs": list(INPUT_NAMES),
            "calls": own.calls.to_dict(),
            "typical_power_w": own.typical_power_w,
            "measured": sorted(own.measured),
            "recipe": self.recipe,
            "serial": self.serial.to_dict(),
            "network_errors": errors_to_text(errors),
        }
        return facts, {**own.time.to_files("time"), **({} if own.power is None else own.power.to_files("power"))}

    @classmethod
    def from_files(
        cls, name: str, facts: Mapping[str, Any], files: Files, regressor: Callable[[Files, str], Regressor]
    ) -> Self:
        """Read what `to_files` wrote; see `NetworkPredictor.from_files`.

        Raises ZooError, InputError, LookupError, TypeError, ValueError: it is something else.
        """
        require_features(facts["inputs"], INPUT_NAMES, name)
        typical_w = number(facts["typical_power_w"])
        operations = CpuPredictor(
            cpu=find_cpu(checked.name(facts["gpu"])),
            mode=facts["mode"],
            threads=int(number(facts["threads"])),
            calls=CallModel.from_dict(facts["calls"]),
            time=regressor(files, "time"),
            power=regressor(files, "power") if typical_w else None,
            typical_power_w=typical_w,
            measured=frozenset(facts["measured"]),
        )
        errors = {str(quantity): tuple(sorted_errors(e).tolist()) for quantity, e in facts["network_errors"].items()}
        return cls(name, operations, SerialModel.from_dict(facts["serial"]), errors, facts["recipe"])
