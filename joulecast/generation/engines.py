"""Engines that serve language models (engines.toml): how long GPUs wait for them, and how they sample tokens."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import named
from ..hardware import GPU
from ..operations.operation import Operation
from ..predictors.operation_predictions import OperationPredictions
from .decoder import Decoder


@dataclass(frozen=True)
class Engine:
    """How an engine serves a model."""

    name: str  # The name that users write
    implementation: str  # Library of its attention and experts, as `IMPLEMENTATIONS` of the operation kinds names it
    collectives: str  # The implementation of collectives that it calls, as collectives.json.gz names it
    # Seconds of each step in which the GPU waits for the engine, which chooses the sequences of the next step, prepares
    # their inputs, and fetches the sampled tokens; and additional seconds for each sequence in the step.
    step_s: float
    sequence_s: float
    # Least seconds of a step that reads prompts, for each layer with a recurrent state: its kernels are launched one by
    # one, while the GPU runs those before.
    scan_s: float = 0.0
    step_tokens: int = 8192  # The largest number of tokens in a step, tokens of prompts included
    # The same limit on boards with less than 70 GiB and on A100s; None where it does not differ.
    small_step_tokens: int | None = None
    memory_share: float = 0.9  # Share of the board's memory that it uses for weights, activations and cache
    # Whether one kernel computes all experts of a layer. It is False on AMD's GPUs, on which no such kernels were
    # measured: there, experts are a batch of products.
    grouped_experts: bool = True
    # Whether GPUs with sequences of their own that share experts compute as many tokens as the busiest.
    pads_ranks: bool = False
    fused: bool = True  # Fused kernels in CUDA graphs; False if it runs the model as `transformers` does
    sampling: str = "temperature"  # How it samples tokens, a name of `SAMPLINGS`
    # Whether it samples by PyTorch's operations, and takes top-p and top-k from the model's generation_config unless
    # told otherwise.
    samples_in_torch: bool = False
    triton_experts: bool = False  # Whether kernels of Triton compute experts in 16 bits
    # Whether DeepGEMM computes experts in fp8, in whole tiles of padded rows. It is False on all GPUs but data centers'
    # Blackwells, on which vLLM has no other kernels for their scales.
    pads_experts: bool = False
    capabilities: tuple[str, ...] = ()  # Beginnings of the compute capabilities that it supports; empty for all GPUs
    # Standard deviation of the logarithm of the seconds for which GPUs wait: a factor of two, unless the user has said
    # how long.
    wait_sigma: float = math.log(2.0)

    def on_host(self, factor: float, wait_s: float | None) -> Engine:
        """The engine on a host that is slower by a factor, or for which GPUs are known to wait so long in each step."""
        if wait_s is None:
            return replace(self, step_s=self.step_s * factor, sequence_s=self.sequence_s * factor)
        return replace(self, step_s=wait_s, sequence_s=0.0, wait_sigma=0.0)

    def on(self, gpu: GPU) -> Engine:
        """The engine with the settings and kernels that it has on this GPU."""
        small = gpu.memory_bytes < _LARGE_BYTES or gpu.compute_capability == _A100
        tokens = self.small_step_tokens if small and self.small_step_tokens is not None else self.step_tokens
        return replace(
            self,
            step_tokens=tokens,
            grouped_experts=gpu.compute_capability.startswith(_NVIDIA),
            pads_experts=self.pads_experts and gpu.compute_capability.startswith("10."),
        )

    def overhead_s(self, sequences: float) -> float:
        """Seconds of a step in which the GPU waits for the engine, which has prepared nothing yet.

        `sequences`: Sequences in the step, those whose prompts are read included.
        """
        return self.step_s + self.sequence_s * sequences


_LARGE_BYTES = 70 * 2**30
_A100 = "8.0"  # Of the boards of this compute capability, only A100s have more than 70 GiB.
_NVIDIA = ("7.", "8.", "9.", "10.", "12.")


_TABLES = tomllib.loads(Path(__file__).with_name("engines.toml").read_text(encoding="utf-8"))
COMMANDS: Mapping[str, Mapping[str, str]] = {
    name: {**_TABLES.get(table.get("like", ""), {}).get("commands", {}), **table["commands"]}
    for name, table in _TABLES.items()
    if "commands" in table
}
"""Engine -> the words that start it (see engines.toml); engines without any are missing."""


def _engine(name: str) -> Engine:
    table = _TABLES[name].items()
    row: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table if k != "commands"}
    like = row.pop("like", None)
    return Engine(name, **row) if like is None else replace(_engine(like), name=name, **row)


ENGINES: Mapping[str, Engine] = {name: _engine(name) for name in _TABLES}
"""Name -> engine."""


# How tokens are sampled from logits: the operations over the whole vocabulary, in fp32 (vLLM, v1/sample).
_RANDOM = ("softmax", "random", "div", "argmax")

SAMPLINGS: Mapping[str, tuple[str, ...]] = {
    "greedy": ("copy", "argmax"),
    "temperature": ("copy", "div", *_RANDOM),
    # Logits are sorted, cut off where their probabilities add up to p or after k of them, and put back in order
    # (v1/sample/ops/topk_topp_sampler.py). Kernels that need no sorting, as FlashInfer has them, take less.
    "top_p": ("copy", "div", "sort", "softmax", "cumsum", "masked_fill", "scatter", *_RANDOM),
}
"""Name -> kinds of the operations."""

RANDOM_CYCLES, SORT_BYTES = 36.0, 480.0
"""Cycles of a multiprocessor for each logit that is sampled in PyTorch, and bytes from memory for each that is sorted.

PyTorch sorts pairs of a logit and its index by their digits: each pass reads all pairs and writes them in a new order,
once for all rows and once by row (aten/src/ATen/native/cuda/SortStable.cu), at the bandwidth of the memory. In vLLM
0.11.1 (ML.ENERGY), a step takes 0.30 ns on H100 and 0.19 ns on B200 for each logit that is sampled by top-p, in the
median of the dense models, and 0.16 and 0.14 ns for GPT-OSS 20B, which is sampled without. What remains without the
sort goes with the clock, as drawing random numbers does, and is counted so, whatever else it is.
"""

_INPUTS = {"masked_fill": 2, "scatter": 3}
_ALONG_WORDS = frozenset({"softmax", "argmax", "sort", "cumsum"})


def sampling_factors(predictions: OperationPredictions, gpu: GPU) -> FloatArray:
    """Factors on time and dynamic energy of the operations of a step, shape (operations,); one for most of them."""
    seconds = {
        "sort": SORT_BYTES / gpu.memory_bandwidth,
        "random": RANDOM_CYCLES / (gpu.sms * gpu.boost_clock_mhz * 1e6),
    }
    taken = [each.input_size * seconds.get(each.kind, 0.0) for each in predictions.operations]
    return np.maximum(1.0, np.array(taken) / predictions.device_time_s)


def checked_sampling(name: str | None, engine: Engine, decoder: Decoder) -> str:
    """The name of a way to sample.

    `name`: A name of `SAMPLINGS`; None for what the engine does with the model by default. Raises UnknownNameError: it
    is unknown.
    """
    if name is None:
        return "top_p" if engine.samples_in_torch and decoder.top_p else "temperature"
    named("sampling", name, SAMPLINGS)
    return name


def sampling_operations(sampling: str, tokens: int, words: int) -> Iterator[Operation]:
    """The operations that sample tokens."""
    for kind in SAMPLINGS[sampling]:
        attributes = {"dim": -1} if kind in _ALONG_WORDS else {}
        yield Operation(kind, [(tokens, words)] * _INPUTS.get(kind, 1), attributes)
