"""A device by its name: a GPU, or a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from .catalogue import find_gpu
from .cpu import CPU, find_cpu, is_cpu
from .gpu import GPU

Device: TypeAlias = GPU | CPU


def find_device(name: str | Path | Device | None) -> Device:
    """Find a GPU as `find_gpu` does, or a CPU by the name of its model; "cpu" means that of this machine."""
    if isinstance(name, CPU):
        return name
    if isinstance(name, str) and not name.lower().endswith(".toml") and is_cpu(name):
        return find_cpu(name)
    return find_gpu(name)
