/* The load of NVML's stand-in (tests/support/fake_nvml): what the simulated device draws. And the questions that
 * torch's allocator asks NVML. */
#include <stddef.h>

#include "power.h"

enum { OK = 0, NOT_SUPPORTED = 3 };
static const double idle_watts = 90;

/* Microjoules of the bins, idle draw left out. */
static double drawn(uint64_t from, uint64_t to) {
  const uint32_t* bins = rehearsal_bins();
  double sum = 0;
  for (uint64_t bin = from; bins && bin < to; bin++)
    sum += __atomic_load_n(&bins[bin % REHEARSAL_BINS], __ATOMIC_RELAXED);
  return sum;
}

static uint64_t bin_of(double at) { return (uint64_t)(at / REHEARSAL_BIN_SECONDS); }

double fake_nvml_joules(double from, double to) {
  /* Asked for ever later ends of one beginning: what was added up once is kept. */
  static double kept_from = -1, kept;
  static uint64_t kept_to;
  if (from != kept_from || bin_of(to) < kept_to) {
    kept_from = from;
    kept_to = bin_of(from);
    kept = 0;
  }
  kept += drawn(kept_to, bin_of(to));
  kept_to = bin_of(to);
  return kept / 1e6 + idle_watts * (to - from);
}

double fake_nvml_watts(double from, double to) {
  return drawn(bin_of(from), bin_of(to)) / 1e6 / (to - from) + idle_watts;
}

int nvmlInitWithFlags(unsigned int flags);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device);

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  (void)id;
  return nvmlDeviceGetHandleByIndex_v2(0, device);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned int link, int* type) {
  (void)device, (void)link, (void)type;
  return NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned int link, void* info) {
  (void)device, (void)link, (void)info;
  return NOT_SUPPORTED;
}
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned int* count, void* infos) {
  (void)device, (void)infos;
  *count = 0;
  return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return OK;
}
