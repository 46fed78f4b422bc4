"""predict_run: what a whole training or fine-tuning takes, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checked import in_range
from ..errors import InputError, unknown_name
from ..extraction import Job, network_of_job
from ..generation.parallel import counted_name_notes, find_gpus
from ..hardware import GPU
from ..hardware.host import Host
from ..operations.network import Network
from ..predictors.board.profile import Calibrated
from ..predictors.networks.memory import shortage
from ..queries.objectives import Tariff
from .computed import in_fp8, on_four_bits
from .layout import NODE_GPUS, Layout
from .run import Part, Run, servers_w
from .step import FORWARD, Step, step_of, with_loss
from .traffic import Cost, total

if TYPE_CHECKING:
    from ..extraction.sources import InputShape, Model

FP8, NF4 = "fp8", "nf4"
AUTOCAST: Mapping[str, str] = {"amp": "bf16", "amp_fp16": "fp16"}
"""Name of a precision of mixed training -> type of autocast. Weights, gradients and moments are fp32."""


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
            Transformer Engine computes them, and all else in bf16, with execution="compiled" as CUDA graphs.
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


DEFAULTS = {name: each.default for name, each in signature(predict_run).parameters.items()}
"""Arguments of `predict_run` and their defaults."""

_ABOVE_0 = "samples", "tokens", "epochs", "network_bandwidth", "checkpoint_bandwidth", "loader_samples_per_s"
_AT_LEAST = {"evaluation_samples": 0.0, "checkpoints": 0.0, "embodied_g_per_hour": 0.0, "pue": 1.0}
_MOST = 1e18


def run_of(extract: Callable[[Job], Network], asked: Mapping[str, Any]) -> Run:
    """Predict as `predict_run` does, with the network from a given function."""
    count, board = find_gpus(asked["gpu"])
    board.checked_clock_mhz(asked["clock"])
    layout = Layout(count, **{each.name: asked[each.name] for each in fields(Layout) if each.name != "gpus"})
    run = Training.of(extract, asked).on(board, layout, asked["clock"])
    return replace(run, notes=(*run.notes, *counted_name_notes(asked["gpu"])))


@dataclass(frozen=True)
class Training:
    """What is trained on what, wherever that may be."""

    extract: Callable[[Job], Network]  # Function that gives the network of a job
    job: Job
    asked: Mapping[str, Any]  # All arguments of `predict_run`
    tariff: Tariff
    # Networks of micro-batches that were extracted, by their shapes.
    networks: dict[tuple[int, ...], Network] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, extract: Callable[[Job], Network], asked: Mapping[str, Any]) -> Training:
        """Check the arguments of `predict_run`; those that are not given have their defaults."""
        asked = {**DEFAULTS, **asked}
        if (asked["samples"] is None) == (asked["tokens"] is None):
            raise InputError(
                "a run needs the size of its data, as samples or as tokens",
                given=f"samples={asked['samples']}, tokens={asked['tokens']}",
                allowed="one of samples and tokens",
                hint="give samples=1e6, say",
            )
        for name in (*_ABOVE_0, *_AT_LEAST):
            if asked[name] is not None or DEFAULTS[name] is not None:
                in_range(name, asked[name], _AT_LEAST.get(name, 0.0), _MOST, above=name in _ABOVE_0)
        if asked["base_precision"] not in (None, NF4):
            raise unknown_name("precision of a frozen base", asked["base_precision"], (NF4,), hint="or leave it out")
        if asked["lora_targets"] is not None and asked["lora"] is None:
            raise InputError(
                "layers get adapters of a rank",
                given="lora_targets without lora",
                allowed="both, or neither to train all parameters",
                hint="give lora=16, say",
            )
        job = Job.of(asked, mode="training")
        if job.precision in AUTOCAST:
            job = replace(job, precision="default", autocast=AUTOCAST[job.precision])
        elif job.precision == FP8:
            # Transformer Engine fuses what lies between its products, whoever launches them.
            execution = "compiled" if job.execution == "eager" else job.execution
            job = replace(job, precision="bf16", execution=execution)
        return cls(extract, job, asked, Tariff.of(asked["price_per_hour"], asked["price_per_kwh"], asked["carbon"]))

    def micro_batch(self, layout: Layout) -> Network:
        """The operations of a micro-batch through all layers, with its loss and the optimizer's step."""
        shape = layout.micro_shape(self.job.input_shape)
        if shape not in self.networks:
            found = with_loss(self.extract(replace(self.job, input_shape=shape)))
            found = on_four_bits(found) if self.asked["base_precision"] else found
            self.networks[shape] = in_fp8(found) if self.asked["precision"] == FP8 else found
        return self.networks[shape]

    def on(self, gpu: GPU, layout: Layout, clock: float | None) -> Run:
        """Predict the run."""
        job, asked = self.job, self.asked
        gpu.checked_power_limit_w(job.power_limit_w)
        batch, *rest = layout.micro_shape(job.input_shape)
        tokens = [each * layout.context_parallel for each in rest[:1]]
        shape = (batch * layout.replicas * layout.accumulation, *tokens, *rest[1:])
        samples = self._samples(shape)
        whole = self.micro_batch(layout)
        launched = asked["precision"] == FP8 and asked["execution"] == "eager"
        step = step_of(job, whole, gpu, layout, clock, asked["network_bandwidth"], asked["clip_gradients"], launched)
        steps = math.ceil(samples * asked["epochs"] / shape[0])
        lacking = shortage(step.memory, gpu)
        fits = f"it would not fit: each GPU {lacking}; divide more (sharding, recompute, accumulation, more GPUs)"
        costs = {name: cost.times(steps) for name, cost in step.parts.items()} | self._between(step, steps, shape[0])
        return Run(
            model=whole.name,
            gpu=gpu.name,
            layout=layout,
            input_shape=shape,
            precision=asked["precision"],
            samples=samples,
            epochs=float(asked["epochs"]),
            steps=steps,
            parts=tuple(Part(name, cost.time_s, layout.gpus * cost.energy_j) for name, cost in costs.items()),
            micro=step.micro,
            memory_bytes=step.memory.total_bytes,
            tariff=self.tariff,
            pue=float(asked["pue"]),
            notes=(
                *([fits] if lacking else []),
                *self.tariff.notes(gpu.name),
                *([f"with a PUE of {asked['pue']:g} in cost and carbon"] if asked["pue"] != 1 else []),
                "at the plug: each GPU has its share of a server like MLPerf's; vendors left out are up to 18 % off",
                *(["between GPUs: what is sent goes on beside the backward"] if layout.gpus > 1 else []),
                *self._included(),
                *step.micro.notes,
                *(["launched by Python, layer by layer; execution='compiled' has CUDA graphs, as Megatron"] * launched),
            ),
            embodied_g_per_hour=float(asked["embodied_g_per_hour"]),
            servers_w=servers_w(gpu, layout),
        )

    def _samples(self, shape: Sequence[int]) -> float:
        if self.asked["samples"] is not None:
            return float(self.asked["samples"])
        if len(shape) != 2:
            raise InputError(
                "tokens are counted for inputs of the form (samples, tokens)",
                given=tuple(shape),
                allowed="two dimensions",
                hint="give samples",
            )
        return float(self.asked["tokens"]) / shape[1]

    def _between(self, step: Step, steps: int, batch: int) -> dict[str, Cost]:
        """What happens between the steps of a run: seconds and joules of a board."""
        asked, waits = self.asked, {}
        if asked["loader_samples_per_s"] is not None:
            waits["waiting for data"] = steps * max(0.0, batch / asked["loader_samples_per_s"] - step.whole.time_s)
        waits["checkpoints"] = asked["checkpoints"] * step.state_bytes / asked["checkpoint_bandwidth"]
        evaluated = asked["evaluation_samples"] * asked["epochs"] / batch
        found = {"evaluation": total(step.parts[name] for name in FORWARD if name in step.parts).times(evaluated)}
        found |= {name: Cost(waited_s, step.micro.idle_power_w * waited_s) for name, waited_s in waits.items()}
        return {name: cost for name, cost in found.items() if cost.time_s > 0}

    def _included(self) -> list[str]:
        """Notes on what the time of a step contains, and what not."""
        asked = self.asked
        included = [
            *(["clipping of gradients"] if asked["clip_gradients"] and self.job.optimizer else []),
            *(["weights in nf4, written in 16 bits in each pass at an assumed rate"] * bool(asked["base_precision"])),
            *(["narrowing to fp8 before each product"] if asked["precision"] == FP8 else []),
        ]
        loader = [] if asked["loader_samples_per_s"] else ["a loader that is too slow"]
        return [
            *([f"in the time: {', '.join(included)}"] if included else []),
            f"not in the time: {', '.join([*loader, 'the start, and failures'])}; zeroing gradients costs nothing",
        ]
