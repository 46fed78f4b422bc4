"""Public functions for networks: extract, predict and predict_many."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..extraction import WHITELIST, Job, network_of_job
from ..hardware import CPU, GPU, Device, find_device, gpu_name_notes
from ..hardware.host import Host, find_host
from ..operations.network import Network
from ..predictors.board.profile import Calibrated, find_profile
from ..predictors.networks.composition import EAGER, Execution
from ..predictors.networks.memory import shortage
from ..predictors.networks.prediction import Prediction
from ..predictors.networks.prepared import PreparedNetwork
from ..predictors.physics.precisions import refuse_precisions
from ..zoo import find_cpu_predictor, find_predictor

if TYPE_CHECKING:
    from ..extraction.conversions import CustomOperators
    from ..extraction.job import Assume
    from ..extraction.sources import InputShape, Model
    from ..predictors.networks.on_cpu import PreparedOnCpu


def extract(
    model: Model,
    input_shape: InputShape | None = None,
    *,
    mode: str = "inference",
    precision: str = "default",
    cache_length: int | None = None,
    optimizer: str | None = None,
    whitelist: Collection[str] = WHITELIST,
    operators: CustomOperators | None = None,
    assume: Assume | None = None,
    model_options: Mapping[str, object] | None = None,
) -> Network:
    """List the operations of a model without running it. Neither weights nor activations are allocated.

    Args:
        model: Name of a model of torchvision, of a well-known transformer (`joulecast models` lists them) or of timm
            ("timm/..." where torchvision has the name, too); a `torch.nn.Module`; a configuration of transformers or
            the path of its config.json; a Network, the path of one saved as JSON, or a list of pairs of Operation and
            count.
        input_shape: Shape of the input, batch first; a list of shapes; a dictionary of names and shapes. An example
            tensor may be given instead of a shape: its shape and type are used, its values are not. An input that is
            given by a shape has the type of the model's parameters, or integers for token ids of transformers.
        mode: "inference", or "training" for forward and backward.
        precision: "default" is PyTorch's default for fp32 tensors: convolutions may use TF32 if the GPU has it, matrix
            products do not. Otherwise fp32, tf32, fp16 or bf16; the last two convert the model to this type. Modules in
            half precision and autocast regions run in their own precision.
        cache_length: Tokens whose keys and values a transformer has cached: (8, 1) after 2048 of them is a step of
            decoding. None for a forward without a past, such as a prefill.
        optimizer: "sgd", "adam" or "adamw", to include its step over all learned parameters in a training iteration, as
            PyTorch runs it by default on a GPU (foreach: a pass over memory for each line of the algorithm);
            "sgd_fused", "adam_fused" or "adamw_fused" for that with fused=True, which is a single pass; None for no
            step. The step is one operation, and stands for all of its kernels.
        whitelist: Operation kinds to include; calls of other kinds are listed in `Network.dropped`.
        operators: Your own operators: a mapping from "namespace.name", as `Network.dropped` shows it, to a kind, or to
            a function that takes the arguments by name and returns kind, input shapes and attributes.
        assume: Assumptions about values of the input, which extraction does not know: {"experts": "uniform"} gives each
            expert of a mixture equally many tokens, {"boxes": 100} lets each selection by values keep 100 candidates
            (and images that a detector is trained on have as many), {"box_side": 200} makes boxes squares of 200
            pixels. {"attention": "cudnn"} says which library computes attention: "pytorch" (FlashAttention 2, the
            default), "cudnn", "triton", or an engine. Results name the assumptions.
        model_options: Arguments of a model that is given by name, such as {"image_size": 384}.

    Raises:
        UnknownNameError: There is no such model, mode, precision or kind; close names are suggested.
        InputError: A shape, file or list is not valid.
        ExtractionError: The forward raises on this input, or depends on values of the input.
        MissingDependencyError: The model needs a library that is not installed.

    Examples:
        >>> network = extract("resnet50", (32, 3, 224, 224))
        >>> f"{len(network)} operations, {network.flops / 1e9:.0f} GFLOP"
        '54 operations, 264 GFLOP'
    """
    return network_of_job(Job.of(locals()))


def predict(
    model: Model,
    input_shape: InputShape | None = None,
    gpu: str | Device | None = None,
    clock: float | None = None,
    *,
    power_limit_w: float | None = None,
    mode: str = "inference",
    precision: str = "default",
    cache_length: int | None = None,
    optimizer: str | None = None,
    predictor: str | Path | None = None,
    composition: str | None = None,
    strict: bool = False,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    operators: CustomOperators | None = None,
    assume: Assume | None = None,
    model_options: Mapping[str, object] | None = None,
) -> Prediction:
    """Predict time, power and energy of one iteration of a model on a GPU.

    Args:
        model: A name, module, configuration, file, Network or list of operations, as `extract` takes it.
        input_shape: Shape of the input, batch first, or of several inputs; None for a Network, its file, or a list.
        mode: "inference", or "training" for forward and backward.
        precision: "default", fp32, tf32, fp16 or bf16.
        cache_length: Tokens that a transformer has cached.
        optimizer: "adamw" or another, to include its step in a training iteration, as in `extract`.
        gpu: Name or alias from the catalogue, such as "A30", or the path of a TOML file that describes a GPU; or the
            name of a CPU that was measured, such as "AMD EPYC", where "cpu" means that of this machine; required.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap in watts; None for the board's default. The clock falls until the GPU is within it.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        composition: "overlap" of host and device, or plain "sum"; None for overlap.
        strict: Whether to raise an error if an operation is not covered, instead of listing it.
        execution: "eager", as PyTorch runs by itself; "graph": recorded once and replayed as a CUDA graph; or
            "compiled": by torch.compile in its default mode.
        host: The machine that launches operations: a factor on the launch times of the reference host, a name
            (`joulecast host --list`), or the path of a profile that `joulecast host --out` wrote; None for the host
            that is typical for the GPU: newer servers for GPUs announced in 2022 or later.
        calibration: What `joulecast calibrate` measured on a board of this GPU: the path of its file, or its content.
            None predicts for any board.
        operators: Your own operators, as in `extract`.
        assume: Assumptions about values of the input, as in `extract`.
        model_options: Arguments of a model that is given by name, as in `extract`.

    Returns:
        Totals in seconds, watts and joules, with each operation's share. Watts and joules are None on a CPU whose power
        was not measured.

    Raises:
        UnknownNameError: There is no such model, GPU, mode, precision or predictor.
        InputError: The GPU cannot hold the clock or the cap, or lacks the precision; or a shape is not valid.
        ZooError: There is no predictor for this GPU, or it is damaged.
        UncoveredError: Too large a part of the model is not covered; with `strict`, any operation is not.
        ExtractionError, MissingDependencyError: See `extract`.

    Examples:
        >>> prediction = predict("resnet50", (32, 3, 224, 224), "A30")
        >>> print(f"{prediction.energy_j:.1f} J, {1e3 * prediction.time_s:.0f} ms, {prediction.power_w:.0f} W")
        3.5 J, 22 ms, 165 W
    """
    job, device = Job.of(locals()), find_device(gpu)
    device.checked_clock_mhz(clock)
    device.checked_power_limit_w(power_limit_w)
    run = Execution.of(execution, find_host(host), find_profile(calibration))
    network = network_of_job(job)
    prepared: PreparedNetwork | PreparedOnCpu
    if isinstance(device, CPU):
        prepared = find_cpu_predictor(device, network.mode, predictor).under(run).prepared(network)
    else:
        prepared = prepare(network, device, power_limit_w, predictor, run)
    prediction = prepared.at(clock, composition=composition, strict=strict)
    return replace(prediction, notes=(*gpu_name_notes(gpu), *prediction.notes))


def prepare(
    network: Network,
    gpu: GPU,
    power_limit_w: float | None = None,
    predictor: str | Path | None = None,
    execution: Execution = EAGER,
) -> PreparedNetwork:
    """Compute everything about a network that does not depend on the clock, for predictions at many clocks.

    Args:
        network: A network, as `extract` returns it.
        gpu: The GPU to predict for.
        power_limit_w: Power cap in watts; None for the board's default.
        predictor: Name or folder of a predictor, as in `predict`.
        execution: How the network is run, and on which host.

    Raises:
        InputError, UnknownNameError, ZooError: See `predict`.
    """
    network_predictor = find_predictor(gpu, network.mode, predictor).under(execution)
    refuse_precisions(gpu, network.operations)
    prepared = network_predictor.prepared(network, power_limit_w)
    lacking = None if prepared.memory is None else shortage(prepared.memory, gpu)
    return replace(prepared, notes=(f"it would not fit: {lacking}",)) if lacking else prepared
