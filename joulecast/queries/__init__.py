"""Which GPU, at which clock, in which precision: many predictions at once, and the choice among them."""

from .choice import Choice
from .question import Question
from .search import best, sweep
from .sweep import LeftOut, Sweep

__all__ = ["Choice", "LeftOut", "Question", "Sweep", "best", "sweep"]
