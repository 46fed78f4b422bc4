"""Devices: the GPU catalogue with its data sheets, and CPUs by name."""

from .boards import Boards, each_of, per_gpu
from .catalogue import Device, find_device, find_gpu, full_rates, gpu_name_notes, gpus, same_boards
from .gpu import GPU, IdleCurve, VoltageCurve
from .host import CPU

__all__ = [
    "CPU",
    "GPU",
    "Boards",
    "Device",
    "IdleCurve",
    "VoltageCurve",
    "each_of",
    "find_device",
    "find_gpu",
    "full_rates",
    "gpu_name_notes",
    "gpus",
    "per_gpu",
    "same_boards",
]
