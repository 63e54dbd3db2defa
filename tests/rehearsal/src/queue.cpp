// The device's one queue, its clock, and the error that breaks a context.
#include <cxxabi.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "rehearsal.h"

namespace rehearsal {
namespace {
constexpr double kStartSeconds = 2e-6;      // of any kernel
constexpr double kBytesPerSecond = 2.5e12;  // of memory
constexpr double kCallSeconds = 2e-6;       // of a launch, on the host
double ready = 0;                           // when the queue is empty
bool context_broken = false;
thread_local cudaError_t last = cudaSuccess;

std::string variable(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value ? value : otherwise;
}
}  // namespace

const Settings& settings() {
  static const Settings& made = *new Settings{
      static_cast<int>(atof(variable("CUDA_REHEARSAL_COMPUTE", "9.0").c_str()) * 10 + 0.5),
      static_cast<size_t>(atof(variable("CUDA_REHEARSAL_MEMORY_GIB", "80").c_str()) * (1 << 30)),
      variable("CUDA_REHEARSAL_NAME", "Rehearsal (no GPU)"),
      variable("CUDA_REHEARSAL_FAIL", ""),
  };
  return made;
}

std::recursive_mutex& all() {
  static auto& lock = *new std::recursive_mutex;  // threads may outlive main
  return lock;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

double work_seconds(double bytes) { return kStartSeconds + bytes / kBytesPerSecond; }

double work_seconds(dim3 g, dim3 b) { return work_seconds(16.0 * g.x * g.y * g.z * b.x * b.y * b.z); }

std::string demangled(const char* name) {
  int status;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string found = plain ? plain : name;
  free(plain);
  return found;
}

void wait_until(double when) {
  constexpr double kSpin = 5e-5;  // a sleep ends late by about that much
  double left = when - now();
  if (left > 2 * kSpin) usleep(static_cast<useconds_t>((left - kSpin) * 1e6));
  while (now() < when) {
  }
}

double idle_at() {
  Lock lock(all());
  return std::max(ready, now());
}

cudaError_t finish() {
  wait_until(idle_at());
  return told(cudaSuccess);
}

bool broken() {
  Lock lock(all());
  return context_broken;
}

cudaError_t told(cudaError_t error) {
  if (broken()) error = cudaErrorIllegalAddress;
  if (error) last = error;
  return error;
}

unsigned next_correlation() {
  static unsigned correlation = 0;
  Lock lock(all());
  return ++correlation;
}

double enqueue(const Job& job, double not_before, unsigned correlation) {
  Lock lock(all());
  double start = std::max(not_before, idle_at());
  ready = start + job.seconds;
  draw(start, ready, job.watts);
  record_job(job, start, ready, correlation);
  const std::string& fail = settings().fail;
  if (!fail.empty() && job.name.find(fail) != std::string::npos) context_broken = true;
  return ready;
}

cudaError_t launch(Job job, cudaStream_t stream, Call call) {
  Lock lock(all());
  if (broken()) return told(cudaErrorIllegalAddress);
  unsigned correlation = next_correlation();
  double called = now();
  record_call(call, called - kCallSeconds, called, correlation);
  if (!captured(stream, job)) enqueue(job, called, correlation);
  return cudaSuccess;
}

}  // namespace rehearsal

using namespace rehearsal;

extern "C" {
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    default: return "cudaErrorOfTheRehearsal";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    default: return "an error that the rehearsal has no words for";
  }
}

cudaError_t cudaGetLastError() {
  cudaError_t error = cudaPeekAtLastError();
  last = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return broken() ? cudaErrorIllegalAddress : last; }

cudaError_t cudaDeviceSynchronize() {
  if (spoils_capture()) return told(cudaErrorStreamCaptureUnsupported);
  return finish();
}
}
