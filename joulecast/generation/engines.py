"""Engines that serve language models, and the time of a step in which the GPU waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import named
from ..hardware import GPU

_CAPTURED = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))


@dataclass(frozen=True)
class Engine:
    """How an engine serves a model.

    Args:
        name: The name that users write.
        implementation: The library whose kernels the engine calls for attention and experts, as `IMPLEMENTATIONS` of
            the operation kinds names it.
        collectives: The implementation of collectives that it calls, as collectives.json.gz names it.
        step_s: Seconds of each step in which the GPU waits for the engine, which chooses the sequences of the next
            step, prepares their inputs, and fetches the sampled tokens.
        sequence_s: Additional seconds of waiting for each sequence in the step.
        scan_s: Seconds of a step that reads prompts in which the GPU waits, for each layer with a recurrent state.
        step_tokens: The largest number of tokens in a step, tokens of prompts included.
        small_step_tokens: The same limit on boards with less than 70 GiB and on A100s; None where it does not differ.
        memory_share: The share of the board's memory that the engine uses for weights, activations and cache.
        captured: Batch sizes that were recorded as CUDA graphs. A smaller batch is padded to the next one.
        grouped_experts: Whether one kernel computes all experts of a layer. It is False on AMD's GPUs, on which no such
            kernels were measured: there, experts are a batch of products.
        pads_prompts: Whether steps that read prompts run in these CUDA graphs, too, padded like all others.
        fused: True if the engine runs fused kernels in CUDA graphs, False if it runs the model as `transformers` does.
        sampling: How it samples tokens, a name of `SAMPLINGS`.
        samples_in_torch: Whether it samples by PyTorch's operations, and takes top-p and top-k from the model's
            generation_config unless told otherwise.
        capabilities: Prefixes of the compute capabilities that the engine supports; empty if it supports all GPUs.
    """

    name: str
    implementation: str
    collectives: str
    step_s: float
    sequence_s: float
    scan_s: float = 0.0
    step_tokens: int = 8192
    small_step_tokens: int | None = None
    memory_share: float = 0.9
    captured: tuple[int, ...] = _CAPTURED
    grouped_experts: bool = True
    pads_prompts: bool = False
    fused: bool = True
    sampling: str = "temperature"
    samples_in_torch: bool = False
    capabilities: tuple[str, ...] = ()

    def on(self, gpu: GPU) -> Engine:
        """The engine with the settings and kernels that it has on this GPU."""
        small = gpu.memory_bytes < _LARGE_BYTES or gpu.compute_capability == _A100
        tokens = self.small_step_tokens if small and self.small_step_tokens is not None else self.step_tokens
        return replace(self, step_tokens=tokens, grouped_experts=gpu.compute_capability.startswith(_NVIDIA))

    def overhead_s(self, sequences: float, scans: int = 0) -> float:
        """Seconds of a step in which the GPU waits for the engine.

        `sequences`: Sequences in the step, those whose prompts are read included.
        `scans`: Layers with a recurrent state if it reads prompts, 0 otherwise.
        """
        return self.step_s + self.sequence_s * sequences + self.scan_s * scans

    def padded(self, tokens: int) -> int:
        """The number of tokens that a step computes: the next size recorded as a CUDA graph, or else no more."""
        return next((size for size in self.captured if size >= tokens), tokens)


_LARGE_BYTES = 70 * 2**30
_NVIDIA = ("7.", "8.", "9.", "10.", "12.")
_A100 = "8.0"  # Of the boards of this compute capability, only A100s have more than 70 GiB.

SCAN_S = 1.2e-3
"""Scans of prompts are about ten kernels of Triton, which are launched one by one between the CUDA graphs of the other
layers, in vLLM 0.11. Set with chats of Nemotron-Nano 9B on H100 (ML.ENERGY), and compared with no other hybrid."""

_VLLM = Engine(
    "vllm",
    "vllm",
    "vllm",
    step_s=0.9e-3,
    sequence_s=15e-6,
    scan_s=SCAN_S,
    small_step_tokens=2048,
    pads_prompts=True,
    samples_in_torch=True,
)

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        # vLLM schedules a step after the tokens of the last one have arrived: its default up to version 0.13. In
        # version 0.11.0, steps of gpt-oss-20b took 5.1 ms longer so than with asynchronous scheduling at a mean of 193
        # running sequences (A100, mean inter-token latency 41.95 and 36.85 ms), and 6.1 ms longer at 352 (H100, 44.98
        # and 38.92 ms; gpustack's performance lab, November 2025). With what asynchronous scheduling leaves, that is
        # 0.9 ms and 24 and 17 us for each sequence. The H100's host is the newer one, and 15 us are taken. The limit of
        # 2048 tokens on A100s and boards of less than 70 GiB is in vllm/engine/arg_utils.py. Steps with prompts run in
        # CUDA graphs, too, all but attention ("piecewise"; vllm/config/compilation.py).
        _VLLM,
        # The next step is prepared while the GPU computes this one: vLLM with --async-scheduling, its default later on.
        replace(_VLLM, name="vllm_async", step_s=0.3e-3, sequence_s=1e-6),
        # The same ("zero-overhead scheduler", SGLang's blog, December 2024). It samples by kernels of its own.
        Engine("sglang", "pytorch", "sglang", step_s=0.3e-3, sequence_s=1e-6),
        # The loop is written in C++, and overlapped as well. With these 0.3 ms and 1 us, published runs of dense models
        # on H100 and H200 are predicted within 4 % in the mean (benchmarks/serving/REPORT.md).
        Engine("tensorrt_llm", "tensorrt_llm", "tensorrt_llm", step_s=0.3e-3, sequence_s=1e-6, capabilities=_NVIDIA),
        # `generate` of transformers: eager, one batch from beginning to end, logits and cache as the model has them.
        Engine("transformers", "pytorch", "pytorch", step_s=0.5e-3, sequence_s=0.0, fused=False, captured=()),
    )
}
"""Name -> engine."""


def find_engine(name: str) -> Engine:
    """Find an engine by its name.

    Raises:
        UnknownNameError: No engine has this name.
    """
    return named("engine", name, ENGINES)
