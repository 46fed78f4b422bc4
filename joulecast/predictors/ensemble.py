"""Two opinions on one GPU: its own predictor, and the one for any GPU that has seen the others.

An operation that was measured is predicted as it was measured, and a kind that was measured over many sizes follows its
own forest. Where neither knows, the geometric mean of both is closer than either: convolutions of unseen sizes, for
which cuDNN may choose another algorithm, and kinds that were never measured here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..hardware import GPU
from ..operations import MODES, Operation
from .any_gpu import AnyGpuPredictor, Learned
from .baseline import group_of, smooth_max
from .boosting import DeviceRow, fit_any_gpu
from .predictor import OperationPredictions, OperationPredictor
from .recipe import BoostingRecipe

_LEAST_S = 1e-9


@dataclass(frozen=True)
class EnsemblePredictor:
    """A GPU's own predictor beside the one for any GPU.

    Args:
        own: Decides power, host time, and what is covered.
        other: Has a say in device times.
    """

    own: OperationPredictor
    other: AnyGpuPredictor

    @property
    def gpu(self) -> GPU:
        """Where it predicts."""
        return self.own.gpu

    @property
    def mode(self) -> str:
        """Inference or training."""
        return self.own.mode

    @property
    def coverage(self) -> tuple[str, ...]:
        """What its own predictor covers."""
        return self.own.coverage

    def predict(self, operations: Sequence[Operation], clock_mhz: float | None = None) -> OperationPredictions:
        """Predict operations on this GPU; see `OperationPredictor.predict`.

        Raises:
            InputError: An operation of another mode, or a clock that the GPU cannot hold.
        """
        mine = self.own.predict(operations, clock_mhz)
        asked = np.array([self._asks(*each) for each in zip(operations, mine.source, strict=True)], dtype=bool)
        asked &= mine.device_time_s > _LEAST_S
        if not asked.any():
            return mine
        some = [operation for operation, unsure in zip(operations, asked, strict=True) if unsure]
        factor = np.ones(len(operations))
        others_s = np.maximum(self.other.predict(some, clock_mhz).device_time_s, _LEAST_S)
        factor[asked] = np.sqrt(others_s / mine.device_time_s[asked])
        device_s, dynamic_j = mine.device_time_s * factor, mine.dynamic_energy_j * factor
        waits = smooth_max(device_s, mine.host_time_s) / smooth_max(mine.device_time_s, mine.host_time_s)
        time_s = np.where(asked, mine.time_s * waits, mine.time_s)
        # The loop's energy above static power grows with the device's.
        power_w = mine.static_power_w + (mine.power_w - mine.static_power_w) * factor * mine.time_s / time_s
        return replace(
            mine,
            time_s=time_s,
            power_w=np.minimum(power_w, np.maximum(mine.power_w, self.gpu.power_limit_w)),
            energy_j=time_s * np.minimum(power_w, np.maximum(mine.power_w, self.gpu.power_limit_w)),
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
        )

    def _asks(self, operation: Operation, source: str) -> bool:
        """Whether the other predictor has a say."""
        if source != "modelled":
            return False
        foreign = group_of(operation, self.gpu) not in self.own.baseline.groups
        return foreign or operation.row.family == "convolution"


@dataclass(frozen=True)
class Others:
    """What the predictor for any GPU learns from, to be fitted again without what is held out.

    Args:
        rows: Device times of all GPUs.
        recipe: Settings of the trees.
    """

    rows: tuple[DeviceRow, ...]
    recipe: BoostingRecipe

    def without(self, gpu: GPU, operations: Collection[Operation]) -> Learned:
        """Fit on everything but some operations on a GPU."""
        # The same work in the other mode would tell too much.
        held = frozenset(operation.replace(mode=mode) for operation in operations for mode in MODES)
        rows = [row for row in self.rows if row.gpu != gpu or row.operation not in held]
        return fit_any_gpu((), (), self.recipe, rows)
