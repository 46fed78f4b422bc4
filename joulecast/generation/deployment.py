"""A deployment: a model served by an engine, on certain GPUs, in certain precisions, under a load; and its memory."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import InputError, named, unknown_name
from ..hardware import GPU
from ..predictors.networks.memory import usable_bytes
from ..rendering.answers import Plain
from ..units import si
from .decoder import Activation, Decoder, Logits, Projection
from .engines import Engine
from .parallel import Parallel
from .serving import BATCHINGS, Batching, Cycle, Lengths, Load, cycle_of, in_lockstep, with_images
from .steps import Precisions, StepTokens
from .towers import Images

CACHED_IN: Mapping[str | None, float] = {None: 2.0, "fp8": 1.0}
"""Precision of keys and values -> bytes of an element."""

STATE_BYTES = 4.0  # Of an element of a recurrent state, in fp32.
BLOCK = 16  # Tokens of a block of an engine's cache; half of one is lost at the end of each sequence, on average.
_LOGITS_BYTES = 3 * 4  # Logits, probabilities and random numbers of each word in fp32.


@dataclass(frozen=True)
class GenerationMemory(Plain):
    """Memory of one GPU by its use.

    Args:
        weights_bytes: Bytes of the weights of the model, or of one GPU's part of it.
        cache_bytes: Bytes of the keys and values of the batch.
        activations_bytes: Bytes of the activations of the largest step that the engine may make, whatever the load.
        usable_bytes: Bytes of the board's memory that the engine may use.
    """

    weights_bytes: int
    cache_bytes: int
    activations_bytes: int
    usable_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of weights, cache and activations in bytes."""
        return self.weights_bytes + self.cache_bytes + self.activations_bytes

    @property
    def fits(self) -> bool:
        """Whether this is no more than the engine may use."""
        return self.total_bytes <= self.usable_bytes


def weights_bytes(decoder: Decoder, precisions: Precisions) -> int:
    """Bytes of all weights."""
    return round(
        sum(len(modules) * part.parameters * precisions.element_bytes(part) for part, modules in decoder.weighted)
    )


def cached_bytes(decoder: Decoder, tokens: int, precisions: Precisions) -> float:
    """Bytes of the keys and values of one sequence, of which windows drop the oldest, and of its recurrent states."""
    return STATE_BYTES * decoder.state_elements + sum(
        layers * part.cached_elements * min(tokens, part.window or tokens) * CACHED_IN[precisions.cache]
        for part, layers in decoder.attentions
    )


def activations_bytes(decoder: Decoder, tokens: StepTokens) -> int:
    """Bytes of the residual, of the input and output of the widest layer, all in 16 bits, and of the logits."""
    widest = max(part.inputs + part.outputs for part, _ in decoder.of(Projection))
    inner = max((part.size for part, _ in decoder.of(Activation)), default=0)
    words = max(part.vocabulary for part, _ in decoder.of(Logits))
    return 2 * tokens.tokens * (2 * decoder.hidden + widest + inner) + tokens.sampled * words * _LOGITS_BYTES


WEIGHTS = ("bf16", "fp16", "fp8", "nvfp4", "mxfp4", "int4")
"""Precisions in which weights can be served."""
SAME = {"awq": "int4", "gptq": "int4"}
"""Other name of a precision -> its name."""

_CACHES = (None, "fp8")


