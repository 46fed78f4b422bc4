"""Which GPU and clock run a job with the least energy, within a deadline? No GPU and no torch are needed.

Run it with `python examples/choose_a_gpu.py`.
"""

from __future__ import annotations

import joulecast

GPUS = ["A30", "A10", "T4", "L4"]


def main() -> None:
    """Print the best clock of each GPU for 32 images through ResNet-50, and the GPUs that are left out."""
    choices = joulecast.best("resnet50", (32, 3, 224, 224), gpus=GPUS, objective="energy", max_time_s=0.05)
    for choice in choices:
        print(
            f"{choice.alias}: {choice.energy_j:.2f} J and {1e3 * choice.time_s:.1f} ms at {choice.clock_mhz:.0f} MHz, "
            f"{choice.power_w:.0f} W"
        )
    for left_out in choices.left_out:
        print(f"{left_out.gpu}: {left_out.reason}")


if __name__ == "__main__":
    main()
