"""The memory bandwidth that a GPU really reaches, as a share of the one in its data sheet.

The data sheet counts every transfer of the memory bus. Refreshing rows, opening pages and turning the bus between reads
and writes take a part of it, and so does error correction where the memory stores its own check bits.
"""

from __future__ import annotations

from ...hardware import GPU

# Share of the data sheet's bandwidth that copies reach, quoted from published results without looking them up again:
# BabelStream (Deakin et al.) on P100 0.75, V100 0.92, A100 0.90; T4 0.69 to 0.75, whose memory stores its own error
# correction (Jia et al., arXiv 1903.07486); GeForce boards, without error correction, 0.9; MI200 and MI300 about 0.85.
# NeuSight's element-wise operations agree within 3 %. The shares were chosen with these in view, so NeuSight's GPUs are
# no independent test of them.
_REACHED_HBM, _REACHED_FIRST_HBM, _REACHED_GDDR, _REACHED_CORRECTED_GDDR, _REACHED_AMD = 0.91, 0.76, 0.9, 0.76, 0.85


def reached_bandwidth(gpu: GPU) -> float:
    """Bytes per second of device memory that a copy reaches."""
    if not gpu.is_nvidia:
        share = _REACHED_AMD
    elif gpu.has_hbm:
        share = _REACHED_FIRST_HBM if gpu.compute_capability.startswith("6.") else _REACHED_HBM
    else:
        share = _REACHED_CORRECTED_GDDR if gpu.inline_ecc else _REACHED_GDDR
    return share * gpu.memory_bandwidth
