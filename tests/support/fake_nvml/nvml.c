/* A small libnvidia-ml.so.1 for tests: it answers the calls that the agent makes, from a script.
 *
 * FAKE_NVML_SCRIPT names a text file, one word and its values a line; `gpu UUID` begins a GPU and what follows is its:
 *
 *   driver 580.95.05          version of the driver
 *   init_error 9              nvmlInit answers this error
 *   gpu GPU-0                 a new GPU
 *   name NVIDIA H200
 *   serial 1650A              GPUs with the same serial sit on the same module
 *   limit_mw 700000           enforced power limit
 *   memory TOTAL USED         bytes
 *   reserve BYTES             the driver's own, which only the first call counts as used
 *   utilisation PERCENT
 *   mig 1 | remap_pending 1 | remap_failure 1
 *   ecc_volatile N | ecc_aggregate N      uncorrectable errors
 *   power SECONDS WATTS       a corner of the load's curve: linear between corners, flat before and after
 *   module_extra WATTS        what a module draws beside its GPUs (the CPU)
 *   update_ms 100             both sensors are renewed this often
 *   lag_ms 0                  the counter is that late
 *   counter_start_mj N        the counter at time 0
 *   counter_reset SECONDS     the counter begins anew at 0
 *   throttle FIELD FROM TO    the counter of the field runs between these seconds
 *   reasons MASK FROM TO      so do the clocks' event reasons
 *   temperature C | sm_clock MHZ
 *   lost SECONDS              from then on every call answers GPU_IS_LOST
 *   unsupported WORD          one or more of: energy power module throttle reasons mig remap ecc memory second_call
 *                             utilisation limit serial
 *
 * Time is CLOCK_MONOTONIC since nvmlInit, unless a test sets it with fake_nvml_set_seconds. Compiled with
 * FAKE_NVML_LOAD_ELSEWHERE the load comes from another file, not from `power`.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DATA = 21, LOST = 15 };
enum { MAX_GPUS = 16, MAX_POINTS = 64, MAX_SPANS = 16, FIELD_POWER_INSTANT = 186, SCOPE_GPU = 0, SCOPE_MODULE = 1 };

typedef struct { double at, watts; } point_t;
typedef struct { unsigned long long what; double from, to; } span_t;
typedef struct {
    char uuid[96], name[96], serial[30], unsupported[256];
    unsigned int limit_mw, utilisation, mig, remap_pending, remap_failure, temperature, sm_clock;
    unsigned long long memory_total, memory_used, reserve, ecc_volatile, ecc_aggregate, counter_start_mj;
    double module_extra, update, lag, lost, counter_reset;
    point_t points[MAX_POINTS];
    span_t throttles[MAX_SPANS], reasons[MAX_SPANS];
    int n_points, n_throttles, n_reasons;
} gpu_t;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, result;
    union { double d; uint32_t u; uint64_t ull; } value;
} field_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned int gpu, memory; } utilisation_t;

static gpu_t gpus[MAX_GPUS];
static int n_gpus, ready, init_error;
static char driver[80] = "580.95.05";
static double zero, set_seconds = -1;

static double monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

void fake_nvml_set_seconds(double seconds) { set_seconds = seconds; }
/* The same by a moment of CLOCK_MONOTONIC. */
void fake_nvml_set_moment(double moment) { set_seconds = fmax(0, moment - zero); }

static double seconds(void) { return set_seconds >= 0 ? set_seconds : monotonic() - zero; }

#ifdef FAKE_NVML_LOAD_ELSEWHERE
/* The load is not the script's but that of who is linked in: joules and mean watts between two moments of
 * CLOCK_MONOTONIC. All GPUs have the same. */
double fake_nvml_joules(double from, double to);
double fake_nvml_watts(double from, double to);

static double watts_at(const gpu_t *g, double t) {
    (void)g;
    return fake_nvml_watts(zero + t - 0.02, zero + t);
}

