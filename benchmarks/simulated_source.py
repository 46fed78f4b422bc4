"""Files like those of nicolai2025 with simulated measurements, so that benchmarks run where the real ones are not.

Seconds and watts follow a simple law with noise: nothing can be learned from the numbers but that all parts run.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from joulecast.datasets.importers.nicolai2025 import import_nicolai2025
from joulecast.datasets.store import save
from joulecast.extraction import network_of
from joulecast.operations.operation import Operation

# File, blob, GPU, TF32, modes.
CAMPAIGNS = (
    ("operations_A30_train", "4685fb9e76", "NVIDIA A30", True, ("inference", "training")),
    ("operations_A30_no_tc_train", "12f6a79586", "NVIDIA A30", False, ("inference", "training")),
    ("finalbench_all_operations_A30", "simulated", "NVIDIA A30", True, ("inference",)),
    ("finalbench_all_operations_A30_no_tc", "simulated", "NVIDIA A30", False, ("inference",)),
    ("finalbench_all_operations_RTX2080TI", "simulated", "NVIDIA GeForce RTX 2080 Ti", False, ("inference",)),
    ("RTX2080TI_operations_bench_run", "simulated", "NVIDIA GeForce RTX 2080 Ti", False, ("inference",)),
    ("operations_RTX2080TI_train", "simulated", "NVIDIA GeForce RTX 2080 Ti", False, ("training",)),
)
NETWORKS = (("resnet18", 32), ("resnet18", 224), ("alexnet", 224), ("resnet34", 56), ("vgg11", 64))
BATCH = 32
FLOPS_PER_S, BYTES_PER_S, LAUNCH_S = 8e12, 8e11, 1e-5
NOISE = 0.02


def printed(operation: Operation) -> str | None:
    """An operation as torch prints its module; None for those that have no module here."""
    a, channels = operation.attributes, operation.input_shapes[0][1 if len(operation.input_shapes[0]) > 2 else -1]
    if operation.kind == "conv2d":
        return (
            f"Conv2d({channels}, {a['out_channels']}, kernel_size={a['kernel_size']}, stride={a['stride']}, "
            f"padding={a['padding']}, bias={a['bias']})"
        )
    if operation.kind == "linear":
        return f"Linear(in_features={channels}, out_features={a['out_features']}, bias={a['bias']})"
    if operation.kind == "batch_norm":
        return f"BatchNorm2d({channels}, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
    return "ReLU(inplace=True)" if operation.kind == "relu" else None


def rows_of(operations: list[Operation], draw: np.random.Generator) -> Iterator[dict[str, object]]:
    """Every campaign measures every operation twice."""
    for file, blob, gpu, tf32, modes in CAMPAIGNS:
        for mode in modes:
            for operation in (*operations, *operations):
                took = operation.replace(mode=mode)
                time_s = LAUNCH_S + took.flops / FLOPS_PER_S + (took.bytes_read + took.bytes_written) / BYTES_PER_S
                yield _row(draw, gpu, tf32, mode, time_s, file, blob) | {
                    "module": printed(operation),
                    "input_shape": str(operation.input_shapes[0]),
                }


def _row(
    draw: np.random.Generator, gpu: str, tf32: bool, mode: str, time_s: float, file: str, blob: str
) -> dict[str, object]:
    time_s *= 1 + NOISE * draw.standard_normal()
    power_w = 60 + 80 * min(1.0, time_s / 1e-4) * (1 + NOISE * draw.standard_normal())
    energy_j = time_s * power_w
    return {
        "gpu": gpu,
        "tf32": tf32,
        "mode": mode,
        "time_s": time_s,
        "time_std_s": NOISE * time_s,
        "power_w": power_w,
        "power_std_w": NOISE * power_w,
        "energy_j": energy_j,
        "energy_std_j": NOISE * energy_j,
        "iterations": 1000,
        "measured_for_s": 1000 * time_s,
        "started": "2025-01-01_00-00-00",
        "source_file": file,
        "source_blob": blob,
    }


def write_nicolai(folder: Path) -> None:
    """Write operations.csv and networks.csv of some networks of torchvision."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    found = {(name, size): network_of(name, (BATCH, 3, size, size)) for name, size in NETWORKS}
    operations = list(dict.fromkeys(o for network in found.values() for o in network.operations if printed(o)))
    _write(folder / "operations.csv", list(rows_of(operations, draw)))
    networks = []
    for (name, size), network in found.items():
        for mode in ("inference", "training"):
            for tf32 in (True, False):
                time_s = sum(e.count * e.operation.replace(mode=mode).flops for e in network) / FLOPS_PER_S + 1e-3
                row = _row(draw, "NVIDIA A30", tf32, mode, time_s, "fullmodel", "simulated")
                networks.append(row | {"network": name, "input_shape": str((BATCH, 3, size, size))})
    _write(folder / "networks.csv", networks)


def _write(file: Path, rows: list[dict[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write(data: Path, work: Path) -> None:
    """Simulated measurements as a source below `data`, and fits of benchmarks/deeppm.py to them in `work`."""
    write_nicolai(data / "nicolai2025")
    with tempfile.TemporaryDirectory() as folder:
        for number, dataset in enumerate(import_nicolai2025(data / "nicolai2025")):
            save(dataset, Path(folder) / str(number))
        script = Path(__file__).with_name("deeppm.py")
        command = [sys.executable, str(script), "--data", folder, "--work", str(work), "--reduced"]
        subprocess.run(command, check=True)
