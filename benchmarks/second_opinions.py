"""The energy of a command by joulecast, and at the same time by Zeus, CodeCarbon or perf: EA2P's tables 4 to 7.

    python benchmarks/second_opinions.py codecarbon -- sleep 10

Zeus and perf read the counters that we read. CodeCarbon and we estimate where there is no counter.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

from joulecast.errors import JoulecastError, SensorError, needing
from joulecast.metering.cpu import PERF, check_program, joules_of_perf
from joulecast.metering.meter import Meter
from joulecast.metering.result import Metering

_WINDOW = "joulecast"
_KWH = 3.6e6
_GROUPS = {"package": "cpu", "server": "cpu", "dram": "ram", "board": "gpu"}
"""Component of our devices -> what CodeCarbon and perf call all of them together."""

Joules = dict[str, float]
"""Our name of a device, or cpu, ram or gpu for all of them -> joules; empty until the context is left."""


@contextmanager
def _zeus(found: Joules) -> Iterator[None]:
    monitor = _made("Zeus", "zeus.monitor", "ZeusMonitor")
    # By default Zeus synchronizes with torch's GPUs, which the measured program may not use.
    monitor.begin_window(_WINDOW, sync_execution=False)
    yield
    seen = monitor.end_window(_WINDOW, sync_execution=False)
    for name, each in (("gpu", seen.gpu_energy), ("cpu", seen.cpu_energy), ("ram", seen.dram_energy)):
        found.update({f"{name}{index}": float(joules) for index, joules in (each or {}).items()})


@contextmanager
def _codecarbon(found: Joules) -> Iterator[None]:
    # Offline: it asks no server where it is. The country changes the grams of CO2, not the joules.
    settings = {"country_iso_code": "DEU", "measure_power_secs": 1, "save_to_file": False, "log_level": "error"}
    tracker = _made("CodeCarbon", "codecarbon", "OfflineEmissionsTracker", **settings)
    tracker.start()
    yield
    tracker.stop()
    seen = tracker.final_emissions_data
    found.update({name: _KWH * float(getattr(seen, f"{name}_energy")) for name in ("cpu", "ram", "gpu")})


@contextmanager
def _perf(found: Joules) -> Iterator[None]:
    check_program("perf")
    process = subprocess.Popen(PERF, stderr=subprocess.PIPE, text=True)
    yield
    process.send_signal(signal.SIGINT)  # Then it prints what it counted.
    found["cpu"] = sum(joules_of_perf(process.communicate()[1].splitlines()))


SECOND_OPINIONS: Mapping[str, Callable[[Joules], AbstractContextManager[None]]] = {
    "zeus": _zeus,
    "codecarbon": _codecarbon,
    "perf": _perf,
}
"""Name -> context manager that measures until it is left, and fills the dictionary then.

Entering it raises MissingDependencyError where the program is not installed, and SensorError where it can read nothing.
"""


def differences(metering: Metering, other_j: Mapping[str, float], name: str) -> list[str]:
    """One line for each device that both have read: the joules of both, and their relative difference.

    Args:
        other_j: Device, or cpu, ram or gpu for all of them -> joules of the other program.
    """
    ours: Joules = {}
    for found in metering.devices:
        for key in {found.device.name, _GROUPS.get(found.device.component)} - {None} if found.energy_j else ():
            # Cores and graphics are parts of a package; only what is counted is added up.
            if key == found.device.name or found.device.counted:
                ours[str(key)] = ours.get(str(key), 0.0) + float(found.energy_j or 0.0)
    lines = [
        f"{key}: {ours[key]:.2f} J here, {joules:.2f} J by {name}, {100 * (joules / ours[key] - 1):+.1f} %"
        for key, joules in other_j.items()
        if ours.get(key) and joules
    ]
    return lines or [f"{name} and joulecast read no device in common"]


def _made(name: str, module: str, made: str, **settings: Any) -> Any:
    package = module.partition(".")[0]
    with needing(f"the comparison with {name} needs the package {package}", f"pip install {package}"):
        found = getattr(import_module(module), made)
    try:
        return found(**settings)
    except Exception as error:
        raise SensorError(f"{name} cannot read any device of this machine", given=str(error)) from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SECOND_OPINIONS)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    other_j: Joules = {}
    try:
        with Meter(title=asked.command[0]) as meter, SECOND_OPINIONS[asked.name](other_j):
            subprocess.run(asked.command, check=True)
    except JoulecastError as error:
        sys.exit(f"error: {error}")
    print("\n".join([str(meter.result()), *differences(meter.result(), other_j, asked.name)]))


if __name__ == "__main__":
    main()