static double joules_until(const gpu_t *g, double t) {
    (void)g;
    return fake_nvml_joules(zero, zero + t);
}
#else
static double watts_at(const gpu_t *g, double t) {
    if (!g->n_points) return 0;
    if (t <= g->points[0].at) return g->points[0].watts;
    for (int i = 1; i < g->n_points; i++) {
        point_t a = g->points[i - 1], b = g->points[i];
        if (t < b.at) return a.watts + (b.watts - a.watts) * (t - a.at) / (b.at - a.at);
    }
    return g->points[g->n_points - 1].watts;
}

/* Joules from 0 to t: trapezoids between the corners, so exact for the piecewise linear curve. */
static double joules_until(const gpu_t *g, double t) {
    double sum = 0, at = 0;
    for (int i = 0; i <= g->n_points; i++) {
        double next = i < g->n_points && g->points[i].at < t ? g->points[i].at : t;
        if (next <= at) continue;
        /* the left value just after a jump: two corners at one time */
        sum += (next - at) * (watts_at(g, at) + watts_at(g, nexttoward(next, at))) / 2;
        at = next;
    }
    return sum;
}
#endif

static double last_update(const gpu_t *g, double t) { return g->update > 0 ? floor(t / g->update + 1e-9) * g->update : t; }

static int lacks(const gpu_t *g, const char *word) { return strstr(g->unsupported, word) != NULL; }

static int answerable(const gpu_t *g, const char *word) {
    if (!ready) return UNINITIALIZED;
    if (!g) return INVALID;
    if (g->lost >= 0 && seconds() >= g->lost) return LOST;
    return lacks(g, word) ? NOT_SUPPORTED : OK;
}

/* Copies a word of the script; one that does not fit is a mistake in the test. */
static void keep(char *to, size_t size, const char *from) {
    if (strlen(from) >= size) { fprintf(stderr, "fake nvml: too long: %s\n", from); abort(); }
    memcpy(to, from, strlen(from) + 1);
}

static gpu_t *begin_gpu(const char *uuid) {
    if (n_gpus == MAX_GPUS) { fprintf(stderr, "fake nvml: more than %d GPUs\n", MAX_GPUS); abort(); }
    gpu_t *g = &gpus[n_gpus++];
    memset(g, 0, sizeof *g);
    keep(g->uuid, sizeof g->uuid, uuid);
    strcpy(g->name, "NVIDIA H200");
    snprintf(g->serial, sizeof g->serial, "S%d", n_gpus);
    g->limit_mw = 700000;
    g->memory_total = 150754820096ULL;
    g->memory_used = 500000000ULL;
    g->update = 0.1;
    g->lost = g->counter_reset = -1;
    g->temperature = 40;
    g->sm_clock = 1980;
    return g;
}

static void add_span(span_t *spans, int *n, const char *rest) {
    span_t s;
    if (*n == MAX_SPANS || sscanf(rest, "%lli %lf %lf", (long long *)&s.what, &s.from, &s.to) != 3) abort();
    spans[(*n)++] = s;
}

