// What the parts of the CUDA runtime without a device share.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#if CUDART_VERSION < 12080
#error "The rehearsal needs the headers of CUDA 12.8 or newer: signatures of older ones differ."
#endif

#include <cstddef>
#include <mutex>
#include <string>

namespace rehearsal {

// What the rehearsal's environment says of the device; see environment.py.
struct Settings {
  int compute;          // 90 is compute capability 9.0
  size_t memory_bytes;  // of the whole device
  std::string name;     // says that there is no GPU
  std::string fail;     // a kernel whose name holds this breaks the context; empty: none
};
const Settings& settings();

constexpr size_t kContextBytes = size_t{600} << 20;  // what driver and context take of the memory
constexpr int kCudaVersion = CUDART_VERSION < 13000 ? CUDART_VERSION : 13000;

using Lock = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex& all();  // one lock over all state: nothing here is worth a finer one

double now();                         // CLOCK_MONOTONIC, seconds
double work_seconds(double bytes);    // of a kernel that reads and writes so much, beside its start
double work_seconds(dim3 g, dim3 b);  // the same, at 16 bytes a thread
std::string demangled(const char* name);

enum class Kind { kernel, to_device, to_host, on_device, fill };
enum class Call { launch, launch_ex, driver_launch, driver_launch_ex, graph, copy, fill };

// Something that the device does; its name is what a profiler shows of a kernel.
struct Job {
  std::string name;
  double seconds;
  Kind kind = Kind::kernel;
  size_t bytes = 0;
  double watts = 300;  // beside the idle draw
};

// The device does one thing after the other, whatever the stream: `launch` puts a job behind all others, or into the
// graph that the stream is captured into. After the kernel that is to fail every call answers cudaErrorIllegalAddress,
// as after a real one: the context is worth nothing.
cudaError_t launch(Job job, cudaStream_t stream, Call call);
double enqueue(const Job& job, double not_before, unsigned correlation);  // its end
unsigned next_correlation();
double idle_at();      // when everything that was launched is done, at the earliest now
cudaError_t finish();  // waits for that
void wait_until(double when);
bool broken();
cudaError_t told(cudaError_t error);  // `error` (or the broken context's), kept for cudaGetLastError

// Memory: the host's, taken when it is touched.
enum class Place { unknown, host, device };
Place place_of(const void* pointer);
cudaError_t allocate(void** pointer, size_t bytes, Place place);

// Captures; see graphs.cpp.
bool captured(cudaStream_t stream, const Job& job);  // true: the job is in the graph, and must not run
bool capturing(cudaStream_t stream);
bool spoils_capture();                     // of a call that no capture allows: whether there is one, which is then lost
bool spoils_capture(cudaStream_t stream);  // the same where only a capture of this stream forbids it

// Power and the profiler's records; each is told of all jobs.
void draw(double from, double to, double watts);
void record_call(Call call, double from, double to, unsigned correlation);
void record_job(const Job& job, double from, double to, unsigned correlation);

}  // namespace rehearsal
