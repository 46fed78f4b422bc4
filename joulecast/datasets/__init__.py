"""Measurements: their schema, their store, and importers for published measurements."""

from .measurement import Card, Dataset, Measurement, NetworkMeasurement
from .published import PUBLISHED
from .store import fingerprint, load, save

__all__ = ["PUBLISHED", "Card", "Dataset", "Measurement", "NetworkMeasurement", "fingerprint", "load", "save"]
