"""Which layers of your own module cost the energy of a training step? Needs torch, but no GPU.

Run it with `python examples/energy_of_a_module.py`.
"""

from __future__ import annotations

from collections import Counter

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
    """Print the energy of a training step by module, most first."""
    prediction = joulecast.predict(small_network(), (256, 3, 64, 64), "A30", mode="training")
    print(prediction)
    by_module: Counter[str] = Counter()
    for cost in prediction.operations:
        # An operation that several modules call is shared by how often each calls it.
        for path, calls in cost.entry.by_module.items():
            by_module[path] += (cost.energy_j or 0.0) * calls / cost.count
    for path, energy_j in by_module.most_common():
        print(f"{path or '(model)'}: {1e3 * energy_j:.1f} mJ, {100 * energy_j / prediction.energy_j:.0f} %")


if __name__ == "__main__":
    main()
