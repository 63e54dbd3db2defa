// Memory: pages of the host that cost nothing until they are touched, within the size of the device.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "rehearsal.h"

namespace rehearsal {
namespace {
constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kCopied = size_t{4} << 20;  // more is not copied within the device: it holds no figures, only pages

struct Blocks {
  std::map<size_t, size_t> sizes;  // by address
  size_t used = 0;

  bool hold(size_t address) const {
    auto next = sizes.upper_bound(address);
    if (next == sizes.begin()) return false;
    --next;
    return address < next->first + next->second;
  }
};

Blocks& blocks(Place place) {
  static auto& host = *new Blocks;
  static auto& device = *new Blocks;
  return place == Place::host ? host : device;
}

cudaError_t release(void* pointer, Place place) {
  Lock lock(all());
  Blocks& known = blocks(place);
  auto found = known.sizes.find(reinterpret_cast<size_t>(pointer));
  if (found == known.sizes.end()) return cudaSuccess;
  munmap(pointer, found->second);
  known.used -= found->second;
  known.sizes.erase(found);
  return cudaSuccess;
}

size_t free_bytes() { return settings().memory_bytes - kContextBytes - blocks(Place::device).used; }

Job copy_job(const void* to, const void* from, size_t bytes) {
  bool to_device = place_of(to) == Place::device;
  bool from_device = place_of(from) == Place::device;
  Kind kind = to_device && from_device ? Kind::on_device : to_device ? Kind::to_device : Kind::to_host;
  return {"Memcpy", work_seconds(2.0 * bytes), kind, bytes};
}
}  // namespace

Place place_of(const void* pointer) {
  Lock lock(all());
  auto address = reinterpret_cast<size_t>(pointer);
  if (blocks(Place::device).hold(address)) return Place::device;
  return blocks(Place::host).hold(address) ? Place::host : Place::unknown;
}

cudaError_t allocate(void** pointer, size_t bytes, Place place) {
  Lock lock(all());
  *pointer = nullptr;
  bytes = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  if (place == Place::device && bytes > free_bytes()) return told(cudaErrorMemoryAllocation);
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return told(cudaErrorMemoryAllocation);
  blocks(place).sizes[reinterpret_cast<size_t>(made)] = bytes;
  blocks(place).used += bytes;
  *pointer = made;
  return told(cudaSuccess);
}

}  // namespace rehearsal

using namespace rehearsal;

extern "C" {
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (spoils_capture()) return told(cudaErrorStreamCaptureUnsupported);
  return allocate(pointer, bytes, Place::device);
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return allocate(pointer, bytes, Place::device);
}
cudaError_t cudaFree(void* pointer) { return release(pointer, Place::device); }
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return release(pointer, Place::device); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes, Place::host); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return allocate(pointer, bytes, Place::host); }
cudaError_t cudaFreeHost(void* pointer) { return release(pointer, Place::host); }
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Lock lock(all());
  *free = free_bytes();
  *total = settings().memory_bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
  Place place = place_of(pointer);
  memset(found, 0, sizeof *found);
  found->type = place == Place::device ? cudaMemoryTypeDevice
                : place == Place::host ? cudaMemoryTypeHost
                                       : cudaMemoryTypeUnregistered;
  if (place != Place::unknown) found->devicePointer = const_cast<void*>(pointer);
  if (place == Place::host) found->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Job job = copy_job(to, from, bytes);
  bool waits = kind == cudaMemcpyDeviceToHost && place_of(to) != Place::host;  // memory that is not pinned
  if (waits && spoils_capture(stream)) return told(cudaErrorStreamCaptureUnsupported);
  if (job.kind != Kind::on_device || bytes <= kCopied) memmove(to, from, bytes);
  cudaError_t error = launch(job, stream, Call::copy);
  return waits && !error ? finish() : error;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (spoils_capture()) return told(cudaErrorStreamCaptureUnsupported);
  memmove(to, from, bytes);
  return finish();
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  for (size_t row = 0; row < height; row++)
    memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  return launch(copy_job(to, from, width * height), stream, Call::copy);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  memset(to, value, std::min(bytes, kCopied));
  return told(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  memset(to, value, std::min(bytes, kCopied));
  return launch({"Memset", work_seconds(bytes), Kind::fill, bytes}, stream, Call::fill);
}

// Variables of kernels: each has memory of its own, which nothing reads.
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  static auto& known = *new std::unordered_map<const void*, void*>;
  Lock lock(all());
  void*& found = known[symbol];
  cudaError_t error = found ? cudaSuccess : allocate(&found, kPage, Place::device);
  *pointer = found;
  return error;
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return told(cudaSuccess); }

// Pools: there, and empty.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(1);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<unsigned long long*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

// No memory and no event is shared between processes.
cudaError_t cudaIpcCloseMemHandle(void*) { return told(cudaErrorNotSupported); }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return told(cudaErrorNotSupported); }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return told(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) { return told(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return told(cudaErrorNotSupported); }
}
