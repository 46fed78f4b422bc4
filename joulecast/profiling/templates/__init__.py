"""Templates: operations of well-known models at any shape, without torch. Made by `python3 tasks.py templates`."""

from .answering import answer, refusal

__all__ = ["answer", "refusal"]
