/* A libnvidia-ml.so.1 with simulated GPUs, driven by the real nvidia-ml-py in the tests.
 *
 * True power -> averaging window -> update period -> noise of a milliwatt -> reading, and true power -> steps -> counter.
 *
 * FAKE_NVML_SCHEDULE       file of "monotonic_s watts" lines: true power from that moment on; 50 W before the first.
 *                          Without it the GPU always draws 200 W
 * FAKE_NVML_GPUS           how many there are (default 1); GPU n draws n + 1 times as much as GPU 0
 * FAKE_NVML_AVERAGING_MS   window of the power reading (default 20)
 * FAKE_NVML_UPDATE_MS      its update period (default 20)
 * FAKE_NVML_COUNTER_MS     update period of the energy counter (default 50); 0: there is none
 * FAKE_NVML_POWER          0: it states neither power nor its limit
 * FAKE_NVML_NAME           what it calls itself (default NVIDIA Simulated)
 * FAKE_NVML_INSTANT        1: has the instant reading, over 25 ms
 * FAKE_NVML_PROCESSES      how many processes compute on it (default 1)
 * FAKE_NVML_PROCESS_FILE   file of "pid percent bytes" lines: which processes they are, for how much of the time each
 *                          runs a kernel, and the memory that each holds
 * FAKE_NVML_REASONS        bit mask of what holds the clock back (default 0); then it runs at 1200 MHz
 * FAKE_NVML_CLOCK_FILE     where the locked clock is kept, as a driver does beyond the end of a process
 * FAKE_NVML_MAY_LOCK       0: no permission to lock clocks
 * FAKE_NVML_LOST_AFTER_MS  the GPU falls off the bus so long after the first call of a process
 * FAKE_NVML_LOST_FILE      the GPU is off the bus as soon as this file exists
 * FAKE_NVML_INIT           error code that nvmlInit returns
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15
};
enum { POWER_INSTANT = 186, MIN_MHZ = 210, MAX_MHZ = 1410, STEP_MHZ = 15 };
static const double IDLE_W = 50;

static double setting(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int state(void) {
    static double start_s = 0;
    double lost_ms = setting("FAKE_NVML_LOST_AFTER_MS", -1);
    const char *lost_file = getenv("FAKE_NVML_LOST_FILE");
    FILE *file = lost_file ? fopen(lost_file, "r") : NULL;
    if (file) {
        fclose(file);
        return GPU_IS_LOST;
    }
    if (start_s == 0) start_s = now_s();
    return lost_ms >= 0 && 1e3 * (now_s() - start_s) > lost_ms ? GPU_IS_LOST : SUCCESS;
}

/* Joules drawn from the machine's start to a moment. */
static double energy_j(double until_s) {
    const char *path = getenv("FAKE_NVML_SCHEDULE");
    if (!path) return 200 * until_s;
    double total_j = 0, power_w = IDLE_W, since_s = 0, from_s, next_w;
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%lf %lf", &from_s, &next_w) == 2 && from_s < until_s) {
        total_j += power_w * (from_s - since_s);
        since_s = from_s;
        power_w = next_w;
    }
    if (file) fclose(file);
    return total_j + power_w * (until_s - since_s);
}

static unsigned reading_mw(void *device, double averaging_s, double update_s) {
    double updates = floor(now_s() / update_s), end_s = updates * update_s;
    double noise_mw = fmod(7 * updates, 3);
    double mean_w = (energy_j(end_s) - energy_j(end_s - averaging_s)) / averaging_s;
    return (unsigned)(1e3 * (double)(size_t)device * mean_w + noise_mw);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return (int)setting("FAKE_NVML_INIT", SUCCESS); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    return code == GPU_IS_LOST ? "GPU is lost" : code == NO_PERMISSION ? "Insufficient Permissions" : "Simulated error";
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return index < setting("FAKE_NVML_GPUS", 1) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)setting("FAKE_NVML_GPUS", 1);
    return SUCCESS;
}

/* How much more than GPU 0 a GPU draws; its handle is its index + 1. */
static double scale(void *device) { return (double)(size_t)device; }

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    const char *named = getenv("FAKE_NVML_NAME");
    snprintf(name, length, "%s", named ? named : "NVIDIA Simulated");
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    (void)device;
    snprintf(uuid, length, "GPU-simulated");
    return SUCCESS;
}

int nvmlDeviceGetArchitecture(void *device, unsigned *architecture) {
    (void)device;
    *architecture = 8; /* Ada */
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "999.1");
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *limit_mw) {
    (void)device;
    *limit_mw = 300000;
    return setting("FAKE_NVML_POWER", 1) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *power_mw) {
    if (!setting("FAKE_NVML_POWER", 1)) return NOT_SUPPORTED;
    *power_mw = reading_mw(device, setting("FAKE_NVML_AVERAGING_MS", 20) / 1e3, setting("FAKE_NVML_UPDATE_MS", 20) / 1e3);
    return state();
}

