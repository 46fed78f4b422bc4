"""The client of a service, and the form of questions and answers between them."""

from .client import Client

__all__ = ["Client"]
