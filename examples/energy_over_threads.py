"""How many threads should a training on a CPU have? Joules and seconds of a training step of VGG-16 over threads.

Run it with `python examples/energy_over_threads.py`. It trains on images of CIFAR's size, as EA2P's example does. Where
no counter of energy can be read, joules are estimated from utilization, and the table says so.
"""

from __future__ import annotations

import os
import time

import torch
from torch import nn

import joulecast

BATCH, SECONDS = 2, 0.2
"""Images of a step, and seconds that are measured with each number of threads; take more where a counter is slow."""

LAYERS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""VGG-16: channels of each convolution; 0 stands for pooling."""


def vgg16(classes: int) -> nn.Sequential:
    """VGG-16 for images of 32 x 32 pixels."""
    parts: list[nn.Module] = []
    before = 3
    for channels in LAYERS:
        if channels:
            parts += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
            before = channels
        else:
            parts.append(nn.MaxPool2d(2))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(before, classes))


def main() -> None:
    """Print a line for each number of threads."""
    model = vgg16(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    cores = os.cpu_count() or 1
    counts = sorted({1, *(2**n for n in range(10) if 2**n <= cores), cores})
    steps: dict[int, int] = {}
    with joulecast.measure() as meter:
        for threads in counts:
            torch.set_num_threads(threads)
            step()  # the first one allocates
            with meter.window(f"{threads} threads"):
                end_s, steps[threads] = time.monotonic() + SECONDS, 0
                while time.monotonic() < end_s:
                    step()
                    steps[threads] += 1
    found = meter.result()
    print(found)
    print("threads  ms per step  J per step")
    for threads, count in steps.items():
        window = found.tree().at(f"{threads} threads").total
        print(f"{threads:7}  {1e3 * window.time_s / count:11.1f}  {window.energy_j / count:10.3f}  {window.source}")


if __name__ == "__main__":
    main()
