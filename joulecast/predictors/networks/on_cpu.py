"""Networks on a CPU, which runs one operation after the other: the one place that says how their times add up.

    T = factor x sum of the times of operations + calls x between

Unlike a GPU's host, Python and the dispatcher cannot run ahead, so nothing overlaps. In a network an operation reads
what the one before has just written, which may still lie in a cache, while loops read each input from memory: the
factor may be below 1. Between operations, modules call modules. Both constants are learned from networks that were
measured whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from ... import checked
from ...arrays import FloatArray
from ...errors import InputError
from ...hardware.host import USUAL, find_cpu
from ...operations.network import Network
from ...rendering.answers import Plain
from ..contract import INPUT_NAMES, Files, Regressor
from ..cpu import CallModel, CpuPredictor, PredictedCalls, as_run
from ..formats.numbers import errors_to_text, number, require_features, sorted_errors
from ..intervals.network_calibration import NetworkSpread
from .composition import EAGER, EXECUTIONS, Execution, counts_of
from .costs import Bound, Coverage, OperationCost
from .memory import memory_need
from .prediction import Composition, Prediction

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
