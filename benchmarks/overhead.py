"""Slowdown of a measured loop by sampling its power: `python benchmarks/overhead.py`.

Times a loop alternately with and without the sampler. The real sampler process polls the simulated NVML of the tests as
it would poll a driver, and shares the machine with the host thread of the loop, as it would with a GPU.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "tests" / "metering" / "fake_nvml" / "nvml.c"
PAIRS = 15
CALLS = 60_000


def loop_s() -> float:
    """A loop as a host thread runs it: many small PyTorch calls."""
    import torch

    torch.set_num_threads(1)
    x = torch.randn(256, 256)
    start = time.perf_counter()
    for _ in range(CALLS):
        torch.relu(x)
    return time.perf_counter() - start


def measure() -> None:
    from joulecast.metering.sampler import nvml_sensor

    loop_s()
    ratios = []
    for pair in range(PAIRS):
        # Which comes first changes, or a machine that slows down would look like an overhead.
        if pair % 2:
            without = loop_s()
        with nvml_sensor():
            sampled = loop_s()
        if not pair % 2:
            without = loop_s()
        ratios.append(sampled / without)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"with over without sampling, {PAIRS} pairs: median {middle:.4f}, quartiles {low:.4f} to {high:.4f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{folder}/libnvidia-ml.so.1", str(SOURCE), "-lm"], check=True)  # noqa: S607
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, __file__, "measure"], env=environment, check=True)


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["measure"] else main()
