"""From models to operations: extraction and its whitelist. Importing this does not import torch."""

from .aten import WHITELIST
from .sources import network_of

__all__ = ["WHITELIST", "network_of"]
