"""Engines that serve language models, and what they take beside their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import unknown_name
from ..hardware import GPU

_CAPTURED = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))


@dataclass(frozen=True)
class Engine:
    """How an engine serves.

    Args:
        name: As users write it.
        implementation: Whose kernels of attention and experts it calls; see `IMPLEMENTATIONS` of the operation kinds.
        step_s: Seconds of each step in which the GPU waits for the engine: choosing what runs, preparing inputs,
            fetching sampled tokens.
        sequence_s: Seconds more for each sequence of the batch.
        step_tokens: Tokens that a step takes at most, prompts in pieces among them.
        small_step_tokens: The same on boards that are small or slow at reading prompts; None for as many.
        memory_share: Share of the board's memory that it takes for weights, activations and cache.
        captured: Batches that it recorded as CUDA graphs; a smaller batch is padded to the next one.
        fused: Whether it runs fused kernels in CUDA graphs, or a model as `transformers` has it.
        capabilities: What the compute capabilities of its GPUs begin with; empty for all GPUs.
    """

    name: str
    implementation: str
    step_s: float
    sequence_s: float
    step_tokens: int = 8192
    small_step_tokens: int | None = None
    memory_share: float = 0.9
    captured: tuple[int, ...] = _CAPTURED
    fused: bool = True
    capabilities: tuple[str, ...] = ()

    def on(self, gpu: GPU) -> Engine:
        """The engine with its settings on a GPU."""
        small = gpu.memory_bytes < _LARGE_BYTES or "A100" in gpu.name
        return (
            self if self.small_step_tokens is None or not small else replace(self, step_tokens=self.small_step_tokens)
        )

    def overhead_s(self, sequences: float) -> float:
        """Seconds of a step in which the GPU waits for the engine."""
        return self.step_s + self.sequence_s * sequences

    def padded(self, sequences: int) -> int:
        """Sequences that a step of decoding computes."""
        return next((size for size in self.captured if size >= sequences), sequences)


_LARGE_BYTES = 70 * 2**30
_NVIDIA = ("7.", "8.", "9.", "10.", "12.")

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        # Overheads are assumptions: nothing in this project's data shows them. vLLM before its V1 engine left gaps of 5
        # to 6 ms between steps of 256 sequences (vllm-project/vllm, issue 10634). V1 moved tokenization and HTTP out of
        # the loop (its blog, January 2025), which is taken to leave 1 ms and some microseconds for each sequence.
        # Its server takes 2048 tokens a step on A100s and on boards of less than 70 GiB (vllm/engine/arg_utils.py).
        Engine("vllm", "vllm", step_s=0.9e-3, sequence_s=5e-6, small_step_tokens=2048),
        # Prepares the next step while the GPU works on this one (its blog, December 2024: "zero-overhead scheduler").
        Engine("sglang", "pytorch", step_s=0.3e-3, sequence_s=1e-6),
        # The loop is in C++, and overlapped as well.
        Engine("tensorrt_llm", "tensorrt_llm", step_s=0.3e-3, sequence_s=1e-6, capabilities=_NVIDIA),
        # `generate` of transformers: eager, one batch from beginning to end, logits and cache as the model has them.
        Engine("transformers", "pytorch", step_s=0.5e-3, sequence_s=0.0, fused=False, captured=()),
    )
}
"""Name -> engine."""


def find_engine(name: str) -> Engine:
    """An engine by its name.

    Raises:
        UnknownNameError: There is none of that name.
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    return ENGINES[name]
