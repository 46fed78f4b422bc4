"""The families of kernels that there are."""

from __future__ import annotations

from collections.abc import Mapping

from .attention import ATTENTION, DECODING
from .family import Family
from .linear import LINEAR

FAMILIES: Mapping[str, Family] = {family.name: family for family in (LINEAR, ATTENTION, DECODING)}
"""Name -> family. An operation belongs to the first one that has a variant for it."""
