"""Loaded by each worker of a Dask cluster in the tests: its GPU is the simulated one, and PyTorch computes on the CPU.

The settings of workers N.0, N.1 ... are the words of $WORKER_N: device=NAME, driver=VERSION, joulecast=VERSION,
board=IDENTITY, after=FILE, loses=N (the GPU falls off the bus in the Nth measurement). While a worker measures, the
folder $MEASURING has a file of its number. Workers without a name are numbered by their port.
"""

import itertools
import os
from pathlib import Path

from waiting import until

import joulecast


def dask_setup(worker):
    place = worker.name.rpartition(":")[2].split(".")[0]
    given = os.environ.get(f"WORKER_{place}", "").split()
    settings = dict(word.split("=", 1) for word in given)
    joulecast.__version__ = settings.get("joulecast", joulecast.__version__)

    from joulecast.metering import sampler
    from joulecast.metering.sampler import nvml_sensor
    from joulecast.profiling import collection, devices, session

    sampler._TIMEOUT_S = 600.0  # processes take long to start on a machine where many workers do
    session.IDLE_S = 0.02
    find_device, facts_of = devices.find_device, devices.facts_of

    def find(name):
        if "after" in settings:
            until(Path(settings["after"]).exists)
        return find_device(name)

    devices.find_device = find
    devices.sensor_of = lambda device, period_s=0.01: nvml_sensor(0, period_s)
    devices.second_sensor_of = lambda device: None
    devices.board_of = lambda device: settings.get("board")
    devices.name_of = lambda device: settings.get("device", "GPU-A")
    devices.facts_of = lambda *given: {**facts_of(*given), "driver": settings.get("driver", "550")}

    mark, measure, numbers = Path(os.environ["MEASURING"], place), collection.measure, itertools.count(1)

    def marked(*given):
        mark.touch()
        if str(next(numbers)) == settings.get("loses"):
            Path(os.environ["FAKE_NVML_LOST_FILE"]).touch()
        try:
            return measure(*given)
        finally:
            mark.unlink()

    collection.measure = marked
