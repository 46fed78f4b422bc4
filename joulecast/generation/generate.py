"""predict_generation: steps of an engine, added up to requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, unknown_name
from ..hardware import GPU
from ..operations.precisions import QUANTIZED
from ..predictors.physics.energy import static_power_w
from ..units import si
from .decoder import Decoder
from .engines import Engine, find_engine
from .memory import GenerationMemory, generation_memory, largest_batch
from .models import find_decoder
from .parallel import Parallel, find_gpus, find_parallel, share
from .prediction import GenerationPrediction
from .server import NOTHING, Cost, Server
from .serving import BATCHINGS, Batching, Load, Steps, cycle_of
from .steps import Precisions, StepTokens

if TYPE_CHECKING:
    from ..extraction.sources import Model

_WEIGHTS = ("bf16", "fp16", "fp8", "nvfp4")
_CACHES = (None, "fp8")


def predict_generation(
    model: Model,
    gpu: str | GPU | None,
    *,
    batch: int,
    prompt_tokens: int,
    output_tokens: int,
    precision: str = "bf16",
    engine: str = "vllm",
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    batching: str | None = None,
    clock: float | None = None,
    power_limit_w: float | None = None,
    cache_precision: str | None = None,
    predictor: str | Path | None = None,
) -> GenerationPrediction:
    """Predict what text costs that a language model writes on a GPU.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.
        gpu: Name or alias from the catalogue, or the path of a TOML file that describes a GPU; "2x H100 SXM" are two.
        batch: Sequences that are served at a time by all GPUs together; continuous batching keeps as many running.
        prompt_tokens: Tokens of each prompt.
        output_tokens: Tokens that are written for each.
        precision: Of the weights: bf16, fp16, fp8 or nvfp4. Norms, logits and attention stay in 16 bits.
        engine: vllm, sglang or tensorrt_llm, with fused kernels in CUDA graphs; or transformers, which is eager.
        tensor_parallel: GPUs that share each layer; the others are further replicas, which share the batch.
        expert_parallel: GPUs that whole experts are shared out to; 1 where tensor parallelism divides them.
        batching: "continuous" or "static"; None for what the engine does.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.
        cache_precision: fp8 for keys and values; None for 16 bits.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.

    Returns:
        Seconds, watts and joules of a mean request, with a step of each phase.

    Raises:
        UnknownNameError: No such model, GPU, engine, batching, precision or predictor.
        InputError: The model writes no text; or the GPU lacks the memory, the precision, the clock or the cap.
        ZooError, ExtractionError, UncoveredError, MissingDependencyError: See `joulecast.predict`.

    Example:
        >>> chat = predict_generation("llama3_8b", "H100 SXM", batch=64, prompt_tokens=512, output_tokens=512)
        >>> chat.memory.fits
        True
    """
    found, (count, board) = find_engine(engine), find_gpus(gpu)
    parallel = find_parallel(count, board, tensor_parallel, expert_parallel)
    whole = Load(batch, prompt_tokens, output_tokens)
    load = replace(whole, batch=math.ceil(batch / parallel.replicas))
    precisions = _precisions(precision, cache_precision, found)
    _refuse_board(found, board)
    way = _batching(batching, found)
    decoder = _shared(find_decoder(model), parallel, found)
    cycle = cycle_of(load, found, way)

    def need(sequences: int) -> GenerationMemory:
        return generation_memory(decoder, replace(load, batch=sequences), board, found, precisions, way)

    memory, most = need(load.batch), largest_batch(need, found.step_tokens - 1)
    if not memory.fits:
        raise _does_not_fit(decoder.name, load, memory, most, board)
    server = Server.of(model, decoder, board, found, precisions, parallel, clock, power_limit_w, predictor)
    total = _all_replicas(_sum(server, cycle.steps), whole, load, server)
    tokens = whole.batch * whole.output_tokens
    read = next(each.tokens for each in reversed(cycle.steps) if each.tokens.prompts)
    prefill = server.predict(StepTokens(0, 0, read.prompts, read.prompt_tokens, read.prompt_cached, read.prompts))
    cached = load.cached_tokens("continuous")
    decode = server.predict(StepTokens(load.batch, cached, sampled=load.batch))
    steps = sum(each.count for each in cycle.steps)
    overheads = (each.count * found.overhead_s(each.tokens.decoding + each.tokens.prompts) for each in cycle.steps)
    return GenerationPrediction(
        model=decoder.name,
        gpu=board.name,
        gpus=parallel.gpus,
        tensor_parallel=parallel.tensor,
        expert_parallel=parallel.expert,
        engine=found.name,
        batching=way,
        batch=whole.batch,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        precision=precision,
        cache_precision=cache_precision,
        clock_mhz=decode.clock_mhz,
        power_limit_w=decode.power_limit_w,
        time_to_first_token_s=_sum(server, cycle.first_token).time_s,
        time_per_output_token_s=_sum(server, cycle.next_tokens).time_s,
        tokens_per_s=tokens / total.time_s,
        power_w=total.energy_j / total.time_s,
        energy_per_token_j=total.energy_j / tokens,
        energy_per_request_j=total.energy_j / whole.batch,
        overhead_s=sum(overheads) / steps,
        memory=memory,
        largest_batch=most * parallel.replicas,
        prefill=prefill,
        decode=decode,
        idle_power_w=decode.idle_power_w,
        sigmas=server.sigmas(StepTokens(load.batch, cached, sampled=load.batch)),
        # (what is said about intervals of networks is not about these)
        notes=(*_notes(found), *(note for note in decode.notes if not note.startswith("no interval"))),
    )


def _all_replicas(one: Cost, whole: Load, load: Load, server: Server) -> Cost:
    """What all GPUs take while one replica serves its part of the batch; replicas without requests wait."""
    busy = whole.batch / load.batch
    idle_w = float(static_power_w(server.gpu, float(server.gpu.boost_clock_mhz)))
    waiting_j = (server.parallel.replicas - busy) * idle_w * one.time_s
    return Cost(one.time_s, server.parallel.tensor * (busy * one.energy_j + waiting_j))


def _shared(decoder: Decoder, parallel: Parallel, engine: Engine) -> Decoder:
    if parallel.tensor > 1 and not engine.fused:
        raise InputError(
            f"{engine.name} runs a model on one GPU",
            given=f"tensor_parallel={parallel.tensor}",
            allowed="1",
            hint="choose an engine that shares layers, such as vllm",
        )
    return share(decoder, parallel)


def _sum(server: Server, steps: Sequence[Steps]) -> Cost:
    return reduce(Cost.plus, (server.cost(each.tokens).times(each.count) for each in steps), NOTHING)


def _precisions(weights: str, cache: str | None, engine: Engine) -> Precisions:
    if weights not in _WEIGHTS:
        raise unknown_name("precision of weights", weights, _WEIGHTS)
    if cache not in _CACHES:
        raise unknown_name("precision of a cache", str(cache), ["fp8"], hint="leave it out for 16 bits")
    if not engine.fused and (weights in QUANTIZED or cache is not None):
        raise InputError(
            f"{engine.name} computes in 16 bits",
            given=f"weights in {weights}, cache in {cache or '16 bits'}",
            allowed="bf16 or fp16",
            hint="choose an engine with quantized kernels, such as vllm",
        )
    return Precisions(weights, cache)


def _batching(name: str | None, engine: Engine) -> Batching:
    if name is None:
        return "continuous" if engine.fused else "static"
    for known in BATCHINGS:
        if name == known and (engine.fused or known == "static"):
            return known
    raise unknown_name(f"batching of {engine.name}", name, BATCHINGS if engine.fused else ["static"])


def _refuse_board(engine: Engine, gpu: GPU) -> None:
    if engine.capabilities and not gpu.compute_capability.startswith(engine.capabilities):
        raise InputError(
            f"{engine.name} does not run on {gpu.name}",
            given=f"compute capability {gpu.compute_capability}",
            allowed="NVIDIA's GPUs from Volta on",
            hint="choose another engine, such as vllm",
        )


def _does_not_fit(name: str, load: Load, memory: GenerationMemory, most: int, gpu: GPU) -> InputError:
    lengths = f"{load.prompt_tokens} + {load.output_tokens} tokens"
    parts = f"{si(memory.weights_bytes, 'B')} of weights, {si(memory.cache_bytes, 'B')} of cache"
    hint = "serve it in fp8, over more GPUs, or on one with more memory"
    if most:
        hint = f"take a batch of at most {most}, or cache_precision='fp8'; or " + hint
    return InputError(
        f"{name} with a batch of {load.batch} of {lengths} does not fit on {gpu.name}",
        given=f"{si(memory.total_bytes, 'B')}, {parts}",
        allowed=f"{si(memory.usable_bytes, 'B')}, what engines take of the board's memory",
        hint=hint,
    )


def _notes(engine: Engine) -> tuple[str, ...]:
    if not engine.fused:
        return ()
    return (
        f"assumed: the GPU waits for {engine.name} {si(engine.step_s, 's')} a step, and {si(engine.sequence_s, 's')} "
        "for each of its sequences; tokens are sampled at a temperature, without top-p",
    )
