"""What a GPU really reaches of its data sheet: bandwidth of the memory, clock, and rate of tensor cores.

The data sheet counts every transfer of the memory bus. Refreshing rows, opening pages and turning the bus between reads
and writes take a part of it, and so does error correction where the memory stores its own check bits.
"""

from __future__ import annotations

from ...hardware import GPU, full_rates

# Share of the data sheet's bandwidth that copies reach, quoted from published results without looking them up again:
# BabelStream (Deakin et al.) on P100 0.75, V100 0.92, A100 0.90; T4 0.69 to 0.75, whose memory stores its own error
# correction (Jia et al., arXiv 1903.07486); GeForce boards, without error correction, 0.9; MI200 and MI300 about 0.85.
# NeuSight's element-wise operations agree within 3 %. The shares were chosen with these in view, so NeuSight's GPUs are
# no independent test of them.
_REACHED_HBM, _REACHED_FIRST_HBM, _REACHED_GDDR, _REACHED_CORRECTED_GDDR, _REACHED_AMD = 0.91, 0.76, 0.9, 0.76, 0.85
# Share of their highest clock that boards for desks (GeForce and RTX, with GDDR memory without error correction) choose
# under load, where that is above their boost clock. Linear layers on an RTX 4090 reach 0.99 of the peak at the boost
# clock, where physics expects 0.9 (llmservingsim2026); timm's networks on RTX 3090, 4090 and 5090 fit best with the
# same share (benchmarks/public/notes.md).
_CHOSEN_CLOCK = 0.9
PRODUCTS_SHARE = 0.6
"""Share of the time of convolutions on tensor cores of full rate that is products and loads.

On an A10, whose networks in bf16 were measured, they take 1.6 to 1.9 times their least time."""


def reached_bandwidth(gpu: GPU) -> float:
    """Bytes per second of device memory that a copy reaches."""
    if not gpu.is_nvidia:
        share = _REACHED_AMD
    elif gpu.has_hbm:
        share = _REACHED_FIRST_HBM if gpu.compute_capability.startswith("6.") else _REACHED_HBM
    else:
        share = _REACHED_CORRECTED_GDDR if gpu.inline_ecc else _REACHED_GDDR
    return share * gpu.memory_bandwidth


def chosen_clock_mhz(gpu: GPU) -> float:
    """The clock that a board chooses under load, as far as its cap allows: that of its rates, or a higher one."""
    clock_mhz = float(gpu.tensor_clock_mhz or gpu.boost_clock_mhz)
    for_desks = gpu.is_nvidia and not gpu.has_hbm and not gpu.inline_ecc
    return max(clock_mhz, _CHOSEN_CLOCK * gpu.max_clock_mhz) if for_desks else clock_mhz


def time_at_lower_rate(gpu: GPU, precision: str) -> float:
    """Time of products relative to their peak where tensor cores are sold with a lower rate than they are built for.

    What kernels lose beside the products takes as many cycles for each FLOP as at the full rate.

    Returns:
        Time of products over that for the same share of the peak as at the full rate; at most 1.
    """
    return PRODUCTS_SHARE + (1 - PRODUCTS_SHARE) * gpu.flops_per_cycle(precision) / full_rates(gpu)[precision]
