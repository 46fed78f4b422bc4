"""The client of a service."""

from .client import Client

__all__ = ["Client"]
