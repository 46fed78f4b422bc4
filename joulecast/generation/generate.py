"""predict_generation: time, power and energy of a language model that generates text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checked import in_range
from ..errors import named
from ..hardware import GPU
from ..hardware.host import USUAL, Host, find_host, is_wait
from ..predictors.board.profile import Calibrated, find_profile
from ..predictors.networks.composition import Execution
from ..predictors.networks.prediction import Prediction
from ..units import si
from ..zoo import find_predictor
from .deployment import Deployment, checked_batching, checked_load, checked_precisions
from .engines import ENGINES, Engine, checked_sampling
from .models import NO_IMAGES, find_decoder
from .parallel import counted_name_notes, find_gpus, find_parallel, layouts, share
from .prediction import GenerationPrediction
from .run_energy import FOUR_BIT_BYTES
from .server import KERNEL_GAP_S, Server, figures_of
from .serving import Lengths, Tokens
from .steps import StepTokens
from .towers import IMAGES_NOTE, Images, find_images

if TYPE_CHECKING:
    from ..extraction.sources import Model


def predict_generation(
    model: Model,
    gpu: str | GPU | None,
    *,
    batch: int,
    prompt_tokens: Tokens,
    output_tokens: Tokens,
    images: Sequence[Sequence[int]] | None = None,
    precision: str = "bf16",
    engine: str = "vllm",
    tensor_parallel: int | None = None,
    expert_parallel: int = 1,
    batching: str | None = None,
    clock: float | None = None,
    power_limit_w: float | None = None,
    cache_precision: str | None = None,
    sampling: str | None = None,
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    predictor: str | Path | None = None,
) -> GenerationPrediction:
    """Predict time, power and energy of a language model that generates text on one or more GPUs.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.
        gpu: Name or alias from the catalogue, or the path of a TOML file that describes a GPU; "2x H100 SXM" are two,
            which share the model unless `tensor_parallel` says otherwise.
        batch: Number of sequences that run at a time on all GPUs together.
        prompt_tokens: Tokens of each prompt: an int, a pair (mean, standard deviation), or an array with the length of
            each request.
        output_tokens: Tokens that the model generates for each prompt, in the same forms.
        images: Height and width in pixels of each image of a prompt. The tokens that the model makes of them are
            added to `prompt_tokens`, and the part that reads them is predicted.
        precision: Precision of the weights: bf16, fp16, fp8, nvfp4, int4 for AWQ and GPTQ (weights of four bits, all
            products in 16), or mxfp4, in which only experts have four bits, as in GPT-OSS. Norms, logits and attention
            stay in 16 bits.
        engine: Name of an engine in `joulecast.generation.engines.ENGINES`, such as vllm.
        tensor_parallel: Number of GPUs that share each layer. Further GPUs are replicas, which share the batch. None
            for as many of the GPUs as the model can be divided over, or with `expert_parallel` for 1.
        expert_parallel: Number of GPUs over which whole experts are distributed; 1 if tensor parallelism divides each
            expert. With tensor_parallel=1, each of these GPUs has all other layers and sequences of its own
            (data-parallel attention).
        batching: "continuous" or "static"; None for the engine's own.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.
        cache_precision: Precision of keys and values: fp8; None for 16 bits.
        sampling: greedy, temperature, or top_p (also for top-k), which sorts the whole vocabulary. None for what the
            engine does by default: vLLM takes top-p and top-k from the model's generation_config.
        host: The machine that runs the engine, see `joulecast.predict`: its factor scales the seconds for which GPUs
            wait for the engine. "25 ms" if they are known to wait so long in each step. None for a usual one, of which
            it is not known how fast it is: intervals are wider.
        calibration: What was measured on a board of this GPU; see `joulecast.predict`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.

    Returns:
        Seconds, watts and joules of an average request, with one step of each phase.

    Raises:
        UnknownNameError: No such model, GPU, engine, batching, precision, sampling, host or predictor.
        InputError: The model does not generate text, or not so long ones; or the GPU lacks the memory or the precision,
            or cannot hold the clock or the power cap.
        ZooError, ExtractionError, UncoveredError, MissingDependencyError: See `joulecast.predict`.

    Examples:
        >>> chat = predict_generation("llama3_8b", "H100 SXM", batch=64, prompt_tokens=512, output_tokens=512)
        >>> chat.memory.fits
        True
    """
    prompt, output = Lengths.of("prompt_tokens", prompt_tokens), Lengths.of("output_tokens", output_tokens)
    asked = locals()
    found = find_images(model, find_decoder(model), images)
    prompt = prompt if found is None else prompt.plus(found.tokens)
    server = server_of(asked, batch, prompt, output, batching, found)
    server.deployment.refuse_shortage()
    return answer(server, asked, prompt, output)


def answer(server: Server, asked: Mapping[str, Any], prompt: Lengths, output: Lengths) -> GenerationPrediction:
    """Predict what a server does, even if it has too little memory."""
    deployment = server.deployment
    board, engine = deployment.gpu, deployment.engine
    clock_mhz = board.checked_clock_mhz(asked["clock"])
    images, steps = deployment.images, [each for each in deployment.cycle if not each.tokens.images]
    server.prepare((*deployment.steps, deployment.decoding, deployment.reading))
    figures: dict[str, Any] = {
        name: float(values[0]) for name, values in figures_of(deployment, server, [clock_mhz]).items()
    }
    del figures["latency_s"]  # It follows from the others.
    decode = server.predict(deployment.decoding, clock_mhz)

    def waiting_s(step: StepTokens) -> float:
        return float(server.waiting_s(step, server.predict(step, clock_mhz).time_s))

    return GenerationPrediction(
        model=deployment.decoder.name,
        gpu=board.name,
        gpus=deployment.parallel.gpus,
        tensor_parallel=deployment.parallel.tensor,
        expert_parallel=deployment.parallel.expert,
        engine=engine.name,
        batching=deployment.batching,
        batch=deployment.total_load.batch,
        prompt_tokens=prompt.mean,
        output_tokens=output.mean,
        prompt_deviation=prompt.deviation,
        output_deviation=output.deviation,
        precision=deployment.precisions.weights,
        cache_precision=deployment.precisions.cache,
        clock_mhz=clock_mhz,
        power_limit_w=board.checked_power_limit_w(asked["power_limit_w"]),
        **figures,
        energy_per_request_j=figures["energy_per_token_j"] * output.mean,
        host=server.predictor.host.execution.host.name if engine.wait_sigma else asked["host"],
        overhead_s=sum(each.count * waiting_s(each.tokens) for each in steps) / sum(each.count for each in steps),
        memory=deployment.memory,
        largest_batch=deployment.largest_batch,
        prefill=server.predict(deployment.reading, clock_mhz),
        decode=decode,
        image_tokens=0 if images is None else images.tokens,
        reading_images=None if images is None else server.predict(StepTokens(images=True), clock_mhz),
        idle_power_w=decode.idle_power_w,
        sigmas=server.sigmas(deployment.decoding, decode),
        notes=notes_of(server, asked, decode),
    )


def notes_of(server: Server, asked: Mapping[str, Any], decode: Prediction) -> tuple[str, ...]:
    """What is assumed of a server as it was asked for, whatever its requests; `decode` is a step that decodes."""
    deployment, parallel = server.deployment, server.deployment.parallel
    engine, images = deployment.engine, deployment.images
    layout = f"the {parallel.gpus} GPUs are used as {parallel}; give tensor_parallel for another layout"
    alone = ", 1 for replicas that share nothing" if parallel.tensor > 1 else ""
    return (
        *counted_name_notes(asked["gpu"]),
        *((layout + alone,) if asked["tensor_parallel"] is None and parallel.gpus > 1 else ()),
        *_notes(engine, deployment.precisions.weights),
        *((_TOP_P_NOTE,) if asked["sampling"] is None and engine.sampling == "top_p" else ()),
        *(note for note in deployment.decoder.notes if images is None or note != NO_IMAGES),
        *(() if images is None else (IMAGES_NOTE,)),
        # Notes on the intervals of single networks do not apply here.
        *(note for note in decode.notes if not note.startswith("no interval")),
    )


def server_of(
    asked: Mapping[str, Any],
    batch: int,
    prompt: Lengths,
    output: Lengths,
    batching: str | None = None,
    images: Images | None = None,
) -> Server:
    """One GPU of a model as it is asked to be served: what is left out of `asked` is the engine's own.

    `batching`: "continuous" or "static"; None for the engine's own.
    `images`: Images of each prompt, whose tokens are among those of the prompt.
    """
    engine, decoder = named("engine", asked["engine"], ENGINES), find_decoder(asked["model"])
    sampling, batched = checked_sampling(asked.get("sampling"), engine, decoder), checked_batching(batching, engine)
    count, board = find_gpus(asked["gpu"])
    parallel, experts = asked.get("layout"), asked.get("expert_parallel", 1)
    if parallel is None:
        shared = asked["tensor_parallel"]
        if shared is None:
            # As many as the model can be divided over; find_parallel refuses experts on what is no number of GPUs.
            shared = next(layouts(count, board, decoder)).tensor if experts == 1 and engine.fused else 1
        parallel = find_parallel(count, board, shared, experts)
    wait_s = _wait_s(asked.get("host"))
    machine = find_host(asked.get("host") if wait_s is None else None)
    engine = replace(
        engine.on_host(machine.of(board).factor / USUAL.of(board).factor, wait_s).on(board), sampling=sampling
    )
    if asked.get("max_step_tokens") is not None:
        engine = replace(engine, step_tokens=asked["max_step_tokens"])
    deployment = Deployment(
        share(decoder, parallel),
        board,
        engine,
        checked_precisions(asked["precision"], asked["cache_precision"], engine),
        parallel,
        batched,
        checked_load(decoder, batch, prompt, output, batched),
        images,
    )
    how = machine, find_profile(asked["calibration"])
    execution = Execution("graph", *how, KERNEL_GAP_S) if engine.fused else Execution("eager", *how)
    predictor = find_predictor(board, "inference", asked.get("predictor")).under(execution)
    return Server(asked["model"], deployment, predictor, asked["power_limit_w"])


def _wait_s(host: object) -> float | None:
    """Seconds of each step for which GPUs wait, where a host is given as such; None for a host of another form."""
    if not is_wait(host):
        return None
    try:
        wait_ms: object = float("".join(str(host).split()[:-1]))
    except ValueError:
        wait_ms = host
    return in_range("the milliseconds of the host", wait_ms) / 1e3


_TOP_P_NOTE = (
    "assumed: tokens are sampled by top-p or top-k, as the model's generation_config says, and vLLM sorts all logits "
    "for it, as up to version 0.13; sampling='temperature' leaves it out"
)


def _notes(engine: Engine, precision: str) -> tuple[str, ...]:
    if not engine.fused:
        return ()
    waiting = f"the GPU waits for {engine.name} {si(engine.step_s, 's')} a step, "
    if not engine.wait_sigma:
        waiting += "as host says"
    else:
        waiting = f"assumed: {waiting}and {si(engine.sequence_s, 's')} for each of its sequences"
    if engine.name == "vllm" and engine.wait_sigma:
        waiting += ", as in version 0.11; later versions schedule ahead by default, which is the engine vllm_async"
    if precision in FOUR_BIT_BYTES:
        what = "experts" if precision == "mxfp4" else "layers"
        return waiting, f"assumed: {what} in {precision} take as long as in bf16, but for reading their weights"
    return (waiting,)
