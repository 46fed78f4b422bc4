"""A step of an engine as a network that can be predicted at any clock: its kernels and its collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.entry import Entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.networks.prepared import NetworkPredictor, PreparedNetwork
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.clock import Work
from ..predictors.physics.least_times import LeastTimes
from .collectives import KINDS, collective_costs
from .engines import sampling_factors
from .run_energy import four_bit_factors, served_j, with_joules
from .steps import StepTokens

Places = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ServedStep(PreparedNetwork):
    """A step of fused kernels in CUDA graphs, whose times are those of the kernels as they were measured."""

    together: OperationPredictions  # Predictions of the operations of several steps at the default clock
    places: Places  # Index of each operation of this step in these predictions

    @cached_property
    def at_default(self) -> OperationPredictions:
        """Predictions of the operations of this step at the default clock."""
        # Their errors stay with those of all steps (`half_widths`).
        return replace(self.together, spread=None).take(self.places, self.network.operations)


def half_widths(step: PreparedNetwork, level: float) -> dict[str, FloatArray] | None:
    """Half widths of the intervals of each operation's time, power and energy in logarithms.

    Returns:
        Quantity -> half widths, shape (operations,); None if no errors are known.
    """
    found = step.together if isinstance(step, ServedStep) else step.at_default
    if found.spread is None:
        return None
    places = step.places if isinstance(step, ServedStep) else slice(None)
    return {quantity: half[places] for quantity, half in found.spread.log_errors(found, level).items()}


@dataclass(frozen=True)
class StepNetworks:
    """The operations of several steps, which are the same on every GPU."""

    networks: Mapping[StepTokens, Network]  # Tokens of a step -> its operations
    narrow: Mapping[Operation, float] = field(default_factory=dict)  # Operation with four-bit weights -> bytes of one
    samples_in_torch: bool = False  # Whether the engine samples by PyTorch's operations
    triton_experts: bool = False  # Whether kernels of Triton compute its experts

    @cached_property
    def together(self) -> Network:
        """All operations, each once."""
        each = dict.fromkeys(operation for network in self.networks.values() for operation in network.operations)
        return Network(tuple(map(Entry, each)))

    @cached_property
    def places(self) -> Mapping[StepTokens, Places]:
        """Tokens of a step -> index of each of its operations in `together`."""
        place_of = {operation: place for place, operation in enumerate(self.together.operations)}
        return {
            tokens: np.array([place_of[operation] for operation in network.operations])
            for tokens, network in self.networks.items()
        }

    def on(self, predictor: NetworkPredictor, power_limit_w: float) -> Mapping[StepTokens, PreparedNetwork]:
        """The steps on a GPU, predicted together, which takes less time than one after the other."""
        if predictor.host.execution.name == "eager":
            return {tokens: predictor.prepared(network, power_limit_w) for tokens, network in self.networks.items()}
        operations = predictor.operations
        found = operations.predict_for_network(self.together.operations, power_limit_w)
        if self.narrow:
            lighter = four_bit_factors(found, self.narrow)
            found = found.times(lighter, lighter)
        if self.samples_in_torch:
            longer = sampling_factors(found, operations.gpu)
            found = found.times(longer, longer)
        found = with_collectives(found, operations.gpu)
        joules = served_j(
            found.operations, found.device_time_s, operations.gpu, self.narrow, triton=self.triton_experts
        )
        found = with_joules(found, operations.gpu, joules)
        return {
            tokens: ServedStep(predictor, network, power_limit_w, together=found, places=self.places[tokens])
            for tokens, network in self.networks.items()
        }


def with_collectives(predictions: OperationPredictions, gpu: GPU) -> OperationPredictions:
    """Predictions of a step, completed by those of its collectives, which no predictor of kernels covers."""
    places = np.array([operation.kind in KINDS for operation in predictions.operations], dtype=bool)
    if not places.any() or predictions.work is None:
        return predictions
    seconds, joules = collective_costs(predictions.operations, gpu)
    still, clock = np.zeros(len(places)), float(gpu.boost_clock_mhz)
    # The time of a link does not depend on the graphics clock.
    parts = LeastTimes(still, np.nan_to_num(seconds), still)
    work = Work(gpu, np.full(len(places), clock), parts, still, still, np.nan_to_num(joules))

    def known(theirs: FloatArray, mine: FloatArray | float) -> FloatArray:
        return np.where(places, mine, theirs)

    power_w = predictions.static_power_w + joules / seconds
    return replace(
        predictions,
        time_s=known(predictions.time_s, seconds),
        power_w=known(predictions.power_w, power_w),
        energy_j=known(predictions.energy_j, power_w * seconds),
        device_time_s=known(predictions.device_time_s, seconds),
        dynamic_energy_j=known(predictions.dynamic_energy_j, joules),
        host_time_s=known(predictions.host_time_s, 0.0),
        held_clock_mhz=known(predictions.held_clock_mhz, clock),
        source=tuple("modelled" if here else each for here, each in zip(places, predictions.source, strict=True)),
        work=predictions.work.with_others(work, places),
    )
