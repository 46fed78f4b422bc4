"""Which layers of your own module cost the energy of a training step? Needs torch, but no GPU.

Run it with `python examples/energy_of_a_module.py`.
"""

from __future__ import annotations

from torch import nn

import joulecast


def small_network() -> nn.Sequential:
    """A small network for images of 64 x 64 pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def main() -> None:
    """Print the energy of a training step by phase, module and operation, and the three parts that cost most."""
    prediction = joulecast.predict(small_network(), (256, 3, 64, 64), "A30", mode="training")
    print(prediction)
    tree = prediction.tree()
    print(tree.to_text())
    for node in tree.top(3):
        print(f"{node.path} {node.name}, {node.phase}: {100 * node.own.energy_j / prediction.energy_j:.0f} %")


if __name__ == "__main__":
    main()
