"""Importer for the measurements of the artifact of EnergAIzer (ISPASS 2026, arXiv 2604.20105).

Reads `networks.csv` and `*_idle_power.json`: whole networks on A100 and A10, one Dataset per GPU and clock that was
set. The networks are models of transformers and torchvision, and are named so that extraction builds them. The source's
own lists of operations, `workloads/*.json`, are not used: they lack embeddings, masks, copies for attention heads and
more, so that a fit would attribute the time of these to linear layers. Two flaws of the data are found by rules:

- Failed runs. A run of less than 10 s measured nothing and is left out.
- Slow hosts. The number of iterations was chosen by a single probe to take 30 s, and the time includes the start of the
    process, which takes 1 to 2 s (see the card). So a run of more than 34 s was slower than its probe. A lower clock
    cannot lengthen a run by more than the ratio of the clocks, and a higher clock cannot lengthen it at all. A run that
    is slower than the same network at another clock allows had a host in another state (gpt2, batch 8: 7.8 ms or
    9.9 ms). Both are marked unusable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import DatasetError
from ...progress import tracked
from ...system.regular_files import MOST_BYTES, read_json
from ..measurement import Card, Dataset, NetworkMeasurement, refuse_lines
from .reading import card_of, importer, published, read_rows

_COLUMNS = (
    *("campaign", "gpu", "network", "precision", "batch", "sequence", "clock_setpoint_mhz", "clock_mhz"),
    *("time_ms", "energy_j", "power_w", "total_s"),
)
_FAILED_S = 10.0
_SLOW_S = 34.0
_SAME = 1.05  # Repeats and neighbouring clocks agree much better than this.
_SLOWER_THAN_PROBE = "slower than its own probe: the host changed"
_SLOWER_THAN_CLOCKS = "slower than other clocks allow: the host changed"
# Data sheets: A100 PCIe 40 GB (NVIDIA, 2020), A10 (NVIDIA, 2021). The source shows the former as a cap at 240 W.
_POWER_LIMIT_W = {"NVIDIA A100-PCIE-40GB": 250.0, "NVIDIA A10": 150.0}
_IDLE_POWER = {"NVIDIA A100-PCIE-40GB": "a100_pcie_40gb_idle_power.json"}
_MODELS = {
    "resnet101_": "resnet101",
    "vitmodel_large": "vit_large_eager",
    "bertmodel_large": "bert_large_eager",
    "gpt2model_gpt2": "gpt2_eager",
}
"""Name of a model in the source -> name by which extraction builds it."""


@importer
def import_energaizer2026(folder: str | Path) -> list[Dataset]:
    """Read the source as one Dataset of networks per GPU and clock that was set.

    Raises DatasetError, which names the lines: a file is missing or damaged, or lines are impossible or of unknown
    networks.
    """
    folder = Path(folder)
    measured: list[tuple[str, float, NetworkMeasurement]] = []
    faults = []
    for line, row in tracked(list(enumerate(read_rows(folder / "networks.csv", _COLUMNS), start=2)), "networks"):
        try:
            if float(row["total_s"]) >= _FAILED_S:
                measured.append((row["gpu"], float(row["clock_setpoint_mhz"]), _measurement(row, line)))
        except (KeyError, ValueError) as error:
            faults.append(f"line {line}: {error}")
    refuse_lines(faults, str(folder / "networks.csv"))
    sweeps: dict[Any, list[NetworkMeasurement]] = defaultdict(list)
    for gpu, _, m in measured:
        sweeps[gpu, m.network, m.precision, m.input_shape].append(m)
    networks: dict[tuple[str, float], list[NetworkMeasurement]] = defaultdict(list)
    for gpu, clock_mhz, m in measured:
        slow = any(
            m.time_s > _SAME * other.time_s * max(1.0, (other.clock_mhz or 1.0) / (m.clock_mhz or 1.0))
            for other in sweeps[gpu, m.network, m.precision, m.input_shape]
        )
        marked = replace(m, usable=False, remark=_SLOWER_THAN_CLOCKS) if m.usable and slow else m
        networks[gpu, clock_mhz].append(marked)
    return [
        Dataset(_card(folder, gpu, clock_mhz, found), (), tuple(found))
        for (gpu, clock_mhz), found in sorted(networks.items())
    ]


def _measurement(row: Mapping[str, str], line: int) -> NetworkMeasurement:
    batch = int(row["batch"])
    # Sequence lengths are written as 128.0, and are empty for models of images.
    sequence = int(float(row["sequence"])) if row["sequence"] else None
    input_shape = (batch, 3, 224, 224) if sequence is None else (batch, sequence)
    slow = float(row["total_s"]) > _SLOW_S
    return NetworkMeasurement(
        network=_MODELS[row["network"]],
        input_shape=input_shape,
        # PyTorch's defaults: convolutions of fp32 tensors ran on tensor cores, products did not.
        precision="default" if row["precision"] == "fp32" else row["precision"],
        mode="inference",
        time_s=float(row["time_ms"]) / 1e3,
        power_w=float(row["power_w"]),
        energy_j=float(row["energy_j"]),
        campaign=f"energaizer2026/{row['campaign']}",
        line=line,
        clock_mhz=round(float(row["clock_mhz"]), 3),
        usable=not slow,
        remark=_SLOWER_THAN_PROBE if slow else "",
    )


def _card(folder: Path, gpu: str, clock_mhz: float, networks: list[NetworkMeasurement]) -> Card:
    idle = folder / _IDLE_POWER.get(gpu, "none")
    idle_w = read_json(idle, MOST_BYTES, "this file of idle power", DatasetError) if idle.is_file() else {}
    capped = sum((m.clock_mhz or clock_mhz) < clock_mhz - 1 for m in networks)
    return card_of(
        "energaizer2026",
        gpu,
        clock_mhz,
        power_limit_w=_POWER_LIMIT_W.get(gpu),
        idle_power_w=idle_w.get(f"{clock_mhz:g}"),
        limits=(
            *published("energaizer2026")["card"]["limits"],
            *([f"the power cap held the clock of {capped} networks below what was set"] if capped else ()),
            *sorted({m.remark for m in networks if m.remark}),
        ),
    )
