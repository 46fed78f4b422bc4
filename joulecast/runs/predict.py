"""predict_run: what a whole training or fine-tuning takes, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, unknown_name
from ..extraction import Job, network_of_job
from ..generation.parallel import find_gpus
from ..hardware import GPU
from ..hardware.host import Host
from ..operations.network import Network
from ..predictors.board.profile import Calibrated
from ..predictors.networks.memory import shortage
from ..queries.objectives import Tariff
from .computed import in_fp8, on_four_bits
from .layout import NODE_GPUS, Layout
from .run import Part, Run, is_compiled, servers_w
from .step import Cost, Step, predictors_of, step_of, with_loss
from .traffic import Traffic

if TYPE_CHECKING:
    from ..extraction.sources import InputShape, Model

FP8, NF4 = "fp8", "nf4"
AUTOCAST: Mapping[str, str] = {"amp": "bf16", "amp_fp16": "fp16"}
"""Name of a precision of mixed training -> type of autocast. Weights, gradients and moments are fp32."""


@dataclass(frozen=True)
class Between:
    """What happens between the steps of a run; see `predict_run` for the fields."""

    evaluation_samples: float = 0
    checkpoints: int = 0
    checkpoint_bandwidth: float = 1e9
    loader_samples_per_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = name in ("evaluation_samples", "checkpoints")
            if value is not None:
                _number(name, value, "at least 0" if least else "above 0", zero=least)


def predict_run(
    model: Model,
    input_shape: InputShape | None,
    gpu: str | GPU | None,
    *,
    samples: float | None = None,
    tokens: float | None = None,
    epochs: float = 1,
    precision: str = "default",
    lora: int | None = None,
    lora_targets: str | Sequence[str] | None = None,
    base_precision: str | None = None,
    optimizer: str | None = "adamw",
    clip_gradients: bool = True,
    accumulation: int = 1,
    sharding: str = "none",
    recompute: str = "none",
    tensor_parallel: int = 1,
    context_parallel: int = 1,
    expert_parallel: int = 1,
    pipeline_parallel: int = 1,
    virtual_stages: int = 1,
    gpus_per_node: int = NODE_GPUS,
    network_bandwidth: float | None = None,
    evaluation_samples: float = 0,
    checkpoints: int = 0,
    checkpoint_bandwidth: float = 1e9,
    loader_samples_per_s: float | None = None,
    clock: float | None = None,
    power_limit_w: float | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    predictor: str | Path | None = None,
    model_options: Mapping[str, object] | None = None,
    price_per_hour: float | str | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | Sequence[float] | None = None,
    pue: float = 1.0,
    embodied_g_per_hour: float = 0.0,
) -> Run:
    """Predict a whole training run: hours, joules of the boards and at the plug, price and carbon.

    Args:
        model: A name, module, configuration or file, as `joulecast.extract` takes it.
        input_shape: Shape of the input of a step, batch first: of all GPUs and micro-batches together.
        gpu: The GPUs, such as "8x H100 SXM".
        samples: Samples of the data, all of which an epoch passes through.
        tokens: Tokens of the data, in place of samples: for inputs of the form (samples, tokens).
        epochs: Number of epochs.
        precision: default, fp32, tf32, fp16 or bf16 as in `joulecast.extract`; "amp" and "amp_fp16" for weights in fp32
            and a forward within torch.autocast, in bf16 or fp16; "fp8" for linear layers of blocks in fp8, as
            Transformer Engine computes them, and all else in bf16.
        lora: Rank of low-rank adapters, beside which all parameters are frozen; None to train all. For models by name.
        lora_targets: Last names of the layers with adapters, such as ("q_proj", "v_proj"), or "all-linear"; None for
            those that peft chooses.
        base_precision: "nf4" to store frozen layers in 4 bits (QLoRA); None for the precision of all others.
        optimizer: As in `joulecast.extract`, such as "adamw" or "adamw_fused"; None to leave its step out.
        clip_gradients: Whether the norm of the gradients is limited before that step, as most recipes do.
        accumulation: Micro-batches of each replica in a step, whose gradients are added up.
        sharding: What replicas divide among each other: "none" (DistributedDataParallel), "zero1", "zero2", or "zero3"
            (FSDP's FULL_SHARD).
        recompute: What the backward computes again instead of storing it: "none", "selective" (attention), or "full"
            (each layer).
        tensor_parallel: GPUs that share each layer.
        context_parallel: GPUs that share each sequence.
        expert_parallel: GPUs over which whole experts are distributed.
        pipeline_parallel: Stages into which the layers are divided.
        virtual_stages: Parts of the layers that each stage has.
        gpus_per_node: GPUs of a node.
        network_bandwidth: Bytes per second between a node and others; None for an adapter for each GPU that is as fast
            as its PCI Express slot.
        evaluation_samples: Samples that are only evaluated, in each epoch.
        checkpoints: How often weights and the state of the optimizer are stored while training waits.
        checkpoint_bandwidth: Bytes per second at which they are stored.
        loader_samples_per_s: Samples per second that the loader of the data can give; None if nothing waits for it.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.
        execution: How each GPU runs its part; see `joulecast.predict`.
        host: The machine that launches operations; see `joulecast.predict`.
        calibration: What was measured on the board; see `joulecast.predict`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        model_options: Arguments of a model that is given by name, as in `joulecast.extract`.
        price_per_hour: Price of an hour of one GPU, a mapping from GPU to price, or a cloud: its list prices.
        price_per_kwh: Price of a kilowatt-hour, in the same currency.
        carbon: Intensity of the grid in grams of CO2 per kWh; one for each hour, beginning with the first of the run;
            or a country such as "DE" or a cloud's region such as "eu-north-1": the average of a year.
        pue: Joules that the data centre draws for each joule of its servers, which price and carbon contain.
        embodied_g_per_hour: Grams of CO2 equivalent of making a GPU and its share of a server, for each hour of use.

    Raises:
        UnknownNameError: No such model, GPU, precision, sharding, optimizer, country or predictor.
        InputError: The data, the batch, the layers or the GPUs cannot be divided so; or a number that cannot be.
        ZooError, ExtractionError, UncoveredError, MissingDependencyError: See `joulecast.predict`.

    Examples:
        >>> run = predict_run("gpt2", (64, 512), "8x H100 SXM", tokens=1e9, precision="bf16")
        >>> run.steps
        30518
    """
    return run_of(network_of_job, locals())


def run_of(extract: Callable[[Job], Network], asked: Mapping[str, Any]) -> Run:
    """Predict as `predict_run` does, with the network from a given function."""
    count, board = find_gpus(asked["gpu"])
    board.checked_clock_mhz(asked["clock"])
    layout = Layout(count, **{each.name: asked[each.name] for each in fields(Layout) if each.name != "gpus"})
    return Training.of(extract, asked).on(board, layout, asked["clock"])


@dataclass(frozen=True)
class Training:
    """What is trained on what, wherever that may be; see `predict_run` for the fields."""

    extract: Callable[[Job], Network]  # Function that gives the network of a job
    job: Job
    asked_precision: str  # Precision as it was asked for
    size: tuple[str, float]  # The name of what the data is counted in, samples or tokens, and how many an epoch has
    epochs: float
    between: Between
    network_bandwidth: float | None
    tariff: Tariff
    pue: float
    base_precision: str | None = None
    clip_gradients: bool = True
    embodied_g_per_hour: float = 0.0
    # Networks of micro-batches that were extracted, by their shapes.
    networks: dict[tuple[int, ...], Network] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, extract: Callable[[Job], Network], asked: Mapping[str, Any]) -> Training:
        """Check the arguments of `predict_run`, as far as they are given."""
        job = Job.of(asked, mode="training")
        if job.precision in AUTOCAST:
            job = replace(job, precision="default", autocast=AUTOCAST[job.precision])
        elif job.precision == FP8:
            job = replace(job, precision="bf16")
        if asked.get("base_precision") not in (None, NF4):
            raise unknown_name("precision of a frozen base", asked["base_precision"], (NF4,), hint="or leave it out")
        bandwidth = asked.get("network_bandwidth")
        if bandwidth is not None:
            _number("network_bandwidth", bandwidth, "above 0, in bytes per second")
        return cls(
            extract,
            job,
            asked["precision"],
            _size(asked["samples"], asked["tokens"]),
            _number("epochs", asked["epochs"], "above 0"),
            Between(**{each.name: asked[each.name] for each in fields(Between) if each.name in asked}),
            bandwidth,
            Tariff.of(asked["price_per_hour"], asked["price_per_kwh"], asked["carbon"]),
            _number("pue", asked["pue"], "1 or more", least=1.0),
            asked.get("base_precision"),
            asked.get("clip_gradients", True),
            _number("embodied_g_per_hour", asked.get("embodied_g_per_hour", 0.0), "at least 0", zero=True),
        )

    def micro_batch(self, layout: Layout) -> Network:
        """The operations of a micro-batch through all layers, with its loss and the optimizer's step."""
        shape = layout.micro_shape(self.job.input_shape)
        if shape not in self.networks:
            found = with_loss(self.extract(replace(self.job, input_shape=shape)))
            found = on_four_bits(found) if self.base_precision else found
            self.networks[shape] = in_fp8(found) if self.asked_precision == FP8 else found
        return self.networks[shape]

    def on(self, gpu: GPU, layout: Layout, clock: float | None) -> Run:
        """Predict the run."""
        job = self.job
        gpu.checked_power_limit_w(job.power_limit_w)
        micro_shape = layout.micro_shape(job.input_shape)
        batch, *rest = micro_shape
        tokens = [each * layout.context_parallel for each in rest[:1]]
        shape = (batch * layout.replicas * layout.accumulation, *tokens, *rest[1:])
        samples = self._samples(shape)
        whole = self.micro_batch(layout)
        traffic = Traffic(gpu, layout.gpus_per_node, self.network_bandwidth)
        predictors = predictors_of(job, gpu, whole)
        step = step_of(whole, gpu, layout, traffic, *predictors, clock, job.power_limit_w, self.clip_gradients)
        steps = math.ceil(samples * self.epochs / shape[0])
        lacking, compiled = shortage(step.memory, gpu), is_compiled(job.execution, self.asked_precision)
        fits = f"it would not fit: each GPU {lacking}; divide more (sharding, recompute, accumulation, more GPUs)"
        return Run(
            model=whole.name,
            gpu=gpu.name,
            layout=layout,
            input_shape=shape,
            precision=self.asked_precision,
            samples=samples,
            epochs=self.epochs,
            steps=steps,
            parts=tuple(_parts(step, steps, shape[0], self.epochs, layout, self.between)),
            micro=step.micro,
            memory_bytes=step.memory.total_bytes,
            tariff=self.tariff,
            pue=self.pue,
            notes=(
                *([fits] if lacking else []),
                "at the plug: each GPU has its share of a server like MLPerf's; vendors left out are up to 18 % off",
                *(["between GPUs: what is sent goes on beside the backward"] if layout.gpus > 1 else []),
                *_included(self),
                *(note for note in step.micro.notes if not (compiled and note.startswith("no interval"))),
                *(["the interval is that of eager steps, which Megatron's compiled steps lie within"] * compiled),
            ),
            embodied_g_per_hour=self.embodied_g_per_hour,
            servers_w=servers_w(gpu, layout),
        )

    def _samples(self, shape: Sequence[int]) -> float:
        """The samples of an epoch, where a step has this shape."""
        counted_in, number = self.size
        if counted_in == "samples":
            return number
        if len(shape) != 2:
            raise InputError(
                "tokens are counted for inputs of the form (samples, tokens)", given=tuple(shape), hint="give samples"
            )
        return number / shape[1]


def _included(training: Training) -> list[str]:
    """Notes on what the time of a step contains, and what not."""
    included = [
        *(["clipping of gradients"] if training.clip_gradients and training.job.optimizer else []),
        *(["their weights in nf4 written in 16 bits in each pass, at an assumed rate"] * bool(training.base_precision)),
        *(["narrowing to fp8 before each product"] if training.asked_precision == FP8 else []),
    ]
    waited = training.between.loader_samples_per_s is not None
    missing = [*([] if waited else ["a loader that is too slow"]), "failures"]
    return [
        *([f"in the time: {', '.join(included)}"] if included else []),
        f"not in the time: {', and '.join(missing)}; gradients are set to None, which costs nothing",
    ]


def _parts(step: Step, steps: int, batch: int, epochs: float, layout: Layout, between: Between) -> list[Part]:
    """The parts of the whole run, of all boards together."""
    times = {name: (steps * cost.time_s, steps * cost.energy_j) for name, cost in step.parts.items()}
    idle_w = step.micro.idle_power_w
    waits = {}
    if between.loader_samples_per_s is not None:
        waits["waiting for data"] = steps * max(0.0, batch / between.loader_samples_per_s - step.time_s)
    if between.checkpoints:
        waits["checkpoints"] = between.checkpoints * step.state_bytes / between.checkpoint_bandwidth
    forward = step.parts.get("forward", Cost(0.0, 0.0))
    evaluated = between.evaluation_samples * epochs / batch
    if evaluated:
        times["evaluation"] = evaluated * forward.time_s, evaluated * forward.energy_j
    times |= {name: (seconds, idle_w * seconds) for name, seconds in waits.items() if seconds > 0}
    return [Part(name, seconds, layout.gpus * joules) for name, (seconds, joules) in times.items()]


def _size(samples: float | None, tokens: float | None) -> tuple[str, float]:
    """What the data is counted in, and how many an epoch has."""
    if (samples is None) == (tokens is None):
        raise InputError(
            "a run needs the size of its data, as samples or as tokens",
            given="none" if samples is None else f"samples={samples}, tokens={tokens}",
            allowed="one of samples and tokens",
        )
    name = "tokens" if samples is None else "samples"
    return name, _number(name, tokens if samples is None else samples, "above 0")


def _number(name: str, value: object, allowed: str, *, least: float = 0.0, zero: bool = False) -> float:
    """A finite number above 0, or at least `least`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value < 1e18
        or (value == 0 and not zero)
    ):
        raise InputError(f"{name} is out of range", given=repr(value)[:60], allowed=allowed)
    return float(value)
