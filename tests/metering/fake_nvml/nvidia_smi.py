"""A `nvidia-smi` on the simulated driver: --query-gpu with --loop-ms, supported clocks, and locking clocks."""

import datetime
import sys
import time

import pynvml

options = dict(argument.lstrip("-").partition("=")[::2] for argument in sys.argv[1:])
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(int(options.get("id", 0)))
COLUMNS = {
    "timestamp": lambda: datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
    "name": lambda: pynvml.nvmlDeviceGetName(handle),
    "uuid": lambda: pynvml.nvmlDeviceGetUUID(handle),
    "driver_version": pynvml.nvmlSystemGetDriverVersion,
    "power.limit": lambda: f"{pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3:.2f}",
    "clocks.max.sm": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "power.draw": lambda: f"{pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3:.2f}",
    "clocks.sm": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "clocks.mem": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
    "temperature.gpu": lambda: "[N/A]",
    "clocks_throttle_reasons.active": lambda: f"{pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle):#018x}",
    "utilization.gpu": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
}
try:
    if "lock-gpu-clocks" in options:
        least, most = map(int, options["lock-gpu-clocks"].split(","))
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, least, most)
    if "reset-gpu-clocks" in options:
        pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    if "query-supported-clocks" in options:
        for memory in pynvml.nvmlDeviceGetSupportedMemoryClocks(handle):
            for graphics in pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory):
                sys.stdout.write(f"{memory}, {graphics}\n")
    while "query-gpu" in options:
        sys.stdout.write(", ".join(str(COLUMNS[name]()) for name in options["query-gpu"].split(",")) + "\n")
        sys.stdout.flush()
        if "loop-ms" not in options:
            break
        time.sleep(float(options["loop-ms"]) / 1e3)
except pynvml.NVMLError as error:
    sys.exit(f"nvidia-smi: {error}")
