// NVRTC, which compiles to nothing, and cuDNN's handle. cuDNN's plans need a device: Transformer Engine finds none of
// its fused attentions, and attention runs unfused.
#include <nvrtc.h>
#include <stdlib.h>
#include <string.h>

namespace {
constexpr char kImage[] = "nil";  // what a compiled program is

nvrtcResult size_of_image(size_t* bytes) {
  *bytes = sizeof kImage;
  return NVRTC_SUCCESS;
}
nvrtcResult copy_image(char* to) {
  memcpy(to, kImage, sizeof kImage);
  return NVRTC_SUCCESS;
}
}  // namespace

extern "C" {
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int, const char* const*,
                               const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new char);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t* bytes) { return size_of_image(bytes); }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* to) { return copy_image(to); }
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t* bytes) { return size_of_image(bytes); }
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* to) { return copy_image(to); }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* bytes) {
  *bytes = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* to) {
  *to = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char* expression, const char** name) {
  *name = strdup(expression);
  return NVRTC_SUCCESS;
}

int cudnnCreate(void** handle) {
  *handle = calloc(1, 4096);
  return 0;
}
int cudnnDestroy(void* handle) {
  free(handle);
  return 0;
}
int cudnnSetStream(void*, void*) { return 0; }
const char* cudnnGetErrorString(int) { return "no cuDNN in a rehearsal"; }
}
