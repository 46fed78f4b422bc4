"""Small modules for tests of extraction."""

from collections.abc import Callable
from typing import Any

from torch import nn


def module(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """A module with these parts, whose forward is a function of itself and its inputs."""
    made = type("Made", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made
