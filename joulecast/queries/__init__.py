"""Which GPU, at which clock, in which precision: many predictions at once, and the choice among them."""

from .choice import Choice, Choices, LeftOut
from .question import Question
from .search import best, sweep
from .sweep import Sweep

__all__ = ["Choice", "Choices", "LeftOut", "Question", "Sweep", "best", "sweep"]
