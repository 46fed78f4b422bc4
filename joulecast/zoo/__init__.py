"""The zoo: trained predictors with their cards, found by device, loaded without executing code."""

from .catalogue import entries, find_background, find_cpu_predictor, find_predictor
from .entries.cards import ModelCard
from .entries.entry import load_entry, save_entry

__all__ = [
    "ModelCard",
    "entries",
    "find_background",
    "find_cpu_predictor",
    "find_predictor",
    "load_entry",
    "save_entry",
]
