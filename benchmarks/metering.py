"""Metering on this machine and on simulated devices: `python benchmarks/metering.py [loads] [overhead] [kills]`.

loads      measures the loads of EA2P's tables (sleep, CPU-bound, memory-bound, torch on the CPU) and prints joules by
           device, or that this machine does not have the counter
overhead   prints the share of a core and the memory that the sampler uses at 10 Hz, and the time of a window
kills      kills the meter, the measured program or both at random moments; every recording must be readable up to its
           last block
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from joulecast.errors import InputError
from joulecast.metering.meter import Meter
from joulecast.metering.recording import read_recording
from joulecast.metering.result import Metering

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
SECONDS, KILLS, WINDOWS = 4, 200, 100_000


def loads() -> None:
    print(f"| load, {SECONDS} s | time | device | joules | mean | source |\n| --- | --- | --- | --- | --- | --- |")
    notes: dict[str, None] = {}
    for name, code in LOADS.items():
        with Meter(("cpu", "ram", "gpu"), title=name) as meter:
            subprocess.run([sys.executable, "-c", code.format(seconds=SECONDS)], check=True)
        found = meter.result()
        for device in found.devices:
            row = (device.device.name, f"{device.energy_j:.2f} J", f"{device.mean_w:.2f} W", device.device.method)
            print(f"| {name} | {found.duration_s:.2f} s | {' | '.join(row)} |")
        if not found.devices:
            print(f"| {name} | {found.duration_s:.2f} s | none | - | - | - |")
        notes |= dict.fromkeys(found.notes)
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
    found = meter.result().tree().at("step")
    print(f"sampler at 10 Hz: {100 * share:.2f} % of a core, at most {resident / 1024:.0f} MB")
    print(f"a window: {1e6 * window_s:.1f} us; {found.calls:g} of them read in {time.perf_counter() - start_s:.2f} s")


def _cpu_s(process: int) -> float:
    values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def kills() -> None:
    dice, unreadable, lost_s = random.Random(0), 0, []
    # The thread that writes the counter may still do so while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _simulate(folder / "powercap")
        environment = {**os.environ, "JOULECAST_POWERCAP": str(folder / "powercap")}
        for number in range(KILLS):
            out = folder / f"{number}.jsonl"
            command = [sys.executable, "-m", "joulecast.cli", "measure", "--devices", "cpu", "--interval", "0.02"]
            process = subprocess.Popen(
                [*command, "--out", str(out), "--", "sleep", "30"],
                env=environment,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            while not out.exists() or not out.stat().st_size:
                time.sleep(0.02)
            time.sleep(dice.uniform(0.0, 3.0))
            killed_s = time.monotonic()
            if dice.random() < 0.5:
                os.killpg(process.pid, signal.SIGKILL)  # meter, sampler and program
            else:
                process.send_signal(signal.SIGKILL)
            process.wait()
            time.sleep(0.3)
            try:
                found = Metering("killed", (read_recording(out),))
                lost_s.append(max(0.0, killed_s - found.recordings[0].end_s))
            except InputError as error:
                unreadable += 1
                print(error)
    print(f"{KILLS} kills: {unreadable} recordings unreadable; at most {max(lost_s):.2f} s lost (a block is 1 s)")


def _simulate(folder: Path) -> None:
    """A package of 50 W, as Linux shows its counter."""
    zone = folder / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0")
    (zone / "max_energy_range_uj").write_text("262143328850")
    start_s = time.monotonic()

    def run() -> None:
        while zone.exists():
            new = zone / "new"
            try:
                new.write_text(f"{50e6 * (time.monotonic() - start_s):.0f}")
                new.replace(zone / "energy_uj")
            except OSError:
                return
            time.sleep(0.005)

    threading.Thread(target=run, daemon=True).start()
    while not (zone / "energy_uj").exists():
        time.sleep(0.01)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("loads", "overhead", "kills"):
        print(f"## {name}\n")
        {"loads": loads, "overhead": overhead, "kills": kills}[name]()
        print()
