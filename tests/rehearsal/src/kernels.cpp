// Kernels that a library brings along: they are known by name, and a launch is a job as long as its threads say.
#include <string.h>

#include <unordered_map>
#include <vector>

#include "rehearsal.h"

using namespace rehearsal;

namespace {
std::unordered_map<const void*, std::string>& names() {
  static auto& known = *new std::unordered_map<const void*, std::string>;
  return known;
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, cudaStream_t stream, Call call) {
  Lock lock(all());
  auto found = names().find(function);
  std::string name = found == names().end() ? "unknown_kernel" : demangled(found->second.c_str());
  return launch({name, work_seconds(grid, block)}, stream, call);
}
}  // namespace

extern "C" {
// What nvcc writes into every library: it registers its kernels while it is loaded.
void** __cudaRegisterFatBinary(void*) {
  static void* handle[2];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Lock lock(all());
  names()[function] = name;
}

// ... and what it writes around every <<<launch>>>.
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t, cudaStream_t stream) {
  return launch_kernel(kernel, grid, block, stream, Call::launch);
}

#if CUDART_VERSION < 13000
// What nvcc wrote before CUDA 13.
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t, cudaStream_t stream) {
  return launch_kernel(function, grid, block, stream, Call::launch);
}
#endif

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function, void**) {
  return launch_kernel(function, how->gridDim, how->blockDim, how->stream, Call::launch_ex);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024;
  found->binaryVersion = found->ptxVersion = settings().compute;
  found->numRegs = 32;
  found->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*, int, size_t, unsigned) {
  *count = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void*, const cudaLaunchConfig_t*) {
  *count = 16;
  return cudaSuccess;
}
}
