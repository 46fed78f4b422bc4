"""Small valid files in the formats that `joulecast datasets import` reads, for `fuzz_files.py` to damage."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(path: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), path)


def _source(folder: Path) -> Path:
    (folder / "source").mkdir()
    return folder / "source"


def make_nicolai2025(folder: Path) -> Path:
    path = _source(folder)
    common = {"gpu": "NVIDIA A30", "tf32": "False", "input_shape": "(32, 8, 56, 56)", "started": "2024-11-10_15-41-44"}
    common |= {"source_file": "a", "source_blob": "0", "iterations": "9000", "measured_for_s": "9.0"}
    empty = dict.fromkeys(("time_std_s", "power_std_w", "energy_std_j"), "")
    rows = []
    for mode in ("inference", "training"):
        for module in (
            "Conv2d(8, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))",
            "ReLU()",
            "Linear(in_features=56, out_features=8, bias=True)",
        ):
            rows.append(
                {**common, **empty, "mode": mode, "module": module, "time_s": 1e-3, "power_w": 160.0, "energy_j": 0.16}
            )
    _write_csv(path / "operations.csv", rows)
    networks = [{**{k: v for k, v in row.items() if k != "module"}, "network": "resnet18"} for row in rows]
    _write_csv(path / "networks.csv", networks)
    return path


def make_neusight2025(folder: Path) -> Path:
    path = _source(folder)
    sizes = ("B", "H", "M", "N", "K", "in_channels", "out_channels", "kernel_size", "input_size", "stride", "padding")
    common = {"gpu": "Mine", "torch": "2.1", "cudnn": "8", "cuda": "12", **dict.fromkeys(sizes, float("nan"))}
    rows: list[Row] = []
    for b in range(1, 20):
        rows.append({**common, "operation": "add", "latency_ms": 0.05 * b, "B": 100.0 * b, "H": 1000.0})
        rows.append({**common, "operation": "softmax", "latency_ms": 0.05 * b, "B": 100.0 * b, "H": 1000.0})
    _write_parquet(path / "operations.parquet", rows)
    _write_parquet(path / "amd_operations.parquet", [{**row, "gpu": "AMD Instinct MI210"} for row in rows])
    (path / "device_specs.json").write_text(json.dumps({"Mine": {"SingleFLOPs": 1e4, "Mem_Bw": 500.0}}))
    return path


def make_energaizer2026(folder: Path) -> Path:
    path = _source(folder)
    common = {"campaign": "dvfs", "gpu": "NVIDIA A100-PCIE-40GB", "network": "gpt2model_gpt2", "precision": "bf16"}
    common |= {"batch": 8, "sequence": "128.0", "power_w": 100.0, "total_s": 31.6}
    rows = []
    for mhz in (800, 900, 1000):
        times = {"clock_setpoint_mhz": mhz, "clock_mhz": mhz, "time_ms": 1e4 / mhz, "energy_j": 1e3 / mhz}
        rows.append({**common, **times})
    _write_csv(path / "networks.csv", rows)
    return path


def make_aiconfigurator2026(folder: Path) -> Path:
    path = _source(folder)
    common = {"gpu": "NVIDIA H100 80GB HBM3", "stack": "sglang 0.5.14", "kernel": "k", "precision": "bfloat16"}
    common |= {"time_us": 40.0, "power_w": 400.0, "power_limit_w": 700.0}
    _write_parquet(path / "linear.parquet", [{**common, "m": m, "n": 4096, "k": 4096} for m in (64, 128, 256, 512)])
    sizes = {"batch": 2, "heads": 8, "kv_heads": 2, "head_size": 64, "window": 0, "cache_precision": "bfloat16"}
    phases = [{"phase": "context", "tokens": 512, "cached": 0}, {"phase": "generation", "tokens": 1, "cached": 512}]
    _write_parquet(path / "attention.parquet", [{**common, **sizes, **phase} for phase in phases * 3])
    return path


def make_miopen2024(folder: Path) -> Path:
    path = _source(folder)
    common = {"gpu": "AMD Instinct MI210", "precision": "fp16", "direction": "F", "solver": "ConvAsm", "r": 3, "s": 3}
    common |= {"c": 16, "h": 56, "w": 56, "k": 32, "out_h": 28, "out_w": 28, "groups": 1, "time_us": 50.0}
    common |= dict.fromkeys(("pad_h", "pad_w", "dilation_h", "dilation_w"), 1) | {"stride_h": 2, "stride_w": 2}
    _write_parquet(path / "convolutions.parquet", [{**common, "n": n} for n in (1, 2, 4, 8)])
    return path


def make_vidur2024(folder: Path) -> Path:
    path = _source(folder)
    common = {"gpu": "H100", "model": "llama", "tokens": 512, "time_us": 100.0, "hidden": 8192, "intermediate": 28672}
    common |= {"heads": 64, "kv_heads": 8, "gated": True, "tensor_parallel": 2}
    layers = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "add")
    _write_parquet(path / "layers.parquet", [{**common, "layer": layer} for layer in layers])
    return path


SOURCES: dict[str, Callable[[Path], Path]] = {
    "nicolai2025": make_nicolai2025,
    "neusight2025": make_neusight2025,
    "energaizer2026": make_energaizer2026,
    "aiconfigurator2026": make_aiconfigurator2026,
    "miopen2024": make_miopen2024,
    "vidur2024": make_vidur2024,
}
"""Source -> what makes a folder with its files."""
