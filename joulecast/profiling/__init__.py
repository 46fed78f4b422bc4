"""From models to operations: extraction and its whitelist. Importing this does not import torch."""

from .aten import WHITELIST
from .sources import named_network, network_of

__all__ = ["WHITELIST", "named_network", "network_of"]
