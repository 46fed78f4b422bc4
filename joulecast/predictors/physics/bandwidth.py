"""What a GPU reaches of the bandwidth in its data sheet."""

from __future__ import annotations

from ...hardware import GPU

# What copies reach of the data sheet's bandwidth, from memory of what is published: BabelStream (Deakin et al.) on P100
# 0.75, V100 0.92, A100 0.90; T4 0.69 to 0.75, where the memory holds its own error correction (Jia et al., arXiv
# 1903.07486); GeForce boards, without it, 0.9; MI200 and MI300 about 0.85. NeuSight's element-wise operations agree
# within 3 %, and were looked at: its GPUs are no independent test of these.
_REACHED_HBM, _REACHED_FIRST_HBM, _REACHED_GDDR, _REACHED_CORRECTED_GDDR, _REACHED_AMD = 0.91, 0.76, 0.9, 0.76, 0.85


def reached_bandwidth(gpu: GPU) -> float:
    """Bytes per second of device memory that a copy reaches."""
    kind = gpu.memory_type or "HBM"
    if "AMD" in gpu.name:
        share = _REACHED_AMD
    elif "HBM" in kind:
        share = _REACHED_FIRST_HBM if gpu.compute_capability.startswith("6.") else _REACHED_HBM
    else:
        share = _REACHED_GDDR if "GeForce" in gpu.name else _REACHED_CORRECTED_GDDR
    return share * gpu.memory_bandwidth
