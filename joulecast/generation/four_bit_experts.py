"""Experts whose weights have four bits and whose products are computed in bf16 (MXFP4, as GPT-OSS is published).

No such kernels are among the measurements. They are predicted from the same experts in bf16: weights are read from
memory with 0.53 instead of 2 bytes each, and unpacked in the multiprocessors, so that computing is as in bf16.
Transfers of weights from caches, and the instructions that unpack, take 0.75 of the transfers in bf16. That was set
with steps of GPT-OSS 20B on an H100 (ML.ENERGY): from 8 to 64 sequences they come out 10 to 24 % too slow. On a B200,
which was left out, it is 9 % too quick to 7 % too slow.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..operations.attributes import ELEMENT_BYTES
from ..operations.rules import size
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.norms import overlapped

MXFP4_BYTES = 0.5 + 1 / 32
"""Bytes of a weight in MXFP4: four bits, and a byte of scale for 32 weights (OCP Microscaling Formats 1.0, 2023)."""

_SHARE = MXFP4_BYTES / ELEMENT_BYTES["bf16"]
_CACHE_SHARE, _TILE = 0.75, 128


def four_bit_factors(predictions: OperationPredictions) -> FloatArray:
    """Factors on time and dynamic energy from experts in bf16 to four-bit weights, shape (operations,)."""
    found = np.ones(len(predictions.operations))
    for place, operation in enumerate(predictions.operations):
        if operation.kind != "experts" or predictions.work is None:
            continue
        parts = predictions.work.parts
        compute_s, memory_s, cache_s = parts.compute_s[place], parts.memory_s[place], parts.cache_s[place]
        rows = size(operation.input_shapes[0][:-1]) * operation.attributes["top_k"] / operation.attributes["experts"]
        # A tile of n x n reads as much of the tokens as of the weights, and less of them if an expert has fewer tokens.
        from_caches = 1 - (1 - _CACHE_SHARE) / (1 + min(1.0, rows / _TILE))
        lighter = overlapped(compute_s, _SHARE * memory_s, from_caches * cache_s)
        found[place] = lighter / overlapped(compute_s, memory_s, cache_s)
    return found
