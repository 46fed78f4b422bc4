"""predict_parallel_training: a training iteration over several GPUs; data, tensor and pipeline parallelism.

It is a step of a run (`step`), without the loss, which is no part of a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..extraction import Job, network_of_job
from ..generation.parallel import find_gpus
from ..hardware import GPU
from ..hardware.host import Host
from ..operations.inputs import require_positive_integer
from ..operations.network import Network
from ..predictors.board.profile import Calibrated
from ..predictors.networks.memory import shortage
from ..predictors.networks.prediction import Prediction
from ..rendering.answers import Answer, Table
from ..rendering.notebook import Bar, Picture, bars
from ..units import si
from .layout import Layout
from .step import step_of

if TYPE_CHECKING:
    from ..extraction.sources import Model

PARTS = ("data_parallel", "tensor_parallel", "pipeline_parallel")
"""The ways in which GPUs share an iteration."""
_WAITING = ("communication", "waiting for stages")


@dataclass(frozen=True, repr=False)
class ParallelTraining(Answer):
    """Time and energy of an iteration over several GPUs.

    Args:
        model: Name of the network.
        gpu: Full name of the GPU model; all GPUs are alike.
        gpus: Number of GPUs.
        data_parallel: Number of replicas.
        tensor_parallel: Number of GPUs that share each layer.
        pipeline_parallel: Number of stages of the pipeline. The product of the three numbers is the number of GPUs.
        micro_batches: Number of parts of a replica's batch, which follow each other through the pipeline.
        time_s: Seconds of an iteration.
        energy_j: Joules of all boards in an iteration.
        compute_s: Seconds in which a GPU computes.
        communication_s: Seconds of all collectives and messages of a GPU, including those during computation.
        waiting_s: Seconds in which a GPU waits for other GPUs, for the link, and in the bubble of the pipeline.
        micro: One micro-batch through all layers, or through one GPU's part of them under tensor parallelism.
        memory_bytes: Estimated device memory that each GPU needs.
        notes: Warnings about this prediction.
    """

    model: str
    gpu: str
    gpus: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    micro_batches: int
    time_s: float
    energy_j: float
    compute_s: float
    communication_s: float
    waiting_s: float
    micro: Prediction = field(repr=False)
    memory_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def power_w(self) -> float:
        """Mean power of all boards together in watts."""
        return self.energy_j / self.time_s

    def __str__(self) -> str:
        return (
            f"{self.model}, training on {self.gpus}x {self.gpu} (data {self.data_parallel}, tensor "
            f"{self.tensor_parallel}, pipeline {self.pipeline_parallel}): {si(self.time_s, 's')}, "
            f"{si(self.energy_j, 'J')}, {si(self.power_w, 'W')}"
        )

    def _table(self) -> Table:
        rows = [(name, getattr(self, f"{name}_s")) for name in ("compute", "communication", "waiting")]
        return Table(("part", "time_s"), rows)

    def _picture(self) -> Picture:
        """Seconds of a GPU in an iteration; sending goes on beside computing in part."""
        items = [Bar(name, seconds, si(seconds, "s")) for name, seconds in self._table().rows]
        return Picture(bars(items, f"Time of a GPU in an iteration: {self.model} on {self.gpus}x {self.gpu}"))

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain lists and dictionaries; quantities in SI units."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("micro", "notes")}
        return {**plain, "power_w": self.power_w, "micro": self.micro.to_dict(details=False), "notes": list(self.notes)}


def predict_parallel_training(
    model: Model,
    input_shape: Sequence[int],
    gpu: str | GPU | None,
    *,
    data_parallel: int = 1,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    micro_batches: int | None = None,
    precision: str = "default",
    optimizer: str | None = "adamw",
    clock: float | None = None,
    power_limit_w: float | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    predictor: str | Path | None = None,
) -> ParallelTraining:
    """Predict an iteration of training a transformer over several GPUs. `predict_run` predicts a whole training.

    Args:
        model: A name, module or configuration, as `joulecast.extract` takes it.
        input_shape: Shape of the input of all replicas together, batch first.
        gpu: The GPUs, such as "4x H100 SXM"; a name without a number stands for as many as are used.
        data_parallel: Number of replicas, which share the batch.
        tensor_parallel: Number of GPUs that share each layer.
        pipeline_parallel: Number of stages into which the layers are divided.
        micro_batches: Number of parts of a replica's batch; None for as many as there are stages.
        precision: default, fp32, tf32, fp16 or bf16.
        optimizer: As in `joulecast.extract`, such as "adamw" or "adamw_fused"; None to leave its step out.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.
        execution: How each GPU runs its part; see `joulecast.predict`.
        host: The machine that launches operations; see `joulecast.predict`.
        calibration: What was measured on the board; see `joulecast.predict`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.

    Raises:
        UnknownNameError: No such model, GPU, precision, optimizer, execution or predictor.
        InputError: The batch, the heads or the features cannot be divided so, or the number of GPUs does not fit.
        ZooError, ExtractionError, UncoveredError, MissingDependencyError: See `joulecast.predict`.

    Examples:
        >>> four = predict_parallel_training("gpt2", (16, 512), "4x H100 SXM", data_parallel=4)
        >>> four.gpus
        4
    """
    return training_of(network_of_job, locals())


def training_of(extract: Callable[[Job], Network], asked: Mapping[str, Any]) -> ParallelTraining:
    """Predict as `predict_parallel_training` does, with the network from a given function."""
    count, board = find_gpus(asked["gpu"])
    parts = {name: asked[name] for name in PARTS}
    for name, value in parts.items():
        require_positive_integer(name, value)
    used = math.prod(parts.values())
    if count not in (1, used):
        raise InputError(
            "the number of GPUs is not the product of the parallel parts",
            given=f"{count} GPUs, {' x '.join(f'{name}={value}' for name, value in parts.items())}",
            allowed=f"{used} GPUs",
            hint=f'give gpu="{used}x {board.aliases[0]}"',
        )
    tensor, stages = parts["tensor_parallel"], parts["pipeline_parallel"]
    pieces = stages if asked["micro_batches"] is None else asked["micro_batches"]
    require_positive_integer("micro_batches", pieces)
    layout = Layout(used, tensor_parallel=tensor, pipeline_parallel=stages, accumulation=pieces)
    job = Job.of(asked, mode="training")
    whole = extract(replace(job, input_shape=layout.micro_shape(job.input_shape)))
    step = step_of(job, whole, board, layout, asked["clock"])
    waiting_s = math.fsum(step.parts[name].time_s for name in _WAITING if name in step.parts)
    lacking = shortage(step.memory, board)
    return ParallelTraining(
        model=whole.name,
        gpu=board.name,
        gpus=used,
        **parts,
        micro_batches=pieces,
        time_s=step.whole.time_s,
        energy_j=used * step.whole.energy_j,
        compute_s=step.whole.time_s - waiting_s,
        communication_s=step.communication_s,
        waiting_s=waiting_s,
        micro=step.micro,
        memory_bytes=step.memory.total_bytes,
        notes=(
            *([f"it would not fit: each GPU {lacking}"] if lacking else []),
            "assumed: stages take equally long, and gradients are summed during the backward pass",
            *step.micro.notes,
        ),
    )
