"""Measured energy, accounted to the modules of a model, after SMARAGDINE (Babakol and Liu, ICSE 2024).

A profiler says what ran when (`trace`, `attribution` -> `Events`), power sensors say how many joules there were
(`joulecast.metering`), and `sweep` shares the joules among what ran. `account` does all of it for a PyTorch model,
`Accounting` is the answer. What needs torch (`steps`, `experiments`, `profiling`, `module_ranges`) is imported when a
model is run.
"""

from .events import Events, Place
from .sweep import Sweep, sweep

__all__ = ["Events", "Place", "Sweep", "sweep"]
