"""Templates: operations of well-known models at any shape, without torch. Made by `python3 tasks.py templates`."""

from .store import Request, answer, refusal

__all__ = ["Request", "answer", "refusal"]
