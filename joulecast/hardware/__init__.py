"""The GPU catalogue: data sheets and their lookup."""

from .catalogue import find_gpu, gpu_name_notes, gpus
from .gpu import GPU, IdleCurve, VoltageCurve

__all__ = ["GPU", "IdleCurve", "VoltageCurve", "find_gpu", "gpu_name_notes", "gpus"]
