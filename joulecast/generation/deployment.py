"""A deployment: which model is served by which engine, on which GPUs, in what precisions, for which load."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import InputError, unknown_name
from ..hardware import GPU
from ..operations.precisions import QUANTIZED
from ..units import si
from .decoder import Decoder
from .engines import Engine
from .memory import GenerationMemory, generation_memory, largest_batch
from .parallel import Parallel, share
from .serving import BATCHINGS, Batching, Cycle, Load, cycle_of
from .steps import Precisions, StepTokens

WEIGHTS = ("bf16", "fp16", "fp8", "nvfp4")
"""What weights can be served in."""

_CACHES = (None, "fp8")


@dataclass(frozen=True)
class Deployment:
    """A model that is served.

    Args:
        decoder: What one GPU has of the model.
        gpu: Each of the GPUs.
        engine: What serves it.
        precisions: What it is served in.
        parallel: How it is divided.
        batching: How requests follow each other.
        asked: What is asked of all GPUs together.
    """

    decoder: Decoder
    gpu: GPU
    engine: Engine
    precisions: Precisions
    parallel: Parallel
    batching: Batching
    asked: Load

    @classmethod
    def of(
        cls,
        decoder: Decoder,
        gpu: GPU,
        engine: Engine,
        precisions: Precisions,
        parallel: Parallel,
        batching: Batching,
        asked: Load,
    ) -> Deployment:
        """A deployment of a whole model.

        Raises:
            InputError: The engine does not run there or does not share models, or the model does not divide.
        """
        if engine.capabilities and not gpu.compute_capability.startswith(engine.capabilities):
            raise InputError(
                f"{engine.name} does not run on {gpu.name}",
                given=f"compute capability {gpu.compute_capability}",
                allowed="NVIDIA's GPUs from Volta on",
                hint="choose another engine, such as vllm",
            )
        if parallel.tensor > 1 and not engine.fused:
            raise InputError(
                f"{engine.name} runs a model on one GPU",
                given=f"tensor_parallel={parallel.tensor}",
                allowed="1",
                hint="choose an engine that shares layers, such as vllm",
            )
        return cls(share(decoder, parallel), gpu, engine.on(gpu), precisions, parallel, batching, asked)

    @property
    def load(self) -> Load:
        """What is asked of one replica, of those that have requests."""
        return replace(self.asked, batch=math.ceil(self.asked.batch / self.parallel.replicas))

    @property
    def busy(self) -> float:
        """Replicas that have requests."""
        return self.asked.batch / self.load.batch

    @cached_property
    def cycle(self) -> Cycle:
        """The steps of a replica."""
        return cycle_of(self.load, self.engine, self.batching)

    @property
    def steps(self) -> tuple[StepTokens, ...]:
        """All steps that figures are made of."""
        cycle = self.cycle
        return tuple(each.tokens for each in (*cycle.steps, *cycle.first_token, *cycle.next_tokens))

    @property
    def decoding(self) -> StepTokens:
        """A step in which the batch decodes, and nothing else."""
        return StepTokens(self.load.batch, self.load.cached_tokens("continuous"), sampled=self.load.batch)

    @property
    def reading(self) -> StepTokens:
        """A step that reads as many prompts as the largest of a cycle, and nothing else."""
        read = next(each.tokens for each in reversed(self.cycle.steps) if each.tokens.prompts)
        return StepTokens(0, 0, read.prompts, read.prompt_tokens, read.prompt_cached, read.prompts)

    @cached_property
    def memory(self) -> GenerationMemory:
        """The memory of a GPU."""
        return self._memory(self.load.batch)

    @cached_property
    def largest_batch(self) -> int:
        """Sequences of these lengths that fit on all GPUs together; 0 where not one does."""
        return self.parallel.replicas * largest_batch(self._memory, self.engine.step_tokens - 1)

    def refuse_shortage(self) -> None:
        """Refuse what does not fit.

        Raises:
            InputError: The GPUs have too little memory; says what would fit.
        """
        if self.memory.fits:
            return
        memory, load = self.memory, self.load
        hint = "serve it in fp8, over more GPUs, or on one with more memory"
        if self.largest_batch:
            hint = f"take a batch of at most {self.largest_batch}, or cache_precision='fp8'; or " + hint
        raise InputError(
            f"{self.decoder.name} with a batch of {self.asked.batch} of {load.prompt_tokens} + {load.output_tokens} "
            f"tokens does not fit on {self.gpu.name}",
            given=f"{si(memory.total_bytes, 'B')} for each GPU: {si(memory.weights_bytes, 'B')} of weights, "
            f"{si(memory.cache_bytes, 'B')} of cache",
            allowed=f"{si(memory.usable_bytes, 'B')}, what engines take of the board's memory",
            hint=hint,
        )

    def _memory(self, batch: int) -> GenerationMemory:
        load = replace(self.load, batch=batch)
        return generation_memory(self.decoder, load, self.gpu, self.engine, self.precisions, self.batching)


def checked_precisions(weights: str, cache: str | None, engine: Engine) -> Precisions:
    """What a model is served in.

    Raises:
        UnknownNameError: There is no such precision.
        InputError: The engine has no kernels for it.
    """
    if weights not in WEIGHTS:
        raise unknown_name("precision of weights", weights, WEIGHTS)
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


def checked_batching(name: str | None, engine: Engine) -> Batching:
    """How requests follow each other; None for what the engine does.

    Raises:
        UnknownNameError: The engine has no such batching.
    """
    if name is None:
        return "continuous" if engine.fused else "static"
    for known in BATCHINGS:
        if name == known and (engine.fused or known == "static"):
            return known
    raise unknown_name(f"batching of {engine.name}", name, BATCHINGS if engine.fused else ["static"])
