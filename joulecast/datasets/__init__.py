"""Measurements: their schema, their store, and importers for published measurements."""

from collections.abc import Callable, Mapping
from pathlib import Path

from .importers.aiconfigurator2026 import import_aiconfigurator2026
from .importers.energaizer2026 import import_energaizer2026
from .importers.miopen2024 import import_miopen2024
from .importers.neusight2025 import import_neusight2025
from .importers.nicolai2025 import import_nicolai2025
from .importers.vidur2024 import import_vidur2024
from .measurement import Card, Dataset, Measurement, NetworkMeasurement
from .store import fingerprint, load, save

IMPORTERS: Mapping[str, Callable[[Path], list[Dataset]]] = {
    "aiconfigurator2026": import_aiconfigurator2026,
    "energaizer2026": import_energaizer2026,
    "miopen2024": import_miopen2024,
    "neusight2025": import_neusight2025,
    "nicolai2025": import_nicolai2025,
    "vidur2024": import_vidur2024,
}
"""Name of a source -> function that reads the folder with its files as Datasets."""

THINNED: Mapping[str, Callable[..., list[Dataset]]] = {
    "aiconfigurator2026": import_aiconfigurator2026,
    "miopen2024": import_miopen2024,
    "vidur2024": import_vidur2024,
}
"""Sources of which only a part of each table is read by default; `rows` sets how many rows (None: all)."""

__all__ = [
    "IMPORTERS",
    "THINNED",
    "Card",
    "Dataset",
    "Measurement",
    "NetworkMeasurement",
    "fingerprint",
    "import_aiconfigurator2026",
    "import_energaizer2026",
    "import_miopen2024",
    "import_neusight2025",
    "import_nicolai2025",
    "import_vidur2024",
    "load",
    "save",
]
