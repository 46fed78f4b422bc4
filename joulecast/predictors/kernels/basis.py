"""What a prediction of a kernel rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from typing import Literal, get_args

from ...hardware import GPU

Basis = Literal["measured", "same generation", "other generations"]
"""Measurements of this GPU, of GPUs of its compute capability, or of others."""

BASES: tuple[Basis, ...] = get_args(Basis)


def basis_of(gpu: GPU, gpus: Collection[str], generations: Collection[str]) -> Basis:
    """What predictions for a GPU rest on.

    Args:
        gpu: The GPU that they run on.
        gpus: Names of those that were measured.
        generations: Their compute capabilities.
    """
    if gpu.name in gpus:
        return "measured"
    return "same generation" if gpu.compute_capability in generations else "other generations"


def known_basis(basis: Basis, errors: Mapping[str, Sized]) -> Basis | None:
    """The basis, or where no errors of it are known, one that says less; None where no errors are known of these."""
    return next((each for each in BASES[BASES.index(basis) :] if each in errors and len(errors[each])), None)
