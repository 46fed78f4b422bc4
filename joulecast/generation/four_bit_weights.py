"""Weights of four bits, with products in 16 bits: experts in MXFP4 (as GPT-OSS is published), AWQ and GPTQ.

No such kernels are among the measurements. They are predicted from the same operations in bf16: weights are read from
memory with about 0.53 instead of 2 bytes each, and unpacked in the multiprocessors, so that computing is as in bf16, as
in vLLM's Marlin (Frantar et al., arXiv 2408.11743). Transfers of weights from caches, and the instructions that unpack,
take 0.75 of the transfers in bf16. That was set with steps of GPT-OSS 20B on an H100 (ML.ENERGY): from 8 to 64
sequences they come out 10 to 24 % too slow. On a B200, which was left out, it is 9 % too quick to 7 % too slow. It was
not compared with any run in AWQ or GPTQ.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..arrays import FloatArray
from ..operations.attributes import ELEMENT_BYTES
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.norms import overlapped

FOUR_BIT_BYTES: Mapping[str, float] = {"mxfp4": 0.5 + 1 / 32, "int4": 0.5 + 2.5 / 128}
"""Precision -> bytes of a weight: four bits, and a byte of scale for 32 weights (OCP Microscaling Formats 1.0,
2023), or a scale in 16 bits and a zero in four for 128 of them (the groups of AWQ's and GPTQ's checkpoints)."""

_CACHE_SHARE, _TILE = 0.75, 128


def four_bit_factors(predictions: OperationPredictions, narrow: Mapping[Operation, float]) -> FloatArray:
    """Factors on time and dynamic energy from bf16 to four-bit weights, shape (operations,).

    `narrow`: Operation with four-bit weights -> bytes of one of them.
    """
    found = np.ones(len(predictions.operations))
    for place, operation in enumerate(predictions.operations):
        if operation not in narrow or predictions.work is None:
            continue
        parts, rows, weights = predictions.work.parts, size(operation.input_shapes[0][:-1]), 1.0
        if operation.kind == "experts":
            rows = rows * operation.attributes["top_k"] / operation.attributes["experts"]
        else:
            weights = operation.parameters / (
                operation.parameters + operation.input_size + size(operation.output_shape)
            )
        compute_s, memory_s, cache_s = parts.compute_s[place], parts.memory_s[place], parts.cache_s[place]
        from_memory = 1 - weights * (1 - narrow[operation] / ELEMENT_BYTES["bf16"])
        # A tile of n x n reads as much of the tokens as of the weights, and less of them if there are fewer tokens.
        from_caches = 1 - (1 - _CACHE_SHARE) / (1 + min(1.0, rows / _TILE))
        lighter = overlapped(compute_s, from_memory * memory_s, from_caches * cache_s)
        found[place] = lighter / overlapped(compute_s, memory_s, cache_s)
    return found
