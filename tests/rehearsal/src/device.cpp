// What the runtime says of the device: one table for properties and attributes. Sizes are an H100's, whatever the
// compute capability; the name says that there is no GPU.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "rehearsal.h"

using namespace rehearsal;

namespace {
constexpr int kMultiprocessors = 132, kL2Bytes = 52428800, kThreads = 1024, kThreadsOfAMultiprocessor = 2048;
constexpr int kShared = 49152, kSharedOptin = 232448, kSharedOfAMultiprocessor = 233472, kRegisters = 65536;
constexpr int kGridX = 2147483647, kGridYZ = 65535, kBlockZ = 64, kBusBits = 5120;

CUresult not_here() { return CUDA_ERROR_NOT_SUPPORTED; }
}  // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : told(cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  snprintf(id, size, "0000:01:00.0");
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
  memset(found, 0, sizeof *found);
  strncpy(found->name, settings().name.c_str(), sizeof found->name - 1);
  for (int i = 0; i < 16; i++) found->uuid.bytes[i] = static_cast<char>(i + 1);  // the same in environment.py
  found->totalGlobalMem = settings().memory_bytes;
  found->major = settings().compute / 10;
  found->minor = settings().compute % 10;
  found->multiProcessorCount = kMultiprocessors;
  found->l2CacheSize = kL2Bytes;
  found->memoryBusWidth = kBusBits;
  found->warpSize = 32;
  found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = kThreads;
  found->maxThreadsDim[2] = kBlockZ;
  found->maxGridSize[0] = kGridX;
  found->maxGridSize[1] = found->maxGridSize[2] = kGridYZ;
  found->maxThreadsPerMultiProcessor = kThreadsOfAMultiprocessor;
  found->regsPerBlock = found->regsPerMultiprocessor = kRegisters;
  found->totalConstMem = 65536;
  found->sharedMemPerBlock = kShared;
  found->sharedMemPerBlockOptin = kSharedOptin;
  found->sharedMemPerMultiprocessor = kSharedOfAMultiprocessor;
  found->unifiedAddressing = found->concurrentKernels = found->cooperativeLaunch = found->managedMemory = 1;
  found->pciBusID = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = settings().compute / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = settings().compute % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrL2CacheSize: *value = kL2Bytes; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = kBusBits; break;
    case cudaDevAttrClockRate: *value = 1980000; break;        // kHz
    case cudaDevAttrMemoryClockRate: *value = 2619000; break;  // kHz
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = kThreads; break;
    case cudaDevAttrMaxBlockDimZ: *value = kBlockZ; break;
    case cudaDevAttrMaxGridDimX: *value = kGridX; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = kGridYZ; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = kThreadsOfAMultiprocessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = kRegisters; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kShared; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedOfAMultiprocessor; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

// The driver's functions by name, as torch and Transformer Engine ask for them; one that is not here answers so. The
// newest form of a function is the one with _v2 at its end.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
  if (!*function) *function = dlsym(RTLD_DEFAULT, name);
  if (!*function) *function = reinterpret_cast<void*>(not_here);
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}
