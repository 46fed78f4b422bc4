"""Published measurements that have an importer: who measured them, where they are, and the tables that are imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .importers.aiconfigurator2026 import import_aiconfigurator2026
from .importers.energaizer2026 import import_energaizer2026
from .importers.llmservingsim2026 import import_llmservingsim2026
from .importers.miopen2024 import import_miopen2024
from .importers.neusight2025 import import_neusight2025
from .importers.nicolai2025 import import_nicolai2025
from .importers.vidur2024 import import_vidur2024
from .measurement import Dataset


@dataclass(frozen=True)
class Published:
    """Measurements that their authors have published in a work, and on which terms they may be used.

    The tables are the files that the importer needs in a folder, made from the authors' files at the address; it also
    reads `more_tables` if they are there. Where it is `thinned`, only a part of each table is read by default: the
    importer then takes `rows`, the number of rows of each table; None for all.
    """

    measured: str
    authors: str
    address: str
    licence: str
    tables: tuple[str, ...]
    importer: Callable[..., list[Dataset]]
    more_tables: tuple[str, ...] = ()
    thinned: bool = False


PUBLISHED: Mapping[str, Published] = {
    "nicolai2025": Published(
        measured="time and power of operations and networks, fp32 and TF32: A30, RTX 2080 Ti",
        authors="C. Nicolai, On Energy Modeling of Deep Neural Network Operations, master thesis, Heidelberg 2025",
        address="https://github.com/ConstantinNicolai/ml-operator-profiling",
        licence="none stated: do not redistribute",
        tables=("operations.csv", "networks.csv"),
        importer=import_nicolai2025,
    ),
    "neusight2025": Published(
        measured="time of operations in fp32: P4, P100, V100, T4, A100, MI100, MI210",
        authors="S. Lee, A. Phanishayee, D. Mahajan, Forecasting GPU Performance for Deep Learning Training and "
        "Inference, ASPLOS 2025",
        address="https://github.com/sitar-lab/NeuSight",
        licence="MIT",
        tables=("operations.parquet", "device_specs.json"),
        importer=import_neusight2025,
        more_tables=("amd_operations.parquet",),
    ),
    "energaizer2026": Published(
        measured="time and power of networks at several clocks: A100 PCIe, A10",
        authors="EnergAIzer: Fast and Accurate GPU Power Estimation Framework for AI Workloads, ISPASS 2026",
        address="the artifact of the paper, arXiv 2604.20105",
        licence="MIT",
        tables=("networks.csv", "a100_pcie_40gb_idle_power.json"),
        importer=import_energaizer2026,
    ),
    "aiconfigurator2026": Published(
        measured="time, and in part power, of kernels of LLM engines in half precision and below: A100 to GB200",
        authors="NVIDIA",
        address="https://github.com/ai-dynamo/aiconfigurator, commit 095f58a",
        licence="Apache-2.0",
        tables=("linear.parquet", "attention.parquet", "experts.parquet", "collectives.parquet"),
        importer=import_aiconfigurator2026,
        thinned=True,
    ),
    "miopen2024": Published(
        measured="time of convolutions and their gradients: MI210, MI250X",
        authors="AMD, the table of tuned solvers of MIOpen",
        address="https://github.com/ROCm/MIOpen, commit 2d1fd99",
        licence="MIT",
        tables=("convolutions.parquet",),
        importer=import_miopen2024,
        thinned=True,
    ),
    "vidur2024": Published(
        measured="time of layers of language models in fp16: A100, H100",
        authors="A. Agrawal et al., Vidur: A Large-Scale Simulation Framework for LLM Inference, MLSys 2024",
        address="https://github.com/microsoft/vidur, commit 7d47513",
        licence="MIT",
        tables=("layers.parquet",),
        importer=import_vidur2024,
        thinned=True,
    ),
    "llmservingsim2026": Published(
        measured="time of products and attention of a language model in bf16: RTX 4090",
        authors="KAIST CASYS, LLMServingSim",
        address="https://github.com/casys-kaist/LLMServingSim",
        licence="MIT",
        tables=("layers.parquet",),
        importer=import_llmservingsim2026,
    ),
}
"""Name of a source -> who measured it, where it is, its tables, and what reads them."""
