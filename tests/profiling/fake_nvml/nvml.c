/* A libnvidia-ml.so.1 with one simulated GPU, driven by the real nvidia-ml-py in the tests.
 *
 * FAKE_NVML_POWER_W     true power (default 200)
 * FAKE_NVML_WINDOW_MS   the power reading averages over so long since the first call, idling at 50 W before
 * FAKE_NVML_COUNTER     0: no total-energy counter
 * FAKE_NVML_LOST_AFTER_MS  the GPU falls off the bus so long after the first call
 * FAKE_NVML_INIT        error code that nvmlInit returns
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };

static double setting(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double since_start_s(void) {
    static double start = 0;
    if (start == 0) start = now_s();
    return now_s() - start;
}

static int state(void) {
    double lost_ms = setting("FAKE_NVML_LOST_AFTER_MS", -1);
    return lost_ms >= 0 && 1e3 * since_start_s() > lost_ms ? GPU_IS_LOST : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return (int)setting("FAKE_NVML_INIT", SUCCESS); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "Simulated error"; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)1;
    return index == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "NVIDIA Simulated");
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "999.1");
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *limit_mw) { (void)device; *limit_mw = 300000; return SUCCESS; }

int nvmlDeviceGetPowerUsage(void *device, unsigned *power_mw) {
    (void)device;
    double window_s = setting("FAKE_NVML_WINDOW_MS", 0) / 1e3, true_w = setting("FAKE_NVML_POWER_W", 200);
    double share = window_s > 0 && since_start_s() < window_s ? since_start_s() / window_s : 1;
    *power_mw = (unsigned)(1e3 * (share * true_w + (1 - share) * 50));
    return state();
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy_mj) {
    (void)device;
    if (setting("FAKE_NVML_COUNTER", 1) == 0) return NOT_SUPPORTED;
    double updated_s = ((long)(since_start_s() / 0.05)) * 0.05;
    *energy_mj = (unsigned long long)(1e3 * setting("FAKE_NVML_POWER_W", 200) * updated_s);
    return state();
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) { (void)device; (void)type; *mhz = 1410; return state(); }
int nvmlDeviceGetTemperature(void *device, unsigned type, unsigned *celsius) { (void)device; (void)type; *celsius = 55; return state(); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) { (void)device; *reasons = 0; return state(); }
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) { (void)device; *reasons = 0; return state(); }
