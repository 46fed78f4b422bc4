"""Where do joules go below the operation? Matrix products and a training step of ResNet-50 on an A100, by prediction.

Run it with `python examples/memory_levels.py`; `--pictures FOLDER` also writes two pictures. It follows
Delestrac et al., "Analyzing GPU Energy Consumption in Data Movement and Storage" (ASAP 2024).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.memory_levels import COMPONENTS, MemoryLevels
from joulecast.rendering.pictures import StackedBar, stacked_bars

GPU = "A100 SXM 80GB"
SETTINGS = (("A100 PCIe 80GB", 1065), (GPU, None))
"""GPU and clock in MHz: the clock that the paper locked, which is the base clock of this board; and the boost clock of
another board. None is its default clock."""

SIZES = (512, 1024, 2048, 4096)
PRECISIONS = {"fp32": "fp32", "TF32": "default", "AMP": "fp16"}


def product(size: int, gpu: str, clock: float | None) -> MemoryLevels:
    """A square matrix product in fp32."""
    operation = joulecast.Operation("matmul", [(size, size), (size, size)], precision="fp32")
    return joulecast.predict([(operation, 1)], None, gpu, clock).by_memory_level()


def untiled(size: int, gpu: str, clock: float | None, at_clock: bool = False) -> str:
    """The same product as the CUDA samples' matrixMul computes it, by hand: each thread computes one output.

    Tiles of 32 x 32 lie in shared memory, and each multiplication reads two words from there (8 bytes; 1 in cuBLAS's
    kernels). A warp's 32 multiplications need two cycles of shared memory, which gives the time. Arithmetic takes as
    many joules as in cuBLAS's kernel, and awake multiprocessors as many watts.

    Args:
        size: Rows and columns.
        gpu: Name of the GPU.
        clock: Graphics clock in MHz; None for the default.
        at_clock: Whether the paper's energies per access hold at this clock, instead of at the boost clock.
    """
    levels, board = product(size, gpu, clock), find_gpu(gpu)
    time_s = size**3 / (32 / 2 * board.sms * levels.clock_mhz * 1e6)
    access_j = dict((at_clock and board.access_energy_j) or levels.energies.joules)
    read, stored = 2 * 4 * size**2, 2 * 4 * size**3 / 32
    served = {"shared": 8 * size**3 + stored, "l2": stored - read, "dram": read + 4 * size**2}
    moved = {level: number / 32 * access_j[level] for level, number in served.items()}
    moved_j = sum(moved.values())
    static_j, rest_j = (levels.energy_j[part] * time_s / levels.time_s for part in ("static", "rest"))
    dynamic_j = moved_j + rest_j + levels.energy_j["compute"]
    shares = [static_j / (static_j + dynamic_j), moved_j / dynamic_j, moved_j / (static_j + dynamic_j)]
    shares += [moved[level] / moved_j for level in moved]
    name = "pJ at clock" if at_clock else f"untiled {size}"
    return f"{name:>14}  " + "  ".join(f"{100 * share:9.1f} %" for share in shares)


def training_step(precision: str, gpu: str, clock: float | None) -> MemoryLevels:
    """A training step of ResNet-50 with a batch of 512."""
    prediction = joulecast.predict("resnet50", (512, 3, 224, 224), gpu, clock, mode="training", precision=precision)
    return prediction.by_memory_level()


def line(name: str, levels: MemoryLevels) -> str:
    """A row of the table: shares of parts in the total and in the dynamic energy."""
    total_j, joules = levels.predicted_j, levels.energy_j
    shares = [joules["static"] / total_j, levels.movement_j / levels.dynamic_j, levels.movement_j / total_j]
    shares += [joules[level] / levels.movement_j for level in ("shared", "l2", "dram")]
    return f"{name:>14}  " + "  ".join(f"{100 * share:9.1f} %" for share in shares)


def main(folder: Path | None = None) -> None:
    """Print the shares, and draw the bars if a folder is given."""
    heads = ["static", "moved/dyn.", "moved", "shared", "L2", "DRAM"]
    for gpu, clock in SETTINGS:
        found = {f"product {size}": product(size, gpu, clock) for size in SIZES}
        found |= {f"ResNet-50 {name}": training_step(each, gpu, clock) for name, each in PRECISIONS.items()}
        print(f"{gpu}, {'its boost clock' if clock is None else f'{clock} MHz'}")
        print(f"{'':>14}  " + "  ".join(f"{head:>11}" for head in heads) + "   (the last three: of what is moved)")
        for name, levels in found.items():
            print(line(name, levels))
        print(untiled(SIZES[-1], gpu, clock), untiled(SIZES[-1], gpu, clock, at_clock=True), sep="\n")
        step, amp_j = found["ResNet-50 fp32"], found["ResNet-50 AMP"].dynamic_j
        more = ", ".join(f"{found[f'ResNet-50 {each}'].dynamic_j / amp_j:.2f} in {each}" for each in ("fp32", "TF32"))
        print(f"static power {step.energy_j['static'] / step.time_s:.0f} W; dynamic joules over those of AMP: {more}")
        print()
    print(found["ResNet-50 AMP"])
    if folder is not None:
        bars = [
            StackedBar(name, [levels.energy_j[part] / levels.predicted_j for part in COMPONENTS])
            for name, levels in found.items()
        ]
        (folder / "memory-levels.svg").write_text(
            stacked_bars(bars, COMPONENTS, "", f"Shares of the energy on an {GPU}")
        )
        found["ResNet-50 AMP"].plot(folder / "memory-levels-kinds.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=Path, help="Folder for the pictures.")
    main(parser.parse_known_args()[0].pictures)
