"""Where do joules go below the operation? Matrix products and a training step of ResNet-50 on an A100, by prediction.

Run it with `python examples/memory_levels.py`; `--pictures FOLDER` also writes two pictures. It follows
Delestrac et al., "Analyzing GPU Energy Consumption in Data Movement and Storage" (ASAP 2024).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import joulecast
from joulecast.predictors.networks.memory_levels import COMPONENTS, MemoryLevels
from joulecast.rendering.stacked_bars import StackedBar, stacked_bars

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
