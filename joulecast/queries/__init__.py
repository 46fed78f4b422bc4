"""Choosing a GPU, its clock and a precision for a job, by comparing many predictions."""

from .choice import Choice, Choices, LeftOut
from .evaluation import Question
from .search import best, sweep
from .sweep import Sweep

__all__ = ["Choice", "Choices", "LeftOut", "Question", "Sweep", "best", "sweep"]
