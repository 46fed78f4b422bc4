"""The list of all families of kernels."""

from __future__ import annotations

from collections.abc import Mapping

from .attention import ATTENTION, DECODING
from .convolution import CONVOLUTION
from .experts import EXPERTS
from .family import Family
from .linear import LINEAR
from .pointwise import POINTWISE

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (LINEAR, ATTENTION, DECODING, EXPERTS, CONVOLUTION, POINTWISE)
}
"""Name -> family. An operation belongs to the first one that has a variant for it."""
