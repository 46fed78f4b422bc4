"""Metering on this machine: `python benchmarks/metering.py [loads] [overhead]`; kills.py kills it.

loads      measures the loads of EA2P's tables (sleep, CPU-bound, memory-bound, torch on the CPU) and prints joules by
           device, or that this machine does not have the counter
overhead   prints the share of a core and the memory that the sampler uses at 10 Hz, and the time of a window
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from joulecast.metering.meter import Meter

LOADS = {
    "sleep": "import time; time.sleep({seconds})",
    "CPU-bound": "import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: sum(range(10000))",
    "memory-bound": (
        "import time, numpy; a = numpy.ones(2**25); b = a.copy(); end = time.monotonic() + {seconds}\n"
        "while time.monotonic() < end: numpy.copyto(b, a)"
    ),
    "torch on the CPU": (
        "import time, torch; torch.set_num_threads(1); a = torch.randn(512, 512); end = time.monotonic() + {seconds}\n"
        "while time.monotonic() < end: a @ a"
    ),
}
SECONDS, WINDOWS = 4, 100_000


def loads() -> None:
    print(f"| load, {SECONDS} s | time | device | joules | mean | source |\n| --- | --- | --- | --- | --- | --- |")
    notes: dict[str, None] = {}
    for name, code in LOADS.items():
        with Meter(("cpu", "ram", "gpu"), title=name) as meter:
            subprocess.run([sys.executable, "-c", code.format(seconds=SECONDS)], check=True)
        metering = meter.result()
        for device in metering.devices:
            row = (device.device.name, f"{device.energy_j:.2f} J", f"{device.mean_w:.2f} W", device.device.method)
            print(f"| {name} | {metering.duration_s:.2f} s | {' | '.join(row)} |")
        if not metering.devices:
            print(f"| {name} | {metering.duration_s:.2f} s | none | - | - | - |")
        notes |= dict.fromkeys(metering.notes)
    print("\n" + "\n".join(f"- {note}" for note in notes))


def overhead() -> None:
    with Meter(("cpu", "ram", "gpu")) as meter:
        process = meter._sampler._process.pid  # type: ignore[union-attr]
        time.sleep(2)
        before = _cpu_s(process)
        time.sleep(20)
        share = (_cpu_s(process) - before) / 20
        resident = next(
            int(line.split()[1]) for line in Path(f"/proc/{process}/status").read_text().splitlines() if "VmHWM" in line
        )
        start_s = time.process_time()
        for _ in range(WINDOWS):
            with meter.window("step"):
                pass
        window_s = (time.process_time() - start_s) / WINDOWS
    start_s = time.perf_counter()
    step = meter.result().tree().at("step")
    print(f"sampler at 10 Hz: {100 * share:.2f} % of a core, at most {resident / 1024:.0f} MB")
    print(f"a window: {1e6 * window_s:.1f} us; {step.calls:g} of them read in {time.perf_counter() - start_s:.2f} s")


def _cpu_s(process: int) -> float:
    values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("loads", "overhead"):
        print(f"## {name}\n")
        {"loads": loads, "overhead": overhead}[name]()
        print()
