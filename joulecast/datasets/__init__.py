"""Measurements: their schema, their store, and importers for what others measured."""

from .importers.energaizer2026 import import_energaizer2026
from .importers.neusight2025 import import_neusight2025
from .importers.nicolai2025 import import_nicolai2025
from .measurement import Card, Dataset, Measurement, NetworkMeasurement
from .store import fingerprint, load, save

IMPORTERS = {
    "energaizer2026": import_energaizer2026,
    "neusight2025": import_neusight2025,
    "nicolai2025": import_nicolai2025,
}
"""Source name -> function from the folder of its files to Datasets."""

__all__ = [
    "IMPORTERS",
    "Card",
    "Dataset",
    "Measurement",
    "NetworkMeasurement",
    "fingerprint",
    "import_energaizer2026",
    "import_neusight2025",
    "import_nicolai2025",
    "load",
    "save",
]
