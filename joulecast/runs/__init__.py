"""Whole runs of training: steps, hours, joules at the boards and at the plug, price and carbon.

`layout` says how a step is divided over GPUs, `computed` and `state` what each of them computes and holds, `traffic`
what they send each other, `step` what a step costs, and `run` adds steps up, with what the rest of a server draws. All
of it is arithmetic over predicted operations and collectives.
"""

from .layout import Layout
from .run import Part, Run, RunInterval

__all__ = ["Layout", "Part", "Run", "RunInterval"]