/* As nvml.h declares it. */
struct field_value {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
};

int nvmlDeviceGetFieldValues(void *device, int count, struct field_value *values) {
    for (int i = 0; i < count; i++) {
        int known = values[i].id == POWER_INSTANT && setting("FAKE_NVML_INSTANT", 0);
        values[i].result = known ? SUCCESS : NOT_SUPPORTED;
        if (known) values[i].value.u = reading_mw(device, 0.025, 0.025);
    }
    return state();
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy_mj) {
    double update_s = setting("FAKE_NVML_COUNTER_MS", 50) / 1e3;
    if (update_s == 0) return NOT_SUPPORTED;
    *energy_mj = (unsigned long long)(1e3 * scale(device) * energy_j(floor(now_s() / update_s) * update_s));
    return state();
}

static int locked_mhz(void) {
    int mhz = 0;
    const char *path = getenv("FAKE_NVML_CLOCK_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file && fscanf(file, "%d", &mhz) != 1) mhz = 0;
    if (file) fclose(file);
    return mhz;
}

static int set_clock(int mhz) {
    const char *path = getenv("FAKE_NVML_CLOCK_FILE");
    if (setting("FAKE_NVML_MAY_LOCK", 1) == 0) return NO_PERMISSION;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return NOT_SUPPORTED;
    fprintf(file, "%d", mhz);
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least_mhz, unsigned most_mhz) {
    (void)device; (void)most_mhz;
    return set_clock((int)least_mhz);
}

int nvmlDeviceResetGpuLockedClocks(void *device) { (void)device; return set_clock(0); }

int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *mhz) {
    (void)device;
    if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1;
    mhz[0] = 1215;
    return SUCCESS;
}

int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    (void)device; (void)memory_mhz;
    unsigned all = (MAX_MHZ - MIN_MHZ) / STEP_MHZ + 1;
    if (*count < all) { *count = all; return INSUFFICIENT_SIZE; }
    *count = all;
    for (unsigned i = 0; i < all; i++) mhz[i] = MAX_MHZ - i * STEP_MHZ;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
    (void)device;
    int locked = locked_mhz();
    *mhz = type == 2 ? 1215 : locked ? (unsigned)locked : setting("FAKE_NVML_REASONS", 0) ? 1200 : MAX_MHZ;
    return state();
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *mhz) {
    (void)device; (void)type;
    *mhz = MAX_MHZ;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, unsigned type, unsigned *celsius) { (void)device; (void)type; *celsius = 55; return state(); }

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device;
    *reasons = (unsigned long long)setting("FAKE_NVML_REASONS", 0);
    return state();
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *gpu_and_memory) {
    (void)device;
    gpu_and_memory[0] = 100;
    gpu_and_memory[1] = 40;
    return state();
}

/* As nvml.h declares them. */
struct process_info { unsigned pid; unsigned long long used_bytes; unsigned gpu_instance, compute_instance; };
struct process_sample { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; };
enum { MOST_PROCESSES = 16 };

static unsigned processes(unsigned pids[], unsigned percent[], unsigned long long bytes[]) {
    const char *path = getenv("FAKE_NVML_PROCESS_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    unsigned count = 0;
    while (file && count < MOST_PROCESSES
           && fscanf(file, "%u %u %llu", &pids[count], &percent[count], &bytes[count]) == 3) count++;
    if (file) fclose(file);
    if (path) return count;
    count = (unsigned)setting("FAKE_NVML_PROCESSES", 1);
    for (unsigned i = 0; i < count; i++) pids[i] = percent[i] = bytes[i] = 0;
    return count;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process_info *found) {
    (void)device;
    unsigned pids[MOST_PROCESSES], percent[MOST_PROCESSES], room = *count;
    unsigned long long bytes[MOST_PROCESSES];
    *count = processes(pids, percent, bytes);
    if (*count == 0) return SUCCESS;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) found[i] = (struct process_info){pids[i], bytes[i], 0, 0};
    return state();
}

int nvmlDeviceGetProcessUtilization(void *device, struct process_sample *found, unsigned *count, unsigned long long since) {
    (void)device; (void)since;
    unsigned pids[MOST_PROCESSES], percent[MOST_PROCESSES], room = *count, sampled = 0;
    unsigned long long bytes[MOST_PROCESSES];
    unsigned all = processes(pids, percent, bytes);
    if (!getenv("FAKE_NVML_PROCESS_FILE")) return NOT_SUPPORTED;
    if (!found || room < all) {
        *count = all;
        return INSUFFICIENT_SIZE;
    }
    for (unsigned i = 0; i < all; i++)
        if (percent[i]) found[sampled++] = (struct process_sample){pids[i], (unsigned long long)(1e6 * now_s()), percent[i], 0, 0, 0};
    *count = sampled;
    return state();
}
