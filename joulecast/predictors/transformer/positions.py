"""Frequencies of the positional encoding (Vaswani et al., Attention Is All You Need, 2017, section 3.5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LONGEST = 10_000.0  # The paper's: wavelengths reach from 2 pi to this times 2 pi.


def frequencies(width: int) -> NDArray[np.float32]:
    """Radians per place of each pair of a sine and a cosine.

    Args:
        width: Numbers of a vector, even.

    Returns:
        Shape (width / 2,).
    """
    pairs = width // 2
    return (_LONGEST ** (-np.arange(pairs) / pairs)).astype(np.float32)
