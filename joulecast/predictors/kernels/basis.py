"""What a prediction of a kernel rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from functools import lru_cache
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


_LEAST_RATE = 700.0
"""FLOPs per multiprocessor and cycle. The slowest tensor cores that were measured do 1012 (L40S). GeForce boards, the
A10G and the L40 do 512: they halve the rate for sums in fp32."""

_BY_RATE = ("linear", "attention")
"""Families of kernels whose times follow from that rate, and which are predicted without kernels as well."""


@lru_cache(maxsize=1024)
def is_like_measured(gpu: GPU, family: str, precision: str) -> bool:
    """Whether a GPU runs a family of kernels in a precision as those that were measured did.

    All that were measured below fp32 have tensor cores for it. A Pascal GPU, which has none, computes fp16 in fp32. On
    boards with tensor cores of half the rate, large products meet neither the power cap nor the bandwidth that held the
    L40S back: with its kernels, transformers that timm timed on RTX 3090, 4090 and 5090 were 46 % off, and are 10 % off
    by the rest of the predictor (`benchmarks/public.py --first`).
    """
    if precision not in gpu.peak_flops or (precision != "fp32" and not gpu.on_tensor_cores(precision)):
        return False
    per_cycle = gpu.peak_flops[precision] / (gpu.sms * gpu.boost_clock_mhz * 1e6)
    return family not in _BY_RATE or precision not in ("bf16", "fp16") or per_cycle >= _LEAST_RATE
