"""What users have to know about a predictor before they trust it, in sentences for its card."""

from __future__ import annotations

from collections.abc import Iterator

from ..datasets import Dataset
from ..predictors.chip import ChipPart
from ..predictors.model.learned import OneModel
from ..predictors.networks.composition import HostModel
from ..predictors.networks.on_cpu import CpuPredictor, SerialModel

ANY_GPU_LIMITS = (
    "It knows GPUs by their data sheets. A GPU that runs hotter, has a lower power cap, or has a less tuned library "
    "than the measured ones is slower than predicted.",
    "Whole networks in half precision were measured on A100 and A10 only, and training on A30 and RTX 2080 Ti only.",
    "Its data has no power readings of 4 nm and 5 nm chips, or of AMD GPUs. Their energy per operation is a prior.",
    "If the voltage curve of a GPU is not known, that of the A100 is used.",
    "Host times are those of the machines on which the training data was measured. On a slower machine, launches take "
    "longer.",
)
"""Limits of predictors for any GPU."""

_KERNELS = (
    "Device times and power were measured at the default clock and cap only. For other clocks and caps, they are "
    "scaled by physics.",
    "Power was measured on H200, B200 and GB200 only. It depends on the values that are multiplied, and some engines "
    "were measured with zeros.",
    "fp16 and bf16 are one to the trees, but in convolutions, because tensor cores have the same rate.",
    "Quantized layers were measured in the kernels of engines for language models, not in PyTorch's.",
    "On a GPU of an unmeasured generation, errors are larger than in the tables of left-out generations if it differs "
    "more from the measured generations than these differ from each other.",
)


def limits_of(chip: ChipPart, host: HostModel) -> tuple[str, ...]:
    """Limits of a predictor of one GPU."""
    kinds = ", ".join(sorted({group.split()[0] for group in chip.baseline.groups}))
    limits = [
        f"Measured kinds: {kinds}. Others are modelled from a kind of the same family by bytes and FLOPs.",
        "Measured at the default clock and power cap only; others are scaled by physics.",
        "Batch 32 and image inputs dominate the data; other regimes are extrapolated.",
    ]
    if len(chip.measured) < 200:
        limits.append(f"Only {len(chip.measured)} operations were measured: expect large errors.")
    if chip.transferred:
        limits.append(
            f"Large operations of these kinds were measured in inference only; training is inferred from that: "
            f"{', '.join(chip.transferred)}."
        )
    if not host.learned:
        limits.append("No network was measured on this GPU; the host cost is that of the A30's machine.")
    return tuple(limits)


def limits_of_cpu(dataset: Dataset, operations: CpuPredictor, serial: SerialModel) -> Iterator[str]:
    """Limits of a predictor of a CPU."""
    card = dataset.card
    kinds = ", ".join(sorted({group.split()[0] for group in operations.coverage}))
    threads = "1 thread" if operations.threads == 1 else f"{operations.threads} threads"
    yield f"Measured kinds: {kinds}. Others are modelled from a kind of the same family by bytes and FLOPs."
    yield f"For PyTorch with {threads} on a CPU of this name, at the clock that it chose by itself."
    yield from (f"How it was measured: {text}." for text in card.method.values())
    if card.load_average:
        least, middle, most = card.load_average
        yield (
            f"Load average of the machine during the measurements: {middle:.1f} (median), {least:.1f} to {most:.1f}. "
            "What other programs took from caches and memory is in the times."
        )
    if serial.networks:
        yield (
            f"In networks operations take {serial.factor:.2f} times as long as in loops, and "
            f"{1e6 * serial.between_s:.1f} us pass between two of them: learned from {serial.networks} measurements of "
            "networks."
        )
    if operations.power is None:
        yield "Energy: not measured. The energy counters of this CPU could not be read, so that only time is predicted."


def limits_of_kernels(model: OneModel) -> tuple[str, ...]:
    """Limits of device times of kernels."""
    factors = model.network_factors
    if not factors.chips:
        return _KERNELS
    return (
        *_KERNELS,
        "Inside networks, products whose data fit into the L2 cache take "
        f"{factors.products:g} times as long as in loops. A multiprocessor loads an element of other operations in "
        f"half precision in {factors.cycles:g} cycles. Networks on these chips showed it: {', '.join(factors.chips)}.",
    )
