"""How tokens are sampled from logits: the operations over the whole vocabulary, in fp32 (vLLM, v1/sample)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..arrays import FloatArray
from ..errors import named
from ..hardware import GPU
from ..operations.operation import Operation
from ..predictors.operation_predictions import OperationPredictions
from .decoder import Decoder
from .engines import Engine

_RANDOM = ("softmax", "random", "div", "argmax")

SAMPLINGS: Mapping[str, tuple[str, ...]] = {
    "greedy": ("copy", "argmax"),
    "temperature": ("copy", "div", *_RANDOM),
    # Logits are sorted, cut off where their probabilities add up to p or after k of them, and put back in order
    # (v1/sample/ops/topk_topp_sampler.py). Kernels that need no sorting, as FlashInfer has them, take less.
    "top_p": ("copy", "div", "sort", "softmax", "cumsum", "masked_fill", "scatter", *_RANDOM),
}
"""Name -> kinds of the operations."""

CYCLES: Mapping[str, float] = {"sort": 41.0, "random": 31.0}
SAMPLING_W = 2.3
"""Cycles of a multiprocessor for each logit, by kind of operation, where an engine samples in PyTorch; and the watts of
a multiprocessor above static power meanwhile.

PyTorch sorts pairs of a logit and its index in several passes: all rows at once and then by row, or from 128 rows on
each row by itself (aten/src/ATen/native/cuda/SortStable.cu). Ranking binds these kernels, not memory, so H100 and B200
need about the same cycles. Published timings of the sort alone come to 19 to 33 cycles on a GB200 (vLLM's pull request
54502). The sum of both is what steps of Llama 3.1 8B and Qwen3 14B take in addition for each sequence in chats
(ML.ENERGY, vLLM 0.11.1). What steps of GPT-OSS 20B take in addition, which are sampled without top-p, is counted as
drawing random numbers, whatever else it is. Models left out confirm them (benchmarks/serving/ENERGY.md).
"""

_INPUTS = {"masked_fill": 2, "scatter": 3}
_ALONG_WORDS = frozenset({"softmax", "argmax", "sort", "cumsum"})


def sampling_factors(predictions: OperationPredictions, gpu: GPU) -> tuple[FloatArray, FloatArray]:
    """Factors on time and dynamic energy of the operations of a step, each of shape (operations,).

    Args:
        predictions: Predictions of the operations at the default clock.
        gpu: The GPU.

    Returns:
        Factors on time and factors on energy; one for all operations but those of `CYCLES`.
    """
    times = np.ones(len(predictions.operations))
    energies = times.copy()
    for place, operation in enumerate(predictions.operations):
        if operation.kind in CYCLES:
            before_s = float(predictions.device_time_s[place])
            seconds = operation.input_size * CYCLES[operation.kind] / (gpu.sms * gpu.boost_clock_mhz * 1e6)
            times[place] = max(1.0, seconds / before_s)
            joules = times[place] * before_s * SAMPLING_W * gpu.sms
            energies[place] = max(1.0, joules / float(predictions.dynamic_energy_j[place]))
    return times, energies


def checked_sampling(name: str | None, engine: Engine, decoder: Decoder) -> str:
    """The name of a way to sample.

    Args:
        name: A name of `SAMPLINGS`; None for what the engine does with the model by default.
        engine: The engine.
        decoder: The model.

    Raises:
        UnknownNameError: It is unknown.
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
