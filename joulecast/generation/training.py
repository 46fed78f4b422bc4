"""predict_parallel_training: a training iteration over the GPUs of a node; data, tensor and pipeline parallelism.

- Data parallel: replicas sum up their gradients (NCCL's all-reduce) in buckets while the backward pass goes on. They
  wait for the part that is left after the backward pass, and at least for the last bucket (Li et al., PyTorch
  Distributed, arXiv 2006.15704).
- Tensor parallel: each GPU has some heads and features of every layer. After each block, in the forward and in the
  backward pass, the GPUs sum up their results and wait for it (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
- Pipeline parallel: each GPU has some layers. m micro-batches pass p stages in m + p - 1 turns, in p - 1 of which a GPU
  is idle, the "bubble" (Huang et al., GPipe, arXiv 1811.06965; 1F1B has the same bubble). Stages are assumed to take
  equally long.

A GPU that waits draws its static power.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..extraction import Job, network_of_job
from ..hardware import GPU
from ..hardware.host import Host, find_host
from ..operations.attributes import ELEMENT_BYTES
from ..operations.checked_values import require_positive_integer
from ..operations.entry import Entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.board.profile import Calibrated, find_profile
from ..predictors.networks.execution import Execution
from ..predictors.networks.memory import MemoryNeed, memory_need, shortage
from ..predictors.networks.prediction import Prediction
from ..predictors.physics.energy import static_power_w
from ..predictors.physics.precisions import refuse_precisions
from ..rendering.answers import Plain
from ..units import si
from ..zoo import find_predictor
from .collectives import NCCL, collective_j, collective_s
from .dividing import divided, results_of_blocks
from .parallel import GROUPS, find_gpus

if TYPE_CHECKING:
    from ..extraction.sources import Model

_BUCKET_BYTES = 25 * 2**20  # Default size of a bucket of gradients in DistributedDataParallel.
_BACKWARD = 2 / 3  # Share of the backward pass: it has two products for each one of the forward pass.
_SEND_S = 10e-6  # Starting a message to the next stage: about the time of NCCL's shortest collectives.


PARTS = ("data_parallel", "tensor_parallel", "pipeline_parallel")
"""The ways in which the GPUs of a node share an iteration."""


@dataclass(frozen=True)
class ParallelTraining(Plain):
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
    """Predict an iteration of training a transformer over several GPUs of a node.

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
    parts = {"data_parallel": data_parallel, "tensor_parallel": tensor_parallel, "pipeline_parallel": pipeline_parallel}
    return training_of(Job.of(locals(), mode="training"), gpu, clock, parts, micro_batches)


