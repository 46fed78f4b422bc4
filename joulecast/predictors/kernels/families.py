"""The list of all families of kernels."""

from __future__ import annotations

from collections.abc import Mapping

from .attention import ATTENTION, DECODING, PYTORCH_ATTENTION
from .convolution import CONVOLUTION
from .experts import EXPERTS
from .family import Family
from .linear import LINEAR
from .pointwise import POINTWISE

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (LINEAR, ATTENTION, DECODING, EXPERTS, CONVOLUTION, POINTWISE)
}
"""Name -> family that is learned from measurements."""

PREDICTED: Mapping[str, Family] = {PYTORCH_ATTENTION.name: PYTORCH_ATTENTION, **FAMILIES}
"""Name -> family, with those that use what another family learned. An operation belongs to the first with a variant."""
