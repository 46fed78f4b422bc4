"""Choosing a GPU, its clock and a precision for a job, by comparing many predictions."""

from . import choice_html
from .choice import Choice, Choices, LeftOut
from .question import Question
from .search import best, sweep
from .sweep import Sweep

__all__ = ["Choice", "Choices", "LeftOut", "Question", "Sweep", "best", "sweep"]

SHOWN_BY = (choice_html,)
"""Modules that render results in Jupyter. Importing a module registers the classes that it can render."""
