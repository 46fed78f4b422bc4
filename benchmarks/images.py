"""How good predictions of images and videos are, as diffusers generated them on an H100 and a B200.

    python benchmarks/images.py ../shared/data/mlenergy2026 [--first]

The folder holds what the ML.ENERGY Benchmark published (github.com/ml-energy/leaderboard).
flux_1_dev, sd3_5_large and cogvideox_2b may be looked at (--first reads no others); the others are a test. Without
--first, writes benchmarks/IMAGES.md.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

import joulecast
from joulecast.errors import InputError

_NAMES = {
    "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers": "sana_1_5_1_6b",
    "black-forest-labs/FLUX.1-dev": "flux_1_dev",
    "stabilityai/stable-diffusion-3.5-large": "sd3_5_large",
    "stabilityai/stable-diffusion-3.5-medium": "sd3_5_medium",
    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": "wan_2_1_1_3b",
    "zai-org/CogVideoX-2b": "cogvideox_2b",
}
_FIRST = ("flux_1_dev", "sd3_5_large", "cogvideox_2b")
_NOTES = """# Images and videos by diffusers

Made by `python benchmarks/images.py FOLDER`; do not edit. Published by the ML.ENERGY Benchmark, in bf16; batches of 1
to 32, on several GPUs in several degrees of Ulysses and ring. Errors are those of the time of a batch, of its mean
power, and of joules per image: predicted over published, the mean over batches and the farthest. The host's time of an
exchange between GPUs was set with FLUX.1, and joules of a FLOP and watts of a multiprocessor with the pipelines that
were looked at; no other constant was fitted to these runs. Which operations run, and in which memory layout, was traced
with diffusers 0.35.2; what GPUs exchange is from the source of xDiT. Cycles of an element that lies across memory are
those of a copy that others measured on an H100.

Attention is predicted as PyTorch's FlashAttention 2: with kernels of engines (FlashAttention 3, TensorRT-LLM), the
pipelines that were looked at first came out 10 to 55 % too quick. SD 3.5 medium drew 449 to 529 W on one H100, but
650 W on each of two: these runs are unlike all others.
"""


class Error(NamedTuple):
    """Predicted over published, less one."""

    time: float
    power: float
    energy: float


class Run(NamedTuple):
    """Errors of a run, whether each quantity lies in its 90 % interval, and the measured seconds of a batch."""

    error: Error
    held: tuple[bool, ...]
    time_s: float


def errors(folder: Path, names: tuple[str, ...]) -> dict[tuple[str, str, int], list[Run]]:
    """Errors by pipeline and GPU, for pipelines of these names."""
    found: dict[tuple[str, str, int], list[Run]] = defaultdict(list)
    for kind in ("image", "video"):
        with (folder / f"{kind}s.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if _NAMES[row["model"]] in names]
        for row in rows:
            try:
                made = joulecast.predict_image(
                    _NAMES[row["model"]],
                    row["gpu"],
                    batch=int(row["batch_size"]),
                    steps=int(row["inference_steps"]),
                    height=int(row[f"{kind}_height"]),
                    width=int(row[f"{kind}_width"]),
                    frames=int(row["num_frames"]) if kind == "video" else None,
                    gpus=int(row["gpus"]),
                    ulysses=int(row["ulysses_degree"]),
                    ring=int(row["ring_degree"]),
                )
            except InputError:
                continue
            time, power = float(row["batch_latency_s"]), float(row["avg_power_watts"])
            joules = float(row[f"energy_per_{kind}_joules"])
            pairs = ((made.time_per_batch_s, time), (made.power_w, power), (made.energy_per_image_j, joules))
            interval = made.interval(0.9)
            ends = (interval.time_per_image_s, interval.power_w, interval.energy_per_image_j)
            read = (time / made.batch, power, joules)
            held = tuple(low <= value <= high for value, (low, high) in zip(read, ends, strict=True))
            error = Error(*(predicted / published - 1 for predicted, published in pairs))
            found[made.model, made.gpu, made.gpus].append(Run(error, held, time))
    return found


def _table(found: dict[tuple[str, str, int], list[Run]]) -> list[str]:
    lines = ["| pipeline | GPUs | batches | time | power | energy |", "| --- | --- | --- | --- | --- | --- |"]
    for (name, gpu, gpus), some in sorted(found.items()):
        cells = [
            f"{100 * np.mean(each):+.0f} % ({100 * max(each, key=abs):+.0f} %)"
            for each in zip(*(run.error for run in some), strict=True)
        ]
        lines.append(f"| {name} | {gpus} {gpu} | {len(some)} | {' | '.join(cells)} |")
    return lines


def _summary(found: dict[tuple[str, str, int], list[Run]]) -> list[str]:
    """Mean and median absolute errors by GPU and number of GPUs, and the share in 90 % intervals."""
    lines = ["| GPUs | batches | time | power | energy |", "| --- | --- | --- | --- | --- |"]
    for gpu, gpus in sorted({key[1:] for key in found}):
        some = [run for key, runs in found.items() if key[1:] == (gpu, gpus) for run in runs]
        off = 100 * np.abs([run.error for run in some])
        held = 100 * np.mean([run.held for run in some], axis=0)
        of_each = zip(off.mean(axis=0), np.median(off, axis=0), held, strict=True)
        cells = [f"{mean:.1f}, {middle:.1f} %, {share:.0f} %" for mean, middle, share in of_each]
        lines.append(f"| {gpus} {gpu} | {len(some)} | {' | '.join(cells)} |")
    return lines


def _spread(found: dict[tuple[str, str, int], list[Run]]) -> list[str]:
    """The standard deviations that intervals have, and how many runs of a pipeline those of the others hold."""
    logs: dict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)
    for (name, _, gpus), some in found.items():
        logs[name, gpus] += [tuple(np.log1p(run.error)) for run in some]

    def sigmas(gpus: int, without: str = "") -> Any:
        squares = [np.mean(np.square(v), axis=0) for (name, n), v in logs.items() if n == gpus and name != without]
        return np.sqrt(np.mean(squares, axis=0))

    quantile = NormalDist().inv_cdf(0.95)
    held = np.concatenate([np.abs(each) <= quantile * sigmas(gpus, name) for (name, gpus), each in logs.items()])
    cells = [f"{gpus}: {', '.join(f'{s:.3f}' for s in sigmas(gpus))}" for gpus in sorted({gpus for _, gpus in logs})]
    shares = ", ".join(f"{share:.0f}" for share in 100 * held.mean(axis=0))
    return [
        "Standard deviations of the logarithms of time, power and energy by number of GPUs, all pipelines alike",
        f"({'; '.join(cells)}).",
        f"Those of five pipelines hold {shares} % of the runs of the sixth.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of mlenergy2026")
    parser.add_argument("--first", action="store_true", help="print what may be looked at; write nothing")
    arguments = parser.parse_args()
    first = errors(arguments.folder, _FIRST)
    if arguments.first:
        print(*_table(first), sep="\n")
        return
    others = errors(arguments.folder, tuple(set(_NAMES.values()) - set(_FIRST)))
    lines = [_NOTES, "## By GPUs: mean and median absolute error, and the share in 90 % intervals", ""]
    lines += [
        *_summary(first | others),
        "",
        *_spread(first | others),
        "",
        "## Looked at",
        "",
        *_table(first),
        "",
        "## Others",
        "",
        *_table(others),
        "",
    ]
    Path(__file__).with_name("IMAGES.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