/* One line of a GPU; an unknown word ends the test program loudly, so that no script is half understood. */
static void gpu_line(gpu_t *g, const char *word, const char *rest) {
#define NUMBER(key, field, convert) if (!strcmp(word, key)) { g->field = convert; return; }
    unsigned long long whole = strtoull(rest, NULL, 0);
    double real = atof(rest);
    NUMBER("limit_mw", limit_mw, whole) NUMBER("utilisation", utilisation, whole) NUMBER("mig", mig, whole)
    NUMBER("remap_pending", remap_pending, whole) NUMBER("remap_failure", remap_failure, whole)
    NUMBER("ecc_volatile", ecc_volatile, whole) NUMBER("ecc_aggregate", ecc_aggregate, whole)
    NUMBER("counter_start_mj", counter_start_mj, whole) NUMBER("module_extra", module_extra, real)
    NUMBER("update_ms", update, real / 1e3) NUMBER("lag_ms", lag, real / 1e3) NUMBER("lost", lost, real)
    NUMBER("counter_reset", counter_reset, real) NUMBER("temperature", temperature, whole)
    NUMBER("sm_clock", sm_clock, whole)
    if (!strcmp(word, "name")) keep(g->name, sizeof g->name, rest);
    else if (!strcmp(word, "serial")) keep(g->serial, sizeof g->serial, rest);
    else if (!strcmp(word, "unsupported")) keep(g->unsupported + strlen(g->unsupported), sizeof g->unsupported - strlen(g->unsupported), rest);
    else if (!strcmp(word, "memory")) sscanf(rest, "%llu %llu", &g->memory_total, &g->memory_used);
    else if (!strcmp(word, "reserve")) sscanf(rest, "%llu", &g->reserve);
    else if (!strcmp(word, "throttle")) add_span(g->throttles, &g->n_throttles, rest);
    else if (!strcmp(word, "reasons")) add_span(g->reasons, &g->n_reasons, rest);
    else if (!strcmp(word, "power") && g->n_points < MAX_POINTS) {
        point_t *p = &g->points[g->n_points++];
        sscanf(rest, "%lf %lf", &p->at, &p->watts);
    } else { fprintf(stderr, "fake nvml: can't read: %s %s\n", word, rest); abort(); }
}

static void read_script(void) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], word[32], rest[224];
    gpu_t *g = NULL;
    if (!file) { fprintf(stderr, "fake nvml: FAKE_NVML_SCRIPT names no readable file\n"); abort(); }
    n_gpus = init_error = 0;
    while (fgets(line, sizeof line, file)) {
        rest[0] = 0;
        if (sscanf(line, "%31s %223[^\n]", word, rest) < 1 || word[0] == '#') continue;
        if (!strcmp(word, "gpu")) g = begin_gpu(rest);
        else if (!strcmp(word, "driver")) keep(driver, sizeof driver, rest);
        else if (!strcmp(word, "init_error")) init_error = atoi(rest);
        else if (g) gpu_line(g, word, rest);
        else { fprintf(stderr, "fake nvml: %s before any gpu\n", word); abort(); }
    }
    fclose(file);
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!ready) { read_script(); zero = monotonic(); }
    if (init_error) return init_error;
    ready++;
    return OK;
}

int nvmlShutdown(void) {
    if (!ready) return UNINITIALIZED;
    ready--;
    return OK;
}

const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "fake NVML error"; }

static int text(const char *from, char *to, unsigned int size) {
    if (strlen(from) >= size) return TOO_SMALL;
    strcpy(to, from);
    return OK;
}

int nvmlSystemGetDriverVersion(char *to, unsigned int size) { return ready ? text(driver, to, size) : UNINITIALIZED; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = n_gpus;
    return ready ? OK : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu_t **g) {
    if ((int)index >= n_gpus) return INVALID;
    *g = &gpus[index];
    return answerable(*g, "handle");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **g) {
    for (int i = 0; i < n_gpus; i++)
        if (!strcmp(gpus[i].uuid, uuid)) { *g = &gpus[i]; return answerable(*g, "handle"); }
    return NOT_FOUND;
}

#define ANSWER(word, act) { int wrong = answerable(g, word); if (wrong) return wrong; act; return OK; }

int nvmlDeviceGetUUID(gpu_t *g, char *to, unsigned int size) ANSWER("uuid", return text(g->uuid, to, size))
int nvmlDeviceGetName(gpu_t *g, char *to, unsigned int size) ANSWER("name", return text(g->name, to, size))
int nvmlDeviceGetSerial(gpu_t *g, char *to, unsigned int size) ANSWER("serial", return text(g->serial, to, size))
int nvmlDeviceGetEnforcedPowerLimit(gpu_t *g, unsigned int *mw) ANSWER("limit", *mw = g->limit_mw)
int nvmlDeviceGetMigMode(gpu_t *g, unsigned int *now, unsigned int *next) ANSWER("mig", *now = *next = g->mig)
int nvmlDeviceGetMemoryInfo(gpu_t *g, memory_t *m)
    ANSWER("memory", (*m = (memory_t){g->memory_total, g->memory_total - g->memory_used - g->reserve, g->memory_used + g->reserve}))
