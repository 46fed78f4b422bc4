"""What servers draw at the plug beyond their boards: fitted to MLPerf's measured servers, a vendor left out at a time.

    python benchmarks/nodes.py ../shared/data

Reads mlperfinference2025 and mlperftraining2025, writes benchmarks/NODES.md, and prints the constants of runs/run.py.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from joulecast.hardware import GPU, find_gpu
from joulecast.runs.run import PER_BOARD_W

# Models whose runs without latency limits keep boards at their cap.
_AT_CAP = ("bert", "dlrm", "3d-unet", "llama2_70b_lora")
_NAMES = {
    "NVIDIA A100-SXM-80GB CTS": "A100 SXM4 80GB",
    "NVIDIA A100-SXM-80GB": "A100 SXM4 80GB",
    "NVIDIA A100-PCIe-40GB": "A100 PCIe 40GB",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40GB",
    "NVIDIA A100-PCIe-80GB": "A100 PCIe 80GB",
    "NVIDIA H100-PCIe-80GB": "H100 PCIe",
}
_NOTES = """# What servers draw at the plug

Made by `python benchmarks/nodes.py FOLDER`; do not edit.

**What was measured.** Watts at the wall of servers under MLPerf's load without latency limits (inference v1.0 to v5.1),
and of one server with 8 H100 in training (v4.0, AC). Read are runs whose submission states the power cap of the boards,
and runs of models that keep boards at their default cap, unless the clocks were tuned (Max-Q without a stated cap).
Boards are taken to draw their cap, which no sensor confirmed. A workstation (DGX Station) and servers with hosts of
another architecture (aarch64) are not read.

**What is predicted.** Watts = base + links + 1.15 x boards, where links count if switches join all boards of a server.
Base and links are fitted to relative errors; each server counts once, however many caps it ran at. The factor of boards
is given (runs/run.py says why): a free one is 1.03, with errors of 8 % in the mean. Most servers ran Max-Q, which is
tuned for few joules: others may draw more.

"""


class Server(NamedTuple):
    """A server at a cap.

    Args:
        vendor, system: As in the files.
        gpu: The GPU model.
        gpus: Number of GPUs.
        boards_w: Watts of all boards together.
        wall_w: Watts at the wall.
    """

    vendor: str
    system: str
    gpu: GPU
    gpus: int
    boards_w: float
    wall_w: float


def runs(folder: Path) -> Iterator[Server]:
    """Runs of both files."""
    for row in _rows(folder / "mlperfinference2025/power.csv"):
        told = "Station" in row["system"] or "aarch64" in row["system"] or row["suspect"]
        tuned = row["max_q"] == "True" or not row["model"].startswith(_AT_CAP)
        if row["scenario"] != "Offline" or told or (tuned and not row["gpu_cap_w"]):
            continue
        gpu, count = find_gpu(_NAMES.get(row["gpu"], row["gpu"])), int(row["gpus"])
        boards_w = count * float(row["gpu_cap_w"] or gpu.power_limit_w)
        yield Server(
            row["submitter"].removesuffix("EMC"), row["system"], gpu, count, boards_w, float(row["wall_power_w"])
        )
    for row in _rows(folder / "mlperftraining2025/runs.csv"):
        if row["nodes"] == "1" and row["power_reading"] == "AC" and row["benchmark"].startswith(_AT_CAP):
            gpu = find_gpu(row["gpu"])
            watts = float(row["node_w_median"])
            yield Server("SMC", row["system"], gpu, int(row["gpus"]), int(row["gpus"]) * gpu.power_limit_w, watts)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def fitted(servers: list[Server]) -> np.ndarray:
    """Watts of a server without its boards, and of one with linked boards beyond it, neither of them negative."""
    from scipy.optimize import nnls

    weights = np.array([sum(other.system == each.system for other in servers) ** -0.5 for each in servers])
    wall = np.array([each.wall_w for each in servers])
    return nnls(_terms(servers) / wall[:, None] * weights[:, None], (1 - _of_boards(servers) / wall) * weights)[0]


def _terms(servers: list[Server]) -> np.ndarray:
    return np.array([[1.0, float(each.gpu.link(8) == "nvlink")] for each in servers])


def _of_boards(servers: list[Server]) -> np.ndarray:
    return PER_BOARD_W * np.array([each.boards_w for each in servers])


def main() -> None:
    grouped: dict[tuple[str, str, str, float], list[Server]] = {}
    for each in runs(Path(sys.argv[1])):
        grouped.setdefault((each.vendor, each.system, each.gpu.name, each.boards_w), []).append(each)
    servers = [some[0]._replace(wall_w=float(np.mean([s.wall_w for s in some]))) for some in grouped.values()]
    lines = ["| left out | servers | median error | worst | bias | base, links |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    left_out: dict[str, list[float]] = {}
    for what, key in (("vendor", lambda s: s.vendor), ("GPU", lambda s: s.gpu.name)):
        for name in sorted({key(each) for each in servers}):
            constants = fitted([each for each in servers if key(each) != name])
            mine = [each for each in servers if key(each) == name]
            predicted = _terms(mine) @ constants + _of_boards(mine)
            errors = 100 * (predicted / [each.wall_w for each in mine] - 1)
            by_system = {s.system: float(e) for s, e in zip(mine, errors, strict=True)}
            left_out.setdefault(what, []).extend(by_system.values())
            values = f"{constants[0]:.0f} W, {constants[1]:.0f} W"
            sizes = f"{np.median(abs(errors)):.0f} % | {abs(errors).max():.0f} % | {errors.mean():+.0f} %"
            lines.append(f"| {what} {name} | {len(by_system)} | {sizes} | {values} |")
    for what, errors in left_out.items():
        sizes = abs(np.array(errors))
        lines.append(
            f"| any {what}, each system once | {len(errors)} | {np.median(sizes):.0f} % | {sizes.max():.0f} % "
            f"| {np.mean(errors):+.0f} % | mean error {sizes.mean():.0f} % |"
        )
    constants = fitted(servers)
    lines += ["", f"All servers: {constants[0]:.0f} W, {constants[1]:.0f} W.", ""]
    Path(__file__).with_name("NODES.md").write_text(_NOTES + "\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
