"""Published measurements that have an importer: who measured them, where they are, and the tables that are imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Measurements that their authors have published.

    Args:
        measured: What was measured, and on which GPUs.
        authors: Who published them, and in which work.
        address: Where the authors' files are.
        licence: Terms on which they may be used.
        tables: Names of the files that the importer needs, which are made from the authors' files.
        more_tables: Names of files that the importer reads if they are there.
    """

    measured: str
    authors: str
    address: str
    licence: str
    tables: tuple[str, ...]
    more_tables: tuple[str, ...] = ()


PUBLISHED: Mapping[str, Published] = {
    "nicolai2025": Published(
        measured="time and power of operations and networks, fp32 and TF32: A30, RTX 2080 Ti",
        authors="C. Nicolai, On Energy Modeling of Deep Neural Network Operations, master thesis, Heidelberg 2025",
        address="https://github.com/ConstantinNicolai/ml-operator-profiling",
        licence="none stated: do not redistribute",
        tables=("operations.csv", "networks.csv"),
    ),
    "neusight2025": Published(
        measured="time of operations in fp32: P4, P100, V100, T4, A100, MI100, MI210",
        authors="S. Lee, A. Phanishayee, D. Mahajan, Forecasting GPU Performance for Deep Learning Training and "
        "Inference, ASPLOS 2025",
        address="https://github.com/sitar-lab/NeuSight",
        licence="MIT",
        tables=("operations.parquet", "device_specs.json"),
        more_tables=("amd_operations.parquet",),
    ),
    "energaizer2026": Published(
        measured="time and power of networks at several clocks: A100 PCIe, A10",
        authors="EnergAIzer: Fast and Accurate GPU Power Estimation Framework for AI Workloads, ISPASS 2026",
        address="the artifact of the paper, arXiv 2604.20105",
        licence="MIT",
        tables=("networks.csv", "a100_pcie_40gb_idle_power.json"),
    ),
    "aiconfigurator2026": Published(
        measured="time, and in part power, of kernels of LLM engines in half precision and below: A100 to GB200",
        authors="NVIDIA",
        address="https://github.com/ai-dynamo/aiconfigurator, commit 095f58a",
        licence="Apache-2.0",
        tables=("linear.parquet", "attention.parquet", "experts.parquet", "collectives.parquet"),
    ),
    "miopen2024": Published(
        measured="time of convolutions and their gradients: MI210, MI250X",
        authors="AMD, the table of tuned solvers of MIOpen",
        address="https://github.com/ROCm/MIOpen, commit 2d1fd99",
        licence="MIT",
        tables=("convolutions.parquet",),
    ),
    "vidur2024": Published(
        measured="time of layers of language models in fp16: A100, H100",
        authors="A. Agrawal et al., Vidur: A Large-Scale Simulation Framework for LLM Inference, MLSys 2024",
        address="https://github.com/microsoft/vidur, commit 7d47513",
        licence="MIT",
        tables=("layers.parquet",),
    ),
}
"""Name of a source -> who measured it, where it is, and its tables."""