int nvmlDeviceGetMemoryInfo_v2(gpu_t *g, memory_v2_t *m)
    ANSWER(lacks(g, "memory") ? "memory" : "second_call", m->total = g->memory_total; m->reserved = g->reserve; m->used = g->memory_used;
           m->free = m->total - m->used - m->reserved)
int nvmlDeviceGetUtilizationRates(gpu_t *g, utilisation_t *u)
    ANSWER("utilisation", u->gpu = g->utilisation; u->memory = 0)
int nvmlDeviceGetTemperature(gpu_t *g, int sensor, unsigned int *c) ANSWER("temperature", (void)sensor; *c = g->temperature)
int nvmlDeviceGetClockInfo(gpu_t *g, int type, unsigned int *mhz) ANSWER("clock", (void)type; *mhz = g->sm_clock)
int nvmlDeviceGetRemappedRows(gpu_t *g, unsigned int *fixed, unsigned int *lost, unsigned int *pending, unsigned int *failed)
    ANSWER("remap", *fixed = *lost = 0; *pending = g->remap_pending; *failed = g->remap_failure)
int nvmlDeviceGetTotalEccErrors(gpu_t *g, int kind, int counter, unsigned long long *n)
    ANSWER("ecc", *n = kind == 0 ? 0 : counter == 0 ? g->ecc_volatile : g->ecc_aggregate)

int nvmlDeviceGetTotalEnergyConsumption(gpu_t *g, unsigned long long *mj) {
    int wrong = answerable(g, "energy");
    if (wrong) return wrong;
    double at = last_update(g, fmax(0, seconds() - g->lag));
    int anew = g->counter_reset >= 0 && at >= g->counter_reset;
    double joules = joules_until(g, at) - (anew ? joules_until(g, g->counter_reset) : 0);
    *mj = (anew ? 0 : g->counter_start_mj) + llround(joules * 1e3);
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(gpu_t *g, unsigned long long *mask) {
    int wrong = answerable(g, "reasons");
    if (wrong) return wrong;
    *mask = 0;
    for (int i = 0; i < g->n_reasons; i++)
        if (g->reasons[i].from <= seconds() && seconds() < g->reasons[i].to) *mask |= g->reasons[i].what;
    return OK;
}

static int power_field(const gpu_t *g, field_t *f) {
    double at = last_update(g, seconds()), watts = 0;
    if (f->scope > SCOPE_MODULE || lacks(g, f->scope == SCOPE_GPU ? "power" : "module")) return NOT_SUPPORTED;
    if (f->scope == SCOPE_GPU) watts = watts_at(g, at);
    else
        for (int i = 0; i < n_gpus; i++)
            if (!strcmp(gpus[i].serial, g->serial)) watts += watts_at(&gpus[i], at) + gpus[i].module_extra;
    f->type = 1;
    f->value.u = (uint32_t)llround(watts * 1e3);
    return OK;
}

static int throttle_field(const gpu_t *g, field_t *f) {
    double held = 0;
    if (lacks(g, "throttle")) return NOT_SUPPORTED;
    for (int i = 0; i < g->n_throttles; i++)
        if (g->throttles[i].what == f->field)
            held += fmax(0, fmin(seconds(), g->throttles[i].to) - g->throttles[i].from);
    f->type = 3;
    f->value.ull = (uint64_t)llround(held * 1e9);
    return OK;
}

int nvmlDeviceGetFieldValues(gpu_t *g, int n, field_t *fields) {
    int wrong = answerable(g, "fields");
    for (int i = 0; !wrong && i < n; i++) {
        field_t *f = &fields[i];
        int counter = f->field == 74 || (f->field >= 269 && f->field <= 271);
        f->result = f->field == FIELD_POWER_INSTANT ? power_field(g, f) : counter ? throttle_field(g, f) : NOT_SUPPORTED;
    }
    return wrong;
}
