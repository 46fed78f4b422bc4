"""Experts whose weights have four bits and whose products are computed in bf16 (MXFP4, as GPT-OSS is published).

No such kernels are among the measurements. They are predicted from the same experts in bf16: weights are read from
memory with 0.53 instead of 2 bytes each. Then they are unpacked, so that computing and the transfer from caches are as
in bf16. The time of unpacking is not known and left out.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..operations.attributes import ELEMENT_BYTES
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.norms import overlapped

MXFP4_BYTES = 0.5 + 1 / 32
"""Bytes of a weight in MXFP4: four bits, and a byte of scale for 32 weights (OCP Microscaling Formats 1.0, 2023)."""

_SHARE = MXFP4_BYTES / ELEMENT_BYTES["bf16"]


def four_bit_factors(predictions: OperationPredictions) -> FloatArray:
    """Factors from experts in bf16 to experts with four-bit weights, for time and dynamic energy, shape (operations,).

    Args:
        predictions: Predictions of the operations of a step.
    """
    if predictions.work is None:
        return np.ones(len(predictions.operations))
    parts = predictions.work.parts
    in_bf16 = overlapped(parts.compute_s, parts.memory_s, parts.cache_s)
    lighter = overlapped(parts.compute_s, _SHARE * parts.memory_s, parts.cache_s)
    experts = np.array([operation.kind == "experts" for operation in predictions.operations], dtype=bool)
    return np.where(experts & (in_bf16 > 0), lighter / np.where(in_bf16 > 0, in_bf16, 1.0), 1.0)
