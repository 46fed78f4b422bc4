"""Which layers of a model cost the joules, measured on this machine? Needs torch; a GPU and counters are welcome.

Without an energy counter it says so, and shares seconds instead. Run it with `python examples/where_the_joules_go.py`.
"""

from __future__ import annotations

import torch
from torch import nn

import joulecast


def small_network() -> nn.Sequential:
    """A small network for images of 32 x 32 pixels."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        nn.Sequential(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main() -> None:
    """Account for training iterations on this machine, and compare them with a prediction for a GPU."""
    model = small_network()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    accounted = joulecast.account(model, (16, 3, 32, 32), mode="training", device=device, loop_s=0.5)
    print(accounted)
    print(accounted.to_text(depth=2))
    for node in accounted.top(3):
        print(f"{node.path} {node.name} ({node.phase}): {1e3 * node.own.time_s:.2f} ms")
    for note in accounted.notes:
        print(f"note: {note}")

    predicted = joulecast.predict(small_network(), (16, 3, 32, 32), "A30", mode="training")
    print(f"predicted on an A30: {1e3 * predicted.energy_j:.2f} mJ")
    if accounted.measured:
        print(accounted.compare(predicted))


if __name__ == "__main__":
    main()
