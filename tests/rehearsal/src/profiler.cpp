// CUPTI's activity records of all calls and jobs, written into the profiler's buffers: torch.profiler's traces are
// real.
#include <cupti.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <set>

#include "rehearsal.h"

#if CUDART_VERSION >= 13000
using ActivityKernel = CUpti_ActivityKernel10;
#else
using ActivityKernel = CUpti_ActivityKernel9;
#endif

namespace rehearsal {
namespace {
constexpr size_t kAlign = 8;
constexpr uint32_t kContext = 1, kStream = 7;

struct Buffer {
  uint8_t* at = nullptr;  // nullptr: none was asked for yet
  size_t bytes = 0, used = 0;
};

struct Profiler {
  bool on = false;
  Buffer buffer;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc clock = nullptr;  // the profiler's own, of unknown frequency
  double first = 0;
  uint64_t first_ticks = 0;
  std::set<std::string> names;  // records point to them
};

Profiler& profiler() {
  static auto& one = *new Profiler;
  return one;
}

// A moment of our clock on the profiler's; the frequency is that of both clocks since the profiler told of its own.
uint64_t timestamp(double when) {
  Profiler& p = profiler();
  if (!p.clock) return static_cast<uint64_t>(when * 1e9);
  double here = now();
  uint64_t ticks = p.clock();
  double hertz = (ticks - p.first_ticks) / (here - p.first);
  return ticks + static_cast<int64_t>((when - here) * hertz);
}

void hand_over() {
  Profiler& p = profiler();
  Buffer full = p.buffer;
  p.buffer = {};
  if (full.at) p.complete(nullptr, kStream, full.at, full.bytes, full.used);
}

size_t padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// A new record in the buffer; nullptr where nobody listens.
template <typename Record>
Record* add(CUpti_ActivityKind kind) {
  Profiler& p = profiler();
  size_t bytes = padded(sizeof(Record));
  if (!p.on || !p.request) return nullptr;
  if (p.buffer.at && p.buffer.used + bytes > p.buffer.bytes) hand_over();
  if (!p.buffer.at) {
    size_t most = 0;
    p.request(&p.buffer.at, &p.buffer.bytes, &most);
  }
  auto* record = reinterpret_cast<Record*>(p.buffer.at + p.buffer.used);
  p.buffer.used += bytes;
  memset(record, 0, sizeof(Record));
  record->kind = kind;
  return record;
}

size_t bytes_of(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return padded(sizeof(ActivityKernel));
    case CUPTI_ACTIVITY_KIND_MEMCPY: return padded(sizeof(CUpti_ActivityMemcpy6));
    case CUPTI_ACTIVITY_KIND_MEMSET: return padded(sizeof(CUpti_ActivityMemset4));
    default: return padded(sizeof(CUpti_ActivityAPI));
  }
}

struct Api {
  CUpti_ActivityKind kind;
  CUpti_CallbackId id;
};

Api api_of(Call call) {
  switch (call) {
    case Call::launch: return {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000};
    case Call::launch_ex: return {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060};
    case Call::driver_launch: return {CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel};
    case Call::driver_launch_ex: return {CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx};
    case Call::graph: return {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000};
    case Call::copy: return {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020};
    case Call::fill: break;
  }
  return {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020};
}

template <typename Record>
void fill(Record* record, double from, double to, unsigned correlation) {
  record->start = timestamp(from);
  record->end = timestamp(to);
  record->contextId = kContext;
  record->streamId = kStream;
  record->correlationId = correlation;
}

void record_kernel(const Job& job, double from, double to, unsigned correlation) {
  auto* record = add<ActivityKernel>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (!record) return;
  fill(record, from, to, correlation);
  record->name = profiler().names.insert(job.name).first->c_str();
  record->gridX = record->gridY = record->gridZ = record->blockY = record->blockZ = 1;
  record->blockX = 128;
  record->registersPerThread = 32;
}

void record_copy(const Job& job, double from, double to, unsigned correlation) {
  auto* record = add<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  if (!record) return;
  fill(record, from, to, correlation);
  record->copyKind = job.kind == Kind::to_device ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                     : job.kind == Kind::to_host ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                                 : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  record->bytes = job.bytes;
}

void record_fill(const Job& job, double from, double to, unsigned correlation) {
  auto* record = add<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  if (!record) return;
  fill(record, from, to, correlation);
  record->bytes = job.bytes;
}
}  // namespace

void record_call(Call call, double from, double to, unsigned correlation) {
  Lock lock(all());
  Api api = api_of(call);
  auto* record = add<CUpti_ActivityAPI>(api.kind);
  if (!record) return;
  record->cbid = api.id;
  record->start = timestamp(from);
  record->end = timestamp(to);
  record->processId = getpid();
  record->threadId = static_cast<uint32_t>(pthread_self());
  record->correlationId = correlation;
}

void record_job(const Job& job, double from, double to, unsigned correlation) {
  Lock lock(all());
  if (job.kind == Kind::kernel) return record_kernel(job, from, to, correlation);
  if (job.kind == Kind::fill) return record_fill(job, from, to, correlation);
  record_copy(job, from, to, correlation);
}

}  // namespace rehearsal

using namespace rehearsal;

extern "C" {
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  profiler().request = request;
  profiler().complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  profiler().clock = clock;
  profiler().first = now();
  profiler().first_ticks = clock();
  usleep(20000);  // so that the first frequency is good to some parts in a million
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) profiler().on = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) profiler().on = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  Lock lock(all());
  hand_over();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  uint8_t* next = *record ? reinterpret_cast<uint8_t*>(*record) + bytes_of(*record) : buffer;
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* count) {
  *count = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "an error that the rehearsal has no words for";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc, void*) {
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(8);
  return CUPTI_SUCCESS;
}

// Asked for, and without an effect here.
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t*) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) { return CUPTI_SUCCESS; }
CUptiResult cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableDomain(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) { return CUPTI_SUCCESS; }
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) { return CUPTI_SUCCESS; }
CUptiResult cuptiFinalize() { return CUPTI_SUCCESS; }
}