def training_of(
    job: Job,
    gpu: str | GPU | None,
    clock: float | None,
    parts: Mapping[str, int],
    micro_batches: int | None,
    extract: Callable[[Job], Network] = network_of_job,
) -> ParallelTraining:
    """Predict as `predict_parallel_training` does, with the networks that a given function extracts.

    Args:
        job: The model, the shape of the input of all replicas together, and how each GPU runs its part.
        gpu: The GPUs, such as "4x H100 SXM".
        clock: Graphics clock in MHz; None for the GPU's default.
        parts: Numbers of replicas (data_parallel), of GPUs that share a layer (tensor_parallel), and of stages
            (pipeline_parallel).
        micro_batches: Number of parts of a replica's batch; None for as many as there are stages.
        extract: Function that lists the operations of a job's model.

    Raises:
        JoulecastError: See `predict_parallel_training`.
    """
    execution = Execution.of(job.execution, find_host(job.host), find_profile(job.calibration))
    count, board = find_gpus(gpu)
    data_parallel, tensor_parallel, pipeline_parallel = (parts[name] for name in PARTS)
    used = _checked_parts(parts, count)
    pieces = pipeline_parallel if micro_batches is None else micro_batches
    batch, *rest = job.input_shape
    _refuse_indivisible(batch, data_parallel, pieces)
    whole = extract(replace(job, input_shape=(batch // data_parallel // pieces, *rest)))
    refuse_precisions(board, whole.operations)
    network = divided(whole, tensor_parallel)
    run = find_predictor(board, "training", job.predictor).under(execution)
    steps = [entry for entry in network if entry.operation.row.is_optimizer_step]
    micro = run.predict(_without(network, steps), clock, job.power_limit_w)
    step = run.predict(_only(network, steps), clock, job.power_limit_w) if steps else None
    # Stages take equally long, so each GPU computes an equal part of the work of a replica.
    turn_s, turn_j = micro.time_s / pipeline_parallel, micro.known_energy_j / pipeline_parallel
    compute_s = pieces * turn_s + (step.time_s / pipeline_parallel if step else 0.0)
    compute_j = pieces * turn_j + (step.known_energy_j / pipeline_parallel if step else 0.0)
    blocks = list(results_of_blocks(whole))
    sums = _Sums(board, job.precision)
    # The result of each block is summed once in the forward and once in the backward pass.
    tensor_s, tensor_j = sums.cost(2 * blocks, tensor_parallel)
    tensor_s, tensor_j = tensor_s / pipeline_parallel, tensor_j / pipeline_parallel
    own = _parameters(network, steps) // pipeline_parallel
    need = _memory_need(network, own * sums.element_bytes if data_parallel > 1 else 0, pipeline_parallel, pieces)
    lacking = shortage(need, board)
    data_s, data_j = sums.cost([(own,)], data_parallel)
    buckets = max(1.0, own * sums.element_bytes / _BUCKET_BYTES)
    exposed_s = max(data_s / buckets, data_s - _BACKWARD * compute_s * (1 - 1 / buckets))
    bubble_s = (pipeline_parallel - 1) * (turn_s + tensor_s)
    messages_s = sums.message_s(blocks) * 2 * (pieces + pipeline_parallel - 2) if pipeline_parallel > 1 else 0.0
    waiting_s = pieces * tensor_s + exposed_s + bubble_s + messages_s
    idle_w = float(static_power_w(board, float(board.boost_clock_mhz)))
    return ParallelTraining(
        model=network.name,
        gpu=board.name,
        gpus=used,
        **parts,
        micro_batches=pieces,
        time_s=compute_s + waiting_s,
        energy_j=used * (compute_j + pieces * tensor_j + data_j + idle_w * waiting_s),
        compute_s=compute_s,
        communication_s=pieces * tensor_s + data_s + messages_s,
        waiting_s=waiting_s,
        micro=micro,
        memory_bytes=need.total_bytes,
        notes=(
            *([f"it would not fit: each GPU {lacking}"] if lacking else []),
            "assumed: stages take equally long, and gradients are summed during the backward pass",
            *micro.notes,
        ),
    )


def _memory_need(network: Network, buckets_bytes: float, stages: int, micro_batches: int) -> MemoryNeed:
    """The memory of one GPU.

    The first stage of a pipeline starts as many micro-batches as there are stages before it continues with a backward
    (1F1B). Replicas hold their gradients a second time, in the buckets that they are sent in: the default of
    DistributedDataParallel, gradient_as_bucket_view=False.

    Args:
        network: One micro-batch through all layers, or one GPU's part of them under tensor parallelism, with the
            optimizer's step.
        buckets_bytes: Bytes of the gradients that a GPU sends to other replicas.
        stages: Number of stages of the pipeline.
        micro_batches: Number of micro-batches of an iteration.
    """
    need = memory_need(network)
    started = min(stages, micro_batches)
    return MemoryNeed(
        weights_bytes=round(need.weights_bytes / stages + buckets_bytes),
        activations_bytes=need.activations_bytes * started // stages,
    )


@dataclass(frozen=True)
class _Sums:
    """Time and energy of summing tensors over GPUs and of sending them to the next stage.

    Args:
        gpu: The GPU model.
        precision: Precision of the tensors.
    """

    gpu: GPU
    precision: str

    @property
    def element_bytes(self) -> float:
        """Bytes of one element that is sent."""
        return ELEMENT_BYTES[self._sent]

    @property
    def _sent(self) -> str:
        return self.precision if self.precision in ("bf16", "fp16") else "fp32"

    def cost(self, shapes: Sequence[tuple[int, ...]], gpus: int) -> tuple[float, float]:
        """Seconds, and joules of each GPU above static power, for summing tensors over a group of GPUs."""
        if gpus == 1:
            return 0.0, 0.0
        link = "nvlink" if self.gpu.link_bandwidth else "pcie"
        attributes = {"gpus": gpus, "link": link, "implementation": NCCL}
        counts = Counter(shapes)
        operations = [
            (Operation("all_reduce", [shape], attributes, precision=self._sent), n) for shape, n in counts.items()
        ]
        return (
            sum(n * collective_s(operation, self.gpu) for operation, n in operations),
            sum(n * collective_j(operation) for operation, n in operations),
        )

    def message_s(self, results: Sequence[tuple[int, ...]]) -> float:
        """Seconds for sending the result of a block to the next stage."""
        bandwidth = self.gpu.link_bandwidth or self.gpu.pcie_bandwidth
        if not results or bandwidth is None:
            return _SEND_S
        return _SEND_S + size(results[0]) * self.element_bytes / bandwidth


def _checked_parts(parts: Mapping[str, Any], count: int) -> int:
    for name, value in parts.items():
        require_positive_integer(name, value)
        if name != "pipeline_parallel" and value not in GROUPS:
            raise InputError(
                "sums over GPUs are predicted for groups whose collectives were measured",
                given=f"{name}={value}",
                allowed=", ".join(map(str, GROUPS)),
            )
    used: int = math.prod(parts.values())
    if count not in (1, used):
        given = " x ".join(f"{name}={value}" for name, value in parts.items())
        raise InputError(
            "the number of GPUs is not the product of the parallel parts",
            given=f"{count} GPUs, {given}",
            allowed=f"{used} GPUs",
        )
    return used


def _refuse_indivisible(batch: int, replicas: int, micro_batches: int) -> None:
    if not isinstance(micro_batches, int) or micro_batches < 1 or batch % (replicas * micro_batches):
        raise InputError(
            "the batch cannot be divided into replicas and micro-batches",
            given=f"{batch} over {replicas} replicas of {micro_batches} micro-batches",
            allowed=f"a multiple of {replicas * max(1, micro_batches if isinstance(micro_batches, int) else 1)}",
        )


def _without(network: Network, entries: Sequence[Entry]) -> Network:
    return replace(network, entries=tuple(entry for entry in network if entry not in entries))


def _only(network: Network, entries: Sequence[Entry]) -> Network:
    return replace(network, entries=tuple(entries), dropped=())


def _parameters(network: Network, steps: Sequence[Entry]) -> int:
    """Number of parameters: those that the optimizer updates, or without an optimizer those of each module once."""
    if steps:
        return sum(entry.count * entry.operation.input_size for entry in steps)
    return sum(len(entry.by_module) * entry.operation.parameters for entry in network)
