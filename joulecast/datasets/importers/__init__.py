"""Published measurements that have an importer: who measured them, where they are, and the tables that are imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..measurement import Dataset
from .aiconfigurator2026 import import_aiconfigurator2026
from .aiter2026 import import_aiter2026
from .energaizer2026 import import_energaizer2026
from .kernel_tables import import_llmservingsim2026, import_miopen2024, import_vidur2024
from .neusight2025 import import_neusight2025
from .nicolai2025 import import_nicolai2025
from .reading import published

IMPORTERS: Mapping[str, Callable[..., list[Dataset]]] = {
    "nicolai2025": import_nicolai2025,
    "neusight2025": import_neusight2025,
    "energaizer2026": import_energaizer2026,
    "aiconfigurator2026": import_aiconfigurator2026,
    "miopen2024": import_miopen2024,
    "vidur2024": import_vidur2024,
    "llmservingsim2026": import_llmservingsim2026,
    "aiter2026": import_aiter2026,
}
"""Name of a source -> what reads it."""


@dataclass(frozen=True)
class Published:
    """Measurements that their authors have published in a work: a table of published.toml, which describes the fields.

    An importer of what is `thinned` takes `rows`, the number of rows of each table; None for all.
    """

    measured: str
    authors: str
    address: str
    licence: str
    tables: tuple[str, ...]
    importer: Callable[..., list[Dataset]]
    more_tables: tuple[str, ...] = ()
    thinned: bool = False


PUBLISHED: Mapping[str, Published] = {
    name: Published(**{key: value for key, value in published(name).items() if key != "card"}, importer=read)
    for name, read in IMPORTERS.items()
}
"""Name of a source -> who measured it, where it is, its tables, and what reads them."""
