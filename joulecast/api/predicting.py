"""Public functions for networks: extract, predict, and predict_many here or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..extraction import WHITELIST, Job, network_of_job
from ..hardware import CPU, GPU, Device, find_device, find_gpu, gpu_name_notes
from ..hardware.host import Host, find_host
from ..operations.columns import Calls, Columns, is_table, networks_of
from ..operations.network import Network
from ..predictors.board.profile import Calibrated, find_profile
from ..predictors.networks.composition import Execution
from ..predictors.networks.many import NetworkPredictions, batched, predict_networks
from ..predictors.networks.memory import memory_need, shortage
from ..predictors.networks.prediction import Prediction
from ..predictors.physics.variants import refuse_precisions
from ..system.cluster import call_on_workers, on_cluster
from ..zoo import find_cpu_predictor, find_predictor

if TYPE_CHECKING:
    from ..extraction.conversions import CustomOperators
    from ..extraction.job import Assume
    from ..extraction.sources import InputShape, Model


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
    return predicted(Job.of(locals()), gpu, clock)


def predicted(
    job: Job, gpu: str | Device | None, clock: float | None, extract: Callable[[Job], Network] = network_of_job
) -> Prediction:
    """The prediction of a job, see `predict`. `extract` is a function that lists the operations of a job's model."""
    device = find_device(gpu)
    device.checked_clock_mhz(clock)
    device.checked_power_limit_w(job.power_limit_w)
    run = Execution.of(job.execution, find_host(job.host), find_profile(job.calibration))
    network = extract(job)
    if isinstance(device, CPU):
        of_cpu = find_cpu_predictor(device, network.mode, job.predictor).under(run)
        return of_cpu.predict(network, composition=job.composition, strict=job.strict)
    predictor = find_predictor(device, network.mode, job.predictor).under(run)
    refuse_precisions(device, network.operations)
    prediction = predictor.predict(network, clock, job.power_limit_w, composition=job.composition, strict=job.strict)
    notes = [*gpu_name_notes(gpu), *prediction.notes]
    # The tensors of a list of operations need not be in memory at the same time.
    if network.input_shape is not None and (lacking := shortage(network.derived(memory_need), device)):
        notes.insert(0, f"it would not fit: {lacking}")
    return replace(prediction, notes=tuple(notes))


def predict_many(
    networks: Iterable[Model] | Columns,
    gpu: str | GPU | Sequence[str | GPU],
    clock: float | Sequence[float] | None = None,
    *,
    input_shape: InputShape | None = None,
    power_limit_w: float | None = None,
    mode: str = "inference",
    precision: str = "default",
    predictor: str | Path | None = None,
    composition: str | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    level: float | None = None,
    cluster: str | None = None,
) -> NetworkPredictions:
    """Predict the totals of many networks, such as the thousands of candidates of an architecture search.

    The totals are those of `predict`, to the last bit. Operations that networks share are predicted once. For a single
    network, `predict` also gives notes and the cost of each operation.

    Args:
        networks: Models as `extract` takes them, such as lists of pairs of Operation and count. They are read one
            after the other and not stored, so a generator may yield more of them than fit into memory. Or a table (of
            pandas, polars or Arrow, or a dictionary of columns), which is quicker: the columns that
            `Network.to_frame` writes, and `network` with a name for each row; the rows of a network follow each other.
        gpu: Name or alias from the catalogue, such as "A30", or the path of a TOML file that describes a GPU; or a list
            of these.
        clock: Graphics clock in MHz, or several, which each GPU must be able to hold; None for each GPU's default.
        input_shape: Shape of the input of all of them, batch first; None for Networks, their files, or lists.
        power_limit_w: Power cap in watts; None for the board's default.
        mode: "inference" or "training"; that of all networks.
        precision: "default", fp32, tf32, fp16 or bf16.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        composition: "overlap" of host and device, or plain "sum"; None for overlap.
        execution: How the networks are run; see `predict`.
        host: The machine that launches operations; see `predict`.
        calibration: What was measured on the board; see `predict`.
        level: Share of networks that lie within their intervals, such as 0.9; None for no intervals, which take some
            milliseconds of each network.
        cluster: Address of Dask's scheduler, such as tcp://host:8786, whose workers extract and predict; None for this
            process. The workers must have the same version of joulecast and the same predictors.

    Returns:
        Arrays with one value per network, in their order; with several GPUs or clocks, one for each network on each GPU
        at each clock. A network of which too much is not covered has NaN, and `problems` says why.

    Raises:
        UnknownNameError, InputError, ZooError, ExtractionError, MissingDependencyError: See `predict`.

    Examples:
        >>> predictions = predict_many(["resnet18", "resnet50", "alexnet"], "A30", input_shape=(32, 3, 224, 224))
        >>> predictions.names[predictions.energy_j.argmin()]
        'alexnet'
    """
    job = Job.of(locals())
    boards = [find_gpu(each) for each in (gpu if isinstance(gpu, Sequence) and not isinstance(gpu, str) else [gpu])]
    clocks = [*clock] if isinstance(clock, Iterable) else [clock]
    if not boards or not clocks:
        raise InputError("no GPU or no clock is given", given=f"gpu={gpu!r}, clock={clock!r}", allowed="at least one")
    run = Execution.of(execution, find_host(host), find_profile(calibration))
    totals = partial(_totals, job, boards, clocks, run, level)
    if cluster is None:
        return totals(networks)
    with on_cluster(cluster):
        pieces = networks_of(networks) if is_table(networks) else batched(networks)
        parts = call_on_workers(totals, ((piece,) for piece in pieces))
        # The prediction of no networks says what all parts have in common.
        return NetworkPredictions.joined([totals(()), *parts])


def _totals(
    job: Job,
    gpus: Sequence[GPU],
    clocks: Sequence[float | None],
    run: Execution,
    level: float | None,
    networks: Iterable[Model] | Columns | Calls,
) -> NetworkPredictions:
    """The totals of networks, which are extracted one after the other, here or on a worker of a cluster."""

    def allowed(pieces: Iterable[Calls]) -> Iterator[Calls]:
        for calls in pieces:
            for gpu in gpus:
                refuse_precisions(gpu, calls.operations)
            yield calls

    predictors = [find_predictor(gpu, job.mode, job.predictor).under(run) for gpu in gpus]
    if isinstance(networks, Calls):
        pieces: Iterable[Calls] = [networks]
    elif is_table(networks):
        pieces = networks_of(networks)
    else:
        listed = (network_of_job(replace(job, model=model)) for model in networks)
        pieces = map(Calls.of, batched(listed))
    cap_w, way = job.power_limit_w, job.composition
    return predict_networks(predictors, allowed(pieces), clocks, cap_w, composition=way, level=level)
