"""What `predict_many` computes for some of its networks, here or on a worker of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..extraction import network_of
from ..hardware import GPU
from ..operations.columns import Calls, Columns, is_table, networks_of
from ..operations.network import Network
from ..predictors.networks.execution import Execution
from ..predictors.networks.many import NetworkPredictions, in_pieces, predict_networks
from ..predictors.physics.precisions import refuse_precisions
from ..zoo import find_predictor

if TYPE_CHECKING:
    from ..extraction.sources import InputShape, Model


@dataclass(frozen=True)
class ManyQuestion:
    """What `joulecast.predict_many` is asked about all of its networks. It can be sent to a worker of a cluster.

    Args:
        gpu: The GPU to predict for.
        clock: Graphics clock in MHz; None for the GPU's default.
        input_shape: Shape of the input of all networks; None for Networks, their files, or lists.
        power_limit_w: Power cap in watts; None for the board's default.
        mode: inference or training.
        precision: default, fp32, tf32, fp16 or bf16.
        predictor: Name or folder of a predictor; None for the GPU's default.
        composition: "overlap" or "sum"; None for the predictor's own.
        execution: How the networks are run, and on which host.
    """

    gpu: GPU
    clock: float | None
    input_shape: InputShape | None
    power_limit_w: float | None
    mode: str
    precision: str
    predictor: str | Path | None
    composition: str | None
    execution: Execution

    def predicted(self, networks: Iterable[Model] | Columns | Calls) -> NetworkPredictions:
        """The totals of networks, which are extracted one after the other."""
        predictor = find_predictor(self.gpu, self.mode, self.predictor).under(self.execution)
        pieces = self._pieces(networks)
        return predict_networks(predictor, pieces, self.clock, self.power_limit_w, composition=self.composition)

    def _pieces(self, networks: Iterable[Model] | Columns | Calls) -> Iterator[Calls]:
        if isinstance(networks, Calls):
            pieces: Iterable[Calls] = [networks]
        elif is_table(networks):
            pieces = networks_of(networks)
        else:
            pieces = in_pieces(self._extracted(model) for model in networks)
        for calls in pieces:
            refuse_precisions(self.gpu, calls.operations)
            yield calls

    def _extracted(self, model: Model) -> Network:
        return network_of(model, self.input_shape, mode=self.mode, precision=self.precision)
