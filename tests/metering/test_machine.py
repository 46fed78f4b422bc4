"""What a machine has: NVIDIA and AMD GPUs, perf, a model of memory; and what to do about what is absent."""

import json
import os
import stat
import subprocess
import sys

import pytest

from joulecast.errors import SensorError
from joulecast.metering import amd
from joulecast.metering.cpu import check_program, open_program
from joulecast.metering.estimated_power import module_w, modules_gb
from joulecast.metering.estimated_power import open_memory_reader as open_reader
from joulecast.metering.gpu_shares import ProcessTree
from joulecast.metering.machine import find_machine
from joulecast.metering.meter import job_and_rank

MEASURE = """
import json, threading
from joulecast.metering.meter import Meter
with Meter(("cpu", "gpu"), interval_s=0.02) as meter:
    threading.Event().wait(0.6)
print(json.dumps(meter.result().to_dict()))
"""

AMDSMI = """
import time
class AmdSmiException(Exception): pass
def amdsmi_init(): pass
def amdsmi_get_processor_handles(): return [0, 1]
def amdsmi_get_gpu_asic_info(handle): return {"market_name": "AMD Instinct MI210"}
def amdsmi_get_gpu_driver_info(handle): return {"driver_version": "6.7.0"}
def amdsmi_get_power_info(handle): return {"current_socket_power": "N/A", "average_socket_power": 100 * (handle + 1)}
def amdsmi_get_energy_count(handle):
    ticks = int(time.monotonic() * 100 * (handle + 1) * 1e6 / 15.3)
    return {"energy_accumulator": ticks, "counter_resolution": 15.3, "timestamp": 0}
"""

# A `perf stat` on a machine that draws 35 W, however late it is with a line.
PERF = f"""#!{sys.executable}
import sys, time
begin_s = before_s = time.monotonic()
while "-I" in sys.argv:
    time.sleep(0.1)
    now_s = time.monotonic()
    line = f"{{now_s - begin_s}},{{35 * (now_s - before_s)}},Joules,power/energy-pkg/,100,100.00,,"
    print(line, file=sys.stderr, flush=True)
    before_s = now_s
try:  # Without a command to wait for, it counts until it is interrupted.
    if sys.argv[-1] != "true":
        open(sys.argv[0] + ".started", "w").close()
        time.sleep(60)
except KeyboardInterrupt:
    pass
print(f"{{35 * (time.monotonic() - begin_s)}},Joules,power/energy-pkg/,100,100.00,,", file=sys.stderr)
"""

# The devices draw twice and three times as much as each other. Readings of a busy machine may be some hundredths of a
# second late in a measurement of 0.6 s; the accuracy of meters has its own tests, in simulated time.
LATE = 0.25


def ran(*words, **environment):
    """A Python program that ended well, in this environment."""
    result = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result


def measured(script=MEASURE, **environment):
    return json.loads(ran("-c", script, **environment).stdout)


def about(power_w):
    return pytest.approx(power_w, rel=LATE)


def by_name(found):
    return {device["name"]: device for device in found["devices"]}


@pytest.mark.parametrize("stranger", [1, 2**22 + 1], ids=["of this machine", "of another container"])
def test_the_share_of_a_gpu_stands_beside_the_whole_devices(driver, tmp_path, stranger):
    """The program runs kernels for 40 % of the time, another process for 25 %."""
    listed = tmp_path / "processes"
    script = f"""
import os
with open({str(listed)!r}, "w") as file:
    file.write(f"{{os.getpid()}} 40 2000000000\\n{stranger} 25 5000000000\\n")
{MEASURE}"""
    settings = {"FAKE_NVML_PROCESS_FILE": listed, "FAKE_NVML_GPUS": 3, "JOULECAST_POWERCAP": tmp_path}
    found = measured(script, LD_LIBRARY_PATH=driver, **settings)
    expected = {"busy": 0.4, "others_busy": 0.25, "memory_bytes": 2 * 10**9, "others_memory_bytes": 5 * 10**9}
    # It may not be known whose processes these are.
    assert [*found["gpu_shares"].values()] == ([expected] * 3 if stranger == 1 else [])
    watts = {name: device["mean_w"] for name, device in by_name(found).items()}
    assert watts == {"gpu0": about(200), "gpu1": about(400), "gpu2": about(600)}  # those of the whole devices


