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
    """Factors on time and dynamic energy of the operations of a step; one for all but sorting and drawing.

    Returns:
        Factors of shape (operations,).
    """
    seconds = {
        "sort": SORT_BYTES / gpu.memory_bandwidth,
        "random": RANDOM_CYCLES / (gpu.sms * gpu.boost_clock_mhz * 1e6),
    }
    return np.array(
        [
            max(1.0, operation.input_size * seconds.get(operation.kind, 0.0) / time_s)
            for operation, time_s in zip(predictions.operations, predictions.device_time_s, strict=True)
        ]
    )


def checked_sampling(name: str | None, engine: Engine, decoder: Decoder) -> str:
    """The name of a way to sample.

    `name`: A name of `SAMPLINGS`; None for what the engine does with the model by default.

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
