"""A CPU as a device that is measured. Nothing predicts it, because the catalogue has data sheets of GPUs only."""

from __future__ import annotations

from ..errors import UnknownNameError
from .host import processor

_CPU = "CPU"


def cpu_name() -> str:
    """The name of this machine's CPU in journals and datasets, such as "CPU AMD EPYC 7742 64-Core Processor"."""
    return f"{_CPU} {processor()}"


def is_cpu(device: str) -> bool:
    """Whether the name of a device means a CPU: "cpu", or a name that `cpu_name` made."""
    return device.upper().split()[:1] == [_CPU]


def cpu_not_predicted(device: str) -> UnknownNameError:
    """Build the error for a CPU where a GPU is needed, to predict for it or to train on its measurements.

    Args:
        device: The name as the user or the dataset has it.
    """
    return UnknownNameError(
        "a CPU can be measured, but no predictor can be trained on it or used for it yet",
        given=repr(device),
        allowed="the name of a GPU, or the path of a .toml file that describes one",
        hint="`joulecast datasets show FOLDER` describes what was collected on a CPU; "
        "`joulecast measure -- COMMAND` measures a program",
    )