def test_amd_gpus(tmp_path):
    (tmp_path / "amdsmi.py").write_text(AMDSMI)
    devices = by_name(
        measured(PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", JOULECAST_POWERCAP=tmp_path)
    )
    assert devices["gpu0"]["mean_w"] == about(100)
    assert devices["gpu1"]["mean_w"] == about(200)
    assert devices["gpu0"]["facts"]["device"] == "AMD Instinct MI210"
    assert devices["gpu0"]["idle_w"] is None or devices["gpu0"]["idle_w"] > 0


def test_perf_where_powercap_shows_nothing(tmp_path):
    perf = tmp_path / "perf"
    perf.write_text(PERF)
    perf.chmod(perf.stat().st_mode | stat.S_IXUSR)
    found = measured(PATH=f"{tmp_path}:{os.environ['PATH']}", JOULECAST_POWERCAP=tmp_path / "none")
    assert by_name(found)["cpu"]["mean_w"] == about(35)


def test_counters_that_may_not_be_read_and_memory_that_is_modelled_only_where_it_is_asked_for(tmp_path, monkeypatch):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0")
    monkeypatch.setenv("JOULECAST_POWERCAP", str(tmp_path))
    found = find_machine(("cpu", "gpu"))  # there is no energy_uj, which root cannot read either
    assert "cpu0" not in found.readers
    assert "ram" not in found.readers
    assert any("sudo chmod a+r" in note for note in found.absent)
    (ram,) = find_machine(("ram",)).devices
    assert (ram.name, ram.method) == ("ram", "modelled")


def test_the_model_of_memory_by_hand(tmp_path):
    assert [module_w(gb) for gb in (8, 16, 32, 64, 128, 256)] == [4.0, 4.0, 5.0, 6.0, 8.0, 10.0]
    meminfo = tmp_path / "meminfo"
    for available, share in ((100000, 0.35), (95000, 0.35), (94000, 0.65), (75000, 0.7), (50001, 0.75), (0, 0.85)):
        meminfo.write_text(f"MemTotal:       100000 kB\nMemAvailable:    {available} kB\n")
        assert open_reader([32, 64], str(meminfo))() == {"power_w": pytest.approx(share * (5.0 + 6.0))}
    dimm = tmp_path / "mc0" / "dimm3"
    dimm.mkdir(parents=True)
    (dimm / "size").write_text("32768\n")  # MB
    assert modules_gb(tmp_path) == [32.0]
    assert modules_gb(tmp_path / "none", meminfo) == [32.0]


def test_amd_gpus_are_read_from_the_drivers_files_without_rocm(tmp_path, monkeypatch):
    """Card 0 is of another maker, card 1 states an average, and card 2 the present power."""
    for card, vendor, file, microwatts in (
        (0, "0x10de", "power1_average", 1),
        (1, "0x1002", "power1_average", 85_000_000),
        (2, "0x1002", "power1_input", 120_000_000),
    ):
        sensors = tmp_path / f"card{card}" / "device" / "hwmon" / f"hwmon{card}"
        sensors.mkdir(parents=True)
        (sensors.parents[1] / "vendor").write_text(f"{vendor}\n")
        (sensors / file).write_text(f"{microwatts}\n")
    (sensors / "power1_cap").write_text("300000000\n")
    (sensors.parents[1] / "product_name").write_text("AMD Instinct MI210\n")
    monkeypatch.setattr(amd.gpus, "__defaults__", (tmp_path,))
    machine = find_machine(("gpu",))
    assert {name: spec.open()() for name, spec in machine.readers.items()} == {
        "gpu0": {"power_w": 85.0},
        "gpu1": {"power_w": 120.0},
    }
    facts = machine.devices[1].facts
    assert (facts["device"], facts["power_limit_w"]) == ("AMD Instinct MI210", 300.0)
    (sensors / "power1_input").unlink()
    with pytest.raises(SensorError, match="AMD GPU cannot be read"):
        machine.readers["gpu1"].open()


def test_the_share_of_a_process_tree_by_hand(tmp_path):
    ticks = os.sysconf("SC_CLK_TCK")

    def state(mine, child, machine):
        for number, parent, cpu in ((10, 1, mine), (11, 10, child), (12, 1, 99)):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            fields = ["S", str(parent), *["0"] * 9, str(cpu * ticks), "0", *["0"] * 10]
            (tmp_path / str(number) / "stat").write_text(f"{number} (a ) b) {' '.join(fields)}")
        (tmp_path / "stat").write_text(f"cpu {machine * ticks} 0 0 500 0 0 0 0 0 0\n")

    state(mine=1, child=2, machine=100)
    tree = ProcessTree(10, tmp_path)
    assert tree.shares() == {"cpu": None, "processes": 2}
    state(mine=3, child=4, machine=116)
    assert tree.shares() == {"cpu": 0.25, "processes": 2}  # 4 s of 16 s


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "3"}, ("Slurm job 7", "3")),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}, ("torchrun job x", "1")),
        ({"PMIX_NAMESPACE": "p", "OMPI_COMM_WORLD_RANK": "2"}, ("Open MPI job p", "2")),
        ({"RANK": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}, ("job at node0:29500", "4")),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (f"MPICH job of process {os.getppid()}", "1")),
        ({"SLURM_JOB_ID": "7"}, None),
    ],
    ids=["alone", "Slurm", "torchrun in Slurm", "Open MPI", "address", "MPICH", "no rank"],
)
def test_launchers_tell_job_and_rank(environment, expected):
    assert job_and_rank(environment) == expected