@dataclass(frozen=True)
class Deployment:
    """A model that is served."""

    decoder: Decoder  # One GPU's part of the model
    gpu: GPU  # The GPU model; all GPUs are alike
    engine: Engine  # The engine that serves the model
    precisions: Precisions  # Precisions of weights and cache
    parallel: Parallel  # How the model is divided over the GPUs
    batching: Batching  # How requests follow each other: "continuous" or "static"
    total_load: Load  # The load of all GPUs together
    images: Images | None = None  # Images of each prompt, whose tokens are among those of the load

    def __post_init__(self) -> None:
        engine, gpu, precisions = self.engine, self.gpu, self.precisions
        if engine.capabilities and not gpu.compute_capability.startswith(engine.capabilities):
            raise InputError(
                f"{engine.name} does not run on {gpu.name}",
                given=f"compute capability {gpu.compute_capability}",
                allowed="NVIDIA's GPUs from Volta on",
                hint="choose another engine, such as vllm",
            )
        if self.decoder.experts and not engine.grouped_experts and precisions.weights not in ("bf16", "fp16"):
            raise InputError(
                f"experts in {precisions.weights} cannot be predicted on {gpu.name}",
                given=f"{self.decoder.name} in {precisions.weights}",
                allowed="bf16 or fp16, because no kernels for quantized experts were measured on AMD's GPUs",
                hint="give bf16, or another GPU",
            )
        if precisions.weights == "mxfp4" and not self.decoder.experts:
            raise InputError(
                "weights in mxfp4 are predicted for experts only",
                given=f"{self.decoder.name}, which has no experts",
                allowed="models with experts, such as gpt_oss_20b",
                hint="use nvfp4 or fp8, which are predicted for all layers",
            )
        if self.parallel.tensor > 1 and not engine.fused:
            raise InputError(
                f"{engine.name} runs a model on a single GPU",
                given=f"tensor_parallel={self.parallel.tensor}",
                allowed="1",
                hint="choose an engine with tensor parallelism, such as vllm",
            )

    @property
    def load(self) -> Load:
        """The load of one of the groups of GPUs that have sequences of their own."""
        return replace(self.total_load, batch=math.ceil(self.total_load.batch / self.parallel.groups))

    @property
    def busy(self) -> float:
        """Number of these groups that have requests, as a mean."""
        return self.total_load.batch / self.load.batch

    @cached_property
    def cycle(self) -> Cycle:
        """The steps in which a replica serves its load."""
        cycle = cycle_of(self.load, self.engine, self.batching)
        if self.engine.pads_ranks and self.parallel.senders > 1 and self.batching == "continuous":
            cycle = in_lockstep(cycle, self.load, self.parallel.senders, self.engine.step_tokens)
        return cycle if self.images is None else with_images(cycle, self.load, self.batching)

    @property
    def steps(self) -> tuple[StepTokens, ...]:
        """All kinds of steps from which the figures of the deployment are computed."""
        return tuple(each.tokens for each in self.cycle)

    @property
    def decoding(self) -> StepTokens:
        """A step in which the whole batch decodes and no prompt is read."""
        return StepTokens(self.load.batch, self.load.cached_tokens, sampled=self.load.batch)

    @property
    def reading(self) -> StepTokens:
        """A step that reads as many prompts as the largest step of a cycle, and decodes nothing."""
        read = next(each.tokens for each in reversed(self.cycle) if each.tokens.prompts)
        return StepTokens(0, 0, read.prompts, read.prompt_tokens, read.prompt_cached, read.prompts)

    @cached_property
    def memory(self) -> GenerationMemory:
        """The memory that each GPU needs."""
        return self.memory_of(self.load.batch)

    @cached_property
    def largest_batch(self) -> int:
        """The largest number of sequences of these lengths that fit on all GPUs together; 0 if not even one fits."""
        batches = range(1, self.engine.step_tokens)
        fitting = bisect_left(batches, True, key=lambda batch: not self.memory_of(batch).fits)
        return self.parallel.groups * fitting

    def refuse_shortage(self) -> None:
        """Raise an error if the load does not fit into the memory."""
        if self.memory.fits:
            return
        memory, load = self.memory, self.load
        ways = [*self._narrower, "more GPUs", "GPUs with more memory"]
        hint = f"use {', '.join(ways[:-1])}, or {ways[-1]}"
        if self.largest_batch:
            why = f"because {self.engine.name} would run no more at a time and let the others wait"
            hint = f"give a batch of at most {self.largest_batch}, {why}; or {hint}"
        raise InputError(
            f"{self.decoder.name} with a batch of {self.total_load.batch} of {load.prompt_tokens} + "
            f"{load.output_tokens} tokens does not fit into the memory of {self.gpu.name}",
            given=f"{si(memory.total_bytes, 'B')} for each GPU: {si(memory.weights_bytes, 'B')} of weights, "
            f"{si(memory.cache_bytes, 'B')} of cache",
            allowed=f"{si(memory.usable_bytes, 'B')}, the share of the board's memory that the engine uses",
            hint=hint,
        )

    @property
    def _narrower(self) -> Iterator[str]:
        """Narrower weights and caches that the engine has on this GPU."""
        if not self.engine.fused:
            return
        weights = self.precisions.weights
        narrower = {"bf16": "fp8", "fp16": "fp8", "fp8": "nvfp4"}.get(weights)
        if narrower in self.gpu.peak_flops:
            yield f"{narrower} weights"
        if self.precisions.cache is None:
            yield "cache_precision='fp8'"

    @property
    def tower_bytes(self) -> int:
        """Bytes of the tower that reads images, in 16 bits."""
        return 0 if self.images is None else math.ceil(2 * self.images.parameters / self.parallel.tensor)

    def memory_of(self, batch: int) -> GenerationMemory:
        """The memory that each GPU needs for a batch of these requests.

        Engines keep memory for the activations of a full step before they serve any request, and caches in blocks.
        """
        load, engine = replace(self.load, batch=batch), self.engine
        tokens = load.held_tokens(self.batching)
        if engine.fused:
            largest = StepTokens(batch, 1, 1, max(1, engine.step_tokens - batch), sampled=batch)
            tokens += BLOCK // 2
        else:
            steps = (each.tokens for each in cycle_of(load, engine, self.batching))
            largest = max(steps, key=lambda each: each.tokens)
        return GenerationMemory(
            weights_bytes=weights_bytes(self.decoder, self.precisions) + self.tower_bytes,
            cache_bytes=round(batch * cached_bytes(self.decoder, tokens, self.precisions)),
            activations_bytes=activations_bytes(self.decoder, largest),
            usable_bytes=round(usable_bytes(self.gpu) * engine.memory_share),
        )


