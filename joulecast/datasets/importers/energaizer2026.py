"""Importer for the measurements of the artifact of EnergAIzer (ISPASS 2026, arXiv 2604.20105).

Reads `networks.csv`, `workloads/*.json` and `*_idle_power.json`: whole networks on A100 and A10, one Dataset per GPU
and clock that was set. What the data say about themselves, found by rules:

- Failed runs. A run of less than 10 s measured nothing and is left out.
- Slow hosts. The loop's length was chosen for 30 s by a single probe, and starting the process takes 1 to 2 s (which
  is in the time, see the card). A run of more than 34 s was slower than its probe. And a clock that is lower by some
  factor never costs more than this factor in time, a higher one never costs time at all. What is slower than the
  same network at another clock allows ran on a host in another state (gpt2, batch 8: 7.8 ms or 9.9 ms). Both are
  marked unusable.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import DatasetError
from ...operations.dropped import Dropped
from ...operations.network import Network
from ..measurement import Card, Dataset, NetworkMeasurement, refuse_lines
from .workloads import Tokens, network_of_workload

_SOURCE = (
    "Artifact of EnergAIzer: Fast and Accurate GPU Power Estimation Framework for AI Workloads, ISPASS 2026, "
    "arXiv 2604.20105"
)
_COLUMNS = (
    "campaign",
    "gpu",
    "network",
    "precision",
    "batch",
    "sequence",
    "clock_setpoint_mhz",
    "clock_mhz",
    "time_ms",
    "energy_j",
    "power_w",
    "total_s",
)
_FAILED_S = 10.0
_SLOW_S = 34.0
_SAME = 1.05  # Repeats and neighbouring clocks agree much better.
_SLOWER_THAN_PROBE = "slower than its own probe: the host changed"
_SLOWER_THAN_CLOCKS = "slower than other clocks allow: the host changed"
# Data sheets: A100 PCIe 40 GB (NVIDIA, 2020), A10 (NVIDIA, 2021). The source shows the former as a cap at 240 W.
_POWER_LIMIT_W = {"NVIDIA A100-PCIE-40GB": 250.0, "NVIDIA A10": 150.0}
_IDLE_POWER = {"NVIDIA A100-PCIE-40GB": "a100_pcie_40gb_idle_power.json"}
_FILE = re.compile(r"(?P<network>.+)_pbf16_b(?P<batch>\d+)(_s(?P<sequence>\d+)_modeprefill)?(_freq\d+)?")
_UNTRACED = "the source's tracer does not list it"


class _Model(NamedTuple):
    """A network of the source.

    Args:
        name: What to call it.
        tokens: Of an image; None where the rows say the sequence.
        not_listed: What its public definition does and its list lacks, with counts.
        extracted: The name is torchvision's and its own extraction is more complete than the list.
    """

    name: str
    tokens: int | None
    not_listed: Mapping[str, int]
    extracted: bool = False


_MODELS = {
    # Lists hold convolutions and ReLU, but no batch norms, additions or pooling.
    "resnet101_": _Model("resnet101", None, {}, extracted=True),
    "vitmodel_large": _Model("vit_large", 197, {"cat": 1, "copies for attention heads": 24}),
    "bertmodel_large": _Model("bert_large", None, {"embedding": 3, "add": 1, "copies for attention heads": 24}),
    "gpt2model_gpt2": _Model(
        "gpt2", None, {"embedding": 2, "where (causal mask)": 12, "split and copies for attention heads": 12}
    ),
}


def import_energaizer2026(folder: str | Path) -> list[Dataset]:
    """Read the source as one Dataset of networks per GPU and clock that was set.

    Args:
        folder: Where networks.csv and workloads lie.

    Raises:
        DatasetError: A file is missing or damaged, or lines are impossible or of unknown networks; names the lines.
    """
    folder = Path(folder)
    lists = _Lists(folder / "workloads")
    networks: dict[tuple[str, float], list[NetworkMeasurement]] = defaultdict(list)
    measured: list[tuple[tuple[str, float], NetworkMeasurement]] = []
    faults = []
    for line, row in _table(folder / "networks.csv"):
        try:
            if float(row["total_s"]) >= _FAILED_S:
                setting = (row["gpu"], float(row["clock_setpoint_mhz"]))
                measured.append((setting, _measurement(row, line, lists)))
        except (KeyError, ValueError) as error:
            faults.append(f"line {line}: {error}")
    if faults:
        refuse_lines(faults, str(folder / "networks.csv"))
    slow = _slow([(gpu, m) for (gpu, _), m in measured])
    for setting, m in measured:
        marked = replace(m, usable=False, remark=_SLOWER_THAN_CLOCKS) if m.usable and m.line in slow else m
        networks[setting].append(marked)
    return [
        Dataset(_card(folder, gpu, clock_mhz, found), (), tuple(found))
        for (gpu, clock_mhz), found in sorted(networks.items())
    ]


def _table(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = set(_COLUMNS) - set(reader.fieldnames or ())
            rows = list(enumerate(reader, start=2))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError("this file of measurements cannot be read", given=str(path), hint=str(error)) from error
    if missing:
        raise DatasetError("columns are missing", given=str(path), hint=f"add {', '.join(sorted(missing))}")
    return rows


class _Lists:
    """The operation lists of a folder, by network."""

    def __init__(self, folder: Path) -> None:
        self._paths: dict[str, dict[Tokens, Path]] = defaultdict(dict)
        for path in sorted(folder.glob("*.json")):
            if (match := _FILE.fullmatch(path.stem)) and (model := _MODELS.get(match["network"])):
                tokens = Tokens(int(match["batch"]), int(match["sequence"] or model.tokens or 1))
                self._paths[match["network"]][tokens] = path
        self._queries = cache(_queries)
        self._networks: dict[tuple[Any, ...], Network] = {}

    def network(self, network: str, wanted: Tokens, precision: str, input_shape: tuple[int, ...]) -> Network | None:
        """The operations of a network, from its own list or that of the nearest batch and sequence; None without any.

        Attention grows with the square of the sequence and its shapes say so, so scaling a list is exact.
        """
        paths = self._paths.get(network)
        if _MODELS[network].extracted or not paths:
            return None
        key = (network, wanted, precision)
        if key not in self._networks:
            listed = min(paths, key=lambda t: (abs(t.sequence - wanted.sequence), abs(t.batch - wanted.batch)))
            model = _MODELS[network]
            self._networks[key] = network_of_workload(
                self._queries(paths[listed]),
                name=model.name,
                input_shape=input_shape,
                listed=listed,
                wanted=wanted,
                precision=precision,
                not_listed=tuple(Dropped(what, count, (), _UNTRACED) for what, count in model.not_listed.items()),
            )
        return self._networks[key]


def _queries(path: Path) -> list[Any]:
    try:
        queries: list[Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DatasetError("this operation list cannot be read", given=str(path), hint=str(error)) from error
    return queries


def _measurement(row: Mapping[str, str], line: int, lists: _Lists) -> NetworkMeasurement:
    model, batch = _MODELS[row["network"]], int(row["batch"])
    # Sequences are written as 128.0, and not at all for images.
    sequence = int(float(row["sequence"])) if row["sequence"] else None
    input_shape = (batch, 3, 224, 224) if sequence is None else (batch, sequence)
    tokens = Tokens(batch, sequence or model.tokens or 1)
    slow = float(row["total_s"]) > _SLOW_S
    return NetworkMeasurement(
        network=model.name,
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
        operations=lists.network(row["network"], tokens, row["precision"], input_shape),
        usable=not slow,
        remark=_SLOWER_THAN_PROBE if slow else "",
    )


def _slow(measured: list[tuple[str, NetworkMeasurement]]) -> set[int | None]:
    """Lines that are slower than the same network at another clock allows."""
    sweeps: dict[Any, list[NetworkMeasurement]] = defaultdict(list)
    for gpu, m in measured:
        sweeps[gpu, m.network, m.precision, m.input_shape].append(m)
    return {
        m.line
        for sweep in sweeps.values()
        for m in sweep
        for other in sweep
        if m.time_s > _SAME * other.time_s * max(1.0, (other.clock_mhz or 1.0) / (m.clock_mhz or 1.0))
    }


def _card(folder: Path, gpu: str, clock_mhz: float, networks: list[NetworkMeasurement]) -> Card:
    capped = sum((m.clock_mhz or clock_mhz) < clock_mhz - 1 for m in networks)
    return Card(
        gpu=gpu,
        clock_mhz=clock_mhz,
        source=_SOURCE,
        licence="MIT",
        method={
            "forward_synchronized": "forward in eval mode without gradients, torch.cuda.synchronize after every "
            "iteration, in a process of its own whose start is in the time"
        },
        sensor="NVML, instantaneous board power every 10 ms, over the whole life of the process",
        software={"torch": "unknown", "cuda": "12.4", "driver": "unknown"},
        power_limit_w=_POWER_LIMIT_W.get(gpu),
        idle_power_w=_idle_power_w(folder, gpu, clock_mhz),
        limits=(
            "no operations were measured",
            "time and energy hold the start of the process, 1 to 2 s of 31.6 s in which the GPU idles: time is about "
            "5 % too high, energy by that times idle power, and power up to 4 % too low",
            "eager attention; lists of operations lack embeddings, masks, and copies for attention heads",
            "lists of fp32 networks, of ViT at batch 64 and GPT-2 at sequence 256 are those of bf16, other batches "
            "and sequences, scaled",
            *([f"the power cap held the clock of {capped} networks below what was set"] if capped else ()),
            *sorted({m.remark for m in networks if m.remark}),
        ),
    )


def _idle_power_w(folder: Path, gpu: str, clock_mhz: float) -> float | None:
    name = _IDLE_POWER.get(gpu)
    if name is None or not (folder / name).is_file():
        return None
    try:
        by_clock: dict[str, float] = json.loads((folder / name).read_text(encoding="utf-8"))
        return by_clock.get(f"{clock_mhz:g}")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, AttributeError) as error:
        raise DatasetError("this file cannot be read", given=str(folder / name), hint=str(error)) from error