# What the programs print, in the form of outputs that others published; 10^8 pWh of typeperf are 0.36 J.
POWERMETRICS = """Machine model: Mac14,2
*** Sampled system activity (Thu Jan  4 09:00:00 2024 +0100) (101.52ms elapsed) ***
CPU Power: 954 mW
GPU Power: 28 mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 983 mW

*** Sampled system activity (Thu Jan  4 09:00:00 2024 +0100) (100.00ms elapsed) ***
Combined Power (CPU + GPU + ANE): 2000 mW
"""
ON_INTEL = """*** Sampled system activity (Sun Oct  1 10:00:00 2023 +0200) (500.00ms elapsed) ***
Intel energy model derived package power (CPUs+GT+SA): 48.61W
"""
TYPEPERF = r"""
"(PDH-CSV 4.0)","\\PC\Energy Meter(RAPL_Package0_PKG)\Energy","\\PC\Energy Meter(RAPL_Package0_PP0)\Energy"
"01/04/2024 09:00:00.123","5000000000.000000","7000.000000"
"01/04/2024 09:00:01.124","5100000000.000000","8000.000000"
Exiting, please wait...
"""


@pytest.mark.parametrize(
    ("program", "printed", "joules"),
    [
        ("powermetrics", POWERMETRICS, [0.983 * 0.10152, 0.983 * 0.10152 + 0.2]),
        ("powermetrics", ON_INTEL, [48.61 * 0.5]),
        ("typeperf", TYPEPERF, [0.0, 0.36]),
    ],
)
def test_programs_of_other_systems_by_what_they_print(program, printed, joules, tmp_path, monkeypatch):
    (tmp_path / "printed").write_text(printed)
    (tmp_path / program).write_text(f"#!/bin/sh\ncat {tmp_path}/printed\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    check_program(program)
    read = open_program(program)
    assert [read()["energy_j"] for _ in joules] == pytest.approx(joules)
    with pytest.raises(SensorError, match=f"{program} cannot count"):
        read()
    (tmp_path / "printed").write_text("Error: no counter\n")
    with pytest.raises(SensorError, match="no counter"):
        check_program(program)
    (tmp_path / program).unlink()
    with pytest.raises(SensorError, match="is not installed"):
        check_program(program)


# What Windows lacks is taken away from every process, and its counter is a program that prints 36 W.
NO_POSIX = """
import os, select, signal, sys
for name in ("fcntl", "resource", "pwd", "termios"):
    sys.modules[name] = None
for module, names in ((os, "getuid getloadavg sysconf sched_getaffinity fork"), (signal, "SIGHUP SIGUSR1 SIGKILL")):
    for name in names.split():
        delattr(module, name)
def refuse(*_):
    raise OSError(10038, "not a socket")
select.select = refuse
"""
EMI = f"""#!{sys.executable}
import sys, time
print('"(PDH-CSV 4.0)","PC Energy Meter(RAPL_Package0_PKG) Energy"', flush=True)
while True:
    print(f'"now","{{36 * time.monotonic() / 3.6e-9:.1f}}"', flush=True)
    if "-sc" in sys.argv:
        break
    time.sleep(0.1)
"""


def test_measuring_needs_nothing_that_windows_lacks(tmp_path):
    for name, text in {"sitecustomize.py": NO_POSIX, "typeperf": EMI}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    code = """import sys, types
from joulecast.cli import main
from joulecast.metering import machine
machine.sys = types.SimpleNamespace(platform="win32")
main(sys.argv[1:])"""
    words = ["measure", "--devices", "cpu", "--json", "--"]
    found = ran(
        *("-c", code, *words, sys.executable, "-c", "import time; time.sleep(1.5)"),
        PATH=f"{tmp_path}:/usr/bin:/bin",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
        JOULECAST_POWERCAP=tmp_path / "none",
    )
    (device,) = json.loads(found.stderr)["devices"]
    assert device["facts"]["sensor"] == "typeperf, energy meter interface"
    assert device["mean_w"] == pytest.approx(36, rel=0.15)
