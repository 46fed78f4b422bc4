"""Templates: operations of well-known models at any shape, without torch. Made by `python3 tasks.py templates`."""

from .answering import Request, answer, refusal

__all__ = ["Request", "answer", "refusal"]
