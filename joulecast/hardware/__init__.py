"""The GPU catalogue: data sheets and their lookup."""

from .catalogue import find_gpu, gpus, usual_board_notes
from .gpu import GPU, IdleCurve, VoltageCurve

__all__ = ["GPU", "IdleCurve", "VoltageCurve", "find_gpu", "gpus", "usual_board_notes"]
