"""Time and energy of the parts of a program, in one form for predictions and measurements. Needs no torch.

A `Share` holds seconds and joules of one part by device and component. An `EnergyTree` arranges shares by module, phase
and operation. Prediction, metering and accounting all use these two, so that their results can be compared.
"""

from .comparison import Gap, TreeComparison
from .node import Figure, Node, Row, Share
from .tree import EnergyTree

__all__ = ["EnergyTree", "Figure", "Gap", "Node", "Row", "Share", "TreeComparison"]
