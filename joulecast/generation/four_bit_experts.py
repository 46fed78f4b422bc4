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


def _cache_shares(predictions: OperationPredictions) -> FloatArray:
    """Share of the transfers from caches in bf16 that is left, shape (operations,).

    A tile of n x n reads as much of the tokens as of the weights, and less of them if an expert has fewer tokens.
    """
    found = np.ones(len(predictions.operations))
    for place, operation in enumerate(predictions.operations):
        if operation.kind == "experts":
            attributes, tokens = operation.attributes, size(operation.input_shapes[0][:-1])
            rows = tokens * attributes["top_k"] / attributes["experts"]
            found[place] = 1 - (1 - _CACHE_SHARE) / (1 + min(1.0, rows / _TILE))
    return found


def four_bit_factors(predictions: OperationPredictions) -> FloatArray:
    """Factors on time and dynamic energy from experts in bf16 to four-bit weights, shape (operations,)."""
    if predictions.work is None:
        return np.ones(len(predictions.operations))
    parts = predictions.work.parts
    in_bf16 = overlapped(parts.compute_s, parts.memory_s, parts.cache_s)
    lighter = overlapped(parts.compute_s, _SHARE * parts.memory_s, _cache_shares(predictions) * parts.cache_s)
    experts = np.array([operation.kind == "experts" for operation in predictions.operations], dtype=bool)
    return np.where(experts & (in_bf16 > 0), lighter / np.where(in_bf16 > 0, in_bf16, 1.0), 1.0)
