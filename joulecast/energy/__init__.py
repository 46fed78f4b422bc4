"""Seconds and joules by part: one form for what was predicted and for what was measured. Needs no torch.

A `Share` says what one part took, by device and component; an `EnergyTree` arranges shares by module, phase and
operation. Predictions, metering and accounting all answer with these two, so that they can be laid side by side.
"""

from .comparison import Gap, TreeComparison
from .share import Figure, Share
from .tree import EnergyTree, Node, Row

__all__ = ["EnergyTree", "Figure", "Gap", "Node", "Row", "Share", "TreeComparison"]
