"""Measurements: their schema, their store, and importers for what others measured."""

from .measurement import Card, Dataset, Measurement, NetworkMeasurement
from .nicolai2025 import import_nicolai2025
from .store import fingerprint, load, save

IMPORTERS = {"nicolai2025": import_nicolai2025}
"""Source name -> function from the folder of its files to Datasets."""

__all__ = [
    "IMPORTERS",
    "Card",
    "Dataset",
    "Measurement",
    "NetworkMeasurement",
    "fingerprint",
    "import_nicolai2025",
    "load",
    "save",
]
