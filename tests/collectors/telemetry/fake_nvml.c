/* A libnvidia-ml.so.1 with two devices: a Hopper, and one that is old and gives little.
 *
 * Time passes by calls: the n-th nvmlDeviceGetFieldValues of a device is n * 0.1 s after the
 * driver's own epoch, which is in 2001 so that no clock of the host can be taken for it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define ALL_LINKS 0xFFFFFFFFu
#define EPOCH_US 1000000000000000LL

enum { TYPE_UINT = 1, TYPE_ULL = 3 };

typedef struct { int is_hopper; int n_reads; } device;
typedef struct { int number; } gpm_sample;
typedef struct {
    uint32_t id, scope;
    int64_t stamp_us, latency_us;
    uint32_t type, code;
    union { uint32_t ui; uint64_t ull; } value;
} field_value;
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } pci;
typedef struct { uint32_t id, code; double value; const char *info[3]; } gpm_metric;
typedef struct {
    uint32_t version, n_metrics;
    gpm_sample *first, *second;
    gpm_metric metrics[];
} gpm_request;

static device devices[2] = {{1, -1}, {0, -1}};

int nvmlInitWithFlags(uint32_t flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }
int nvmlSystemGetDriverVersion(char *text, uint32_t n) { strncpy(text, "560.1", n); return SUCCESS; }
int nvmlDeviceGetCount_v2(uint32_t *n) { *n = 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(uint32_t index, device **handle) {
    *handle = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(device *d, char *text, uint32_t n) {
    strncpy(text, d->is_hopper ? "GPU-aaaaaaaa-0000" : "GPU-bbbbbbbb-0000", n);
    return SUCCESS;
}

int nvmlDeviceGetName(device *d, char *text, uint32_t n) {
    strncpy(text, d->is_hopper ? "Fake H100" : "Fake K80", n);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(device *d, pci *info) {
    strcpy(info->bus_id, d->is_hopper ? "00000000:01:00.0" : "00000000:02:00.0");
    return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkGeneration(device *d, uint32_t *generation) {
    *generation = 4;
    return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkWidth(device *d, uint32_t *n_lanes) {
    *n_lanes = 16;
    return SUCCESS;
}

static void number(field_value *field, uint32_t value) {
    field->type = TYPE_UINT;
    field->value.ui = value;
}

static void long_number(field_value *field, uint64_t value) {
    field->type = TYPE_ULL;
    field->value.ull = value;
}

static int read_field(const device *d, field_value *field) {
    const uint64_t n = d->n_reads;
    if (field->id == 186) {                               /* POWER_INSTANT, mW */
        number(field, 400000 + n);
        return SUCCESS;
    }
    if (!d->is_hopper)
        return NOT_SUPPORTED;
    switch (field->id) {
    case 185: number(field, 350000); return SUCCESS;      /* POWER_AVERAGE, mW */
    case 82: number(field, 60); return SUCCESS;           /* MEMORY_TEMP */
    case 83: long_number(field, 40000 * n); return SUCCESS; /* TOTAL_ENERGY_CONSUMPTION, mJ */
    case 138:                                             /* NVLINK_THROUGHPUT_DATA_TX, KiB */
        if (field->scope != ALL_LINKS)
            return INVALID_ARGUMENT;
        long_number(field, n < 4 ? 5000000000 + 1000 * n : 0); /* the 4th read follows a reset */
        return SUCCESS;
    case 197:                                             /* PCIE_COUNT_TX_BYTES: wraps before 3 */
        number(field, (uint32_t)(4294967296 - 2500 + 1000 * n));
        return SUCCESS;
    case 74: long_number(field, 20000000 * n); return SUCCESS; /* PERF_POLICY_POWER, ns */
    default: return NOT_SUPPORTED;
    }
}

int nvmlDeviceGetFieldValues(device *d, int n, field_value *fields) {
    d->n_reads++;
    for (int i = 0; i < n; i++) {
        fields[i].code = read_field(d, &fields[i]);
        fields[i].stamp_us = EPOCH_US + 100000LL * d->n_reads + i;
    }
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(device *d, uint64_t *mj) { return NOT_SUPPORTED; }

/* The newer nvmlDeviceGetTemperatureV is not in this driver. */
int nvmlDeviceGetTemperature(device *d, uint32_t sensor, uint32_t *celsius) {
    *celsius = d->is_hopper ? 55 : 70;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device *d, uint32_t kind, uint32_t *mhz) {
    *mhz = kind == 1 ? 1980 : 2619;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(device *d, uint32_t kind, uint32_t *mhz) {
    *mhz = kind == 1 ? 1995 : 2619;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(device *d, uint64_t *reasons) {
    *reasons = d->is_hopper ? 0x4 : 0x4 | 0x40;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device *d, uint32_t *rates) {
    rates[0] = 75;
    rates[1] = 25;
    return d->is_hopper ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(device *d, uint64_t *memory) {
    memory[0] = 3000;
    memory[1] = 1000;
    memory[2] = 2000;
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(device *d, uint32_t *support) {
    support[1] = d->is_hopper;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(gpm_sample **sample) {
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(device *d, gpm_sample *sample) {
    static int n_samples;
    sample->number = ++n_samples;
    return SUCCESS;
}

int nvmlGpmMetricsGet(gpm_request *request) {
    if (request->version != 1 || request->second->number != request->first->number + 1)
        return INVALID_ARGUMENT;
    for (uint32_t i = 0; i < request->n_metrics; i++) {
        gpm_metric *metric = &request->metrics[i];
        metric->code = metric->id == 11 ? NOT_SUPPORTED : SUCCESS;       /* FP64_UTIL */
        metric->value = metric->id < 20 ? metric->id : 2.0;              /* %, else MiB/s */
    }
    return SUCCESS;
}
