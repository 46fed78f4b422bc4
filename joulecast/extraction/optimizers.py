"""Names of optimizers: their steps are kinds, such as adamw_step. Imports no torch."""

from __future__ import annotations

from ..errors import InputError, unknown_name
from ..operations.kinds import KINDS

OPTIMIZERS: tuple[str, ...] = tuple(kind.removesuffix("_step") for kind, row in KINDS.items() if row.is_optimizer_step)
"""Optimizers of torch.optim: with "_fused" those with fused=True; the others as PyTorch runs them by default on a GPU
(foreach)."""


def refuse_optimizer(optimizer: str | None, mode: str) -> None:
    """Refuse an optimizer that does not exist, or that is given in inference.

    Raises:
        UnknownNameError: There is no such optimizer.
        InputError: The mode is not training.
    """
    if optimizer is None:
        return
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS, hint="None leaves its step out")
    if mode != "training":
        raise InputError("an optimizer steps in training", given=f"mode={mode}", allowed="training")
