"""The zoo: trained predictors with their cards, found by device, loaded without executing code."""

from .cards import ModelCard
from .catalogue import entries, find_background, find_cpu_predictor, find_predictor, predicts
from .entry import load_entry, save_entry

__all__ = [
    "ModelCard",
    "entries",
    "find_background",
    "find_cpu_predictor",
    "find_predictor",
    "load_entry",
    "predicts",
    "save_entry",
]
