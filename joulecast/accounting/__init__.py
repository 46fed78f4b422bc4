"""Accounting: measured energy, attributed to the modules of a model, like SMARAGDINE (Babakol and Liu, ICSE 2024).

A profiler records which operators ran when (`attribution` -> `Events`), power sensors measure the energy
(`joulecast.metering`), and `shares` divides the energy between the operators. `account` does all this for a PyTorch
model and returns an `Accounting`. `steps`, which needs torch, is imported when a model is run.
"""

from .events import Events, Place
from .shares import Sweep, sweep

__all__ = ["Events", "Place", "Sweep", "sweep"]
