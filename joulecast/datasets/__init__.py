"""Measurements: their schema, their store, and importers for published measurements."""

from .importers import PUBLISHED
from .measurement import Card, Dataset, Measurement, NetworkMeasurement
from .store import fingerprint, load, save

__all__ = ["PUBLISHED", "Card", "Dataset", "Measurement", "NetworkMeasurement", "fingerprint", "load", "save"]