def checked_load(decoder: Decoder, batch: int, prompt: Lengths, output: Lengths, batching: Batching) -> Load:
    """The requests, checked."""
    load = Load.of(batch, prompt, output)
    if decoder.context is not None and prompt.longest + output.longest > decoder.context:
        raise InputError(
            f"prompt and output are longer than the context of {decoder.name}",
            given=f"{prompt.longest:.12g} + {output.longest:.12g} tokens",
            allowed=f"up to {decoder.context} tokens together",
            hint="give a shorter prompt or output, or a model with a longer context",
        )
    if batching == "static" and output.deviation:
        raise InputError(
            "a static batch is predicted for outputs of equal length",
            given=f"outputs of {output.mean:.6g} tokens with a standard deviation of {output.deviation:.6g}",
            allowed="output_tokens as one number",
            hint="give the longest output, because a static batch runs until its last sequence ends",
        )
    return load


def checked_precisions(weights: str, cache: str | None, engine: Engine) -> Precisions:
    """The precisions of weights and cache, checked."""
    weights = SAME.get(weights, weights) if isinstance(weights, str) else weights
    if weights not in WEIGHTS:
        raise unknown_name("precision of weights", weights, WEIGHTS)
    if cache not in _CACHES:
        raise unknown_name("precision of a cache", str(cache), ["fp8"], hint="leave it out for a cache in 16 bits")
    if not engine.fused and (weights not in ("bf16", "fp16") or cache is not None):
        raise InputError(
            f"{engine.name} computes in 16 bits",
            given=f"weights in {weights}, cache in {cache or '16 bits'}",
            allowed="bf16 or fp16",
            hint="choose an engine with kernels for quantized weights, such as vllm",
        )
    return Precisions(weights, cache)


def checked_batching(name: str | None, engine: Engine) -> Batching:
    """The kind of batching, checked."""
    known: dict[str, Batching] = {each: each for each in BATCHINGS if engine.fused or each == "static"}
    return next(iter(known.values())) if name is None else named(f"batching of {engine.name}", name, known)
