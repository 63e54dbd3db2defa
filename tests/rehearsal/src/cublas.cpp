// GEMMs of cuBLAS and cuBLASLt: a kernel whose name tells the precision, as long as its FLOPs take at a made-up rate.
// Layouts and descriptors are the real library's: it needs no device for them.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

#include <string>

#include "rehearsal.h"

using namespace rehearsal;

namespace {
struct Gemm {
  const char* hopper;     // kernel's name, in the way of the real ones of compute capability 9.0
  const char* blackwell;  // ... and 10.0
  double flops_per_second, watts;
};
constexpr Gemm kTf32{"sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", 60e12, 300};
constexpr Gemm kBf16{"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNN", "nvjet_sm100_tst_256x128_64x4_1x2_2cta_h_bz_TNN",
                     700e12, 470};
constexpr Gemm kFp8{"nvjet_sm90_qqtst_128x128_128x6_2x1_h_bz_TNT", "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_h_bz_TNT",
                    1400e12, 430};
constexpr Gemm kFp8Block{"nvjet_sm90_qqtst_128x64_128x7_2x1_v_bz_Avec128_Bblk128_TNT",
                         "nvjet_sm100_qqtst_128x64_128x7_2x1_v_bz_Avec128_Bblk128_TNT", 1300e12, 430};
constexpr Gemm kMxfp8{"", "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_Avec32UE8M0_Bvec32UE8M0_TNT", 1400e12, 430};
constexpr Gemm kNvfp4{"", "nvjet_sm100_ootst_128x256_256x4_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT", 2800e12, 430};

const Gemm* gemm_of(cudaDataType_t type, int scale_mode) {
  switch (scale_mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0: return &kMxfp8;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3: return &kNvfp4;
#if CUDART_VERSION >= 12090
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F: return &kFp8Block;
#endif
    default: break;
  }
  if (type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2) return &kFp8;
  return type == CUDA_R_32F ? &kTf32 : &kBf16;
}

// With CUDA_REHEARSAL_SHAPES a kernel's name ends with the product's two sides and what is summed over: " 64x32x128".
std::string with_shape(const char* name, double m, double n, double k) {
  static const bool on = getenv("CUDA_REHEARSAL_SHAPES") != nullptr;
  if (!on) return name;
  return std::string(name) + ' ' + std::to_string(static_cast<long long>(m)) + 'x' +
         std::to_string(static_cast<long long>(n)) + 'x' + std::to_string(static_cast<long long>(k));
}

cublasStatus_t multiply(const Gemm* gemm, double m, double n, double k, double batches, cudaStream_t stream,
                        Call call) {
  const char* name = settings().compute >= 100 ? gemm->blackwell : gemm->hopper;
  if (!*name) return CUBLAS_STATUS_NOT_SUPPORTED;
  double flops = 2 * m * n * k * batches;
  Job job{with_shape(name, m, n, k), work_seconds(0.0) + flops / gemm->flops_per_second, Kind::kernel, 0, gemm->watts};
  return launch(job, stream, call) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cudaStream_t& stream_of(cublasHandle_t handle) { return *reinterpret_cast<cudaStream_t*>(handle); }

cublasStatus_t multiply(cublasHandle_t handle, cudaDataType_t type, double m, double n, double k, double batches) {
  return multiply(gemm_of(type, 0), m, n, k, batches, stream_of(handle), Call::launch);
}

template <typename T>
T layout(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t what) {
  T value{};
  cublasLtMatrixLayoutGetAttribute(of, what, &value, sizeof value, nullptr);
  return value;
}

int32_t description(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t what) {
  int32_t value = 0;
  cublasLtMatmulDescGetAttribute(of, what, &value, sizeof value, nullptr);
  return value;
}

// With CUDA_REHEARSAL_COUNT the first number of a product, in FP32 or BF16, is 1: what GEMMs add up counts them.
void count(cublasLtMatrixLayout_t of, void* d, const void* beta) {
  static const bool on = getenv("CUDA_REHEARSAL_COUNT") != nullptr;
  if (!on || !d) return;
  float kept = beta ? *static_cast<const float*>(beta) : 0.0F;
  auto type = static_cast<cudaDataType_t>(layout<uint32_t>(of, CUBLASLT_MATRIX_LAYOUT_TYPE));
  if (type == CUDA_R_32F) {
    auto* first = static_cast<float*>(d);
    *first = 1.0F + (kept != 0.0F ? kept * *first : 0.0F);
  } else if (type == CUDA_R_16BF) {
    auto* first = static_cast<uint16_t*>(d);
    uint32_t bits = uint32_t{*first} << 16;
    float before;
    memcpy(&before, &bits, sizeof before);
    float sum = 1.0F + (kept != 0.0F ? kept * before : 0.0F);
    memcpy(&bits, &sum, sizeof bits);
    *first = static_cast<uint16_t>(bits >> 16);
  }
}

constexpr size_t kHandleBytes = 4096;

cublasStatus_t dot(cublasHandle_t handle) {
  Job job{"dot_kernel", work_seconds(0.0)};
  return launch(job, stream_of(handle), Call::launch) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}  // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = static_cast<cublasLtHandle_t>(calloc(1, kHandleBytes));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* found,
                                              int* count) {
  memset(found, 0, sizeof *found);
  found->state = CUBLAS_STATUS_SUCCESS;
  found->wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, size_t bytes, size_t* written) {
  memset(value, 0, bytes);
  if (written) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void*, const void*,
                              cublasLtMatrixLayout_t a, const void*, cublasLtMatrixLayout_t, const void* beta,
                              const void*, cublasLtMatrixLayout_t, void* out, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  count(d, out, beta);
  auto type = static_cast<cudaDataType_t>(layout<uint32_t>(a, CUBLASLT_MATRIX_LAYOUT_TYPE));
  bool transposed = description(how, CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N;
  auto k = layout<uint64_t>(a, transposed ? CUBLASLT_MATRIX_LAYOUT_ROWS : CUBLASLT_MATRIX_LAYOUT_COLS);
  double m = layout<uint64_t>(d, CUBLASLT_MATRIX_LAYOUT_ROWS), n = layout<uint64_t>(d, CUBLASLT_MATRIX_LAYOUT_COLS);
  int32_t scales = description(how, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  return multiply(gemm_of(type, scales), m, n, k, 1, stream, Call::launch_ex);
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = static_cast<cublasHandle_t>(calloc(1, kHandleBytes));  // begins with its stream
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  stream_of(handle) = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                            const void*, const void*, cudaDataType type, int, const void*, cudaDataType, int,
                            const void*, void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(handle, type, m, n, k, 1);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n,
                                          int k, const void*, const void*, cudaDataType type, int, long long,
                                          const void*, cudaDataType, int, long long, const void*, void*, cudaDataType,
                                          int, long long, int batches, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(handle, type, m, n, k, batches);
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                              const float*, const float*, int, const float*, int, const float*, float*, int) {
  return multiply(handle, CUDA_R_32F, m, n, k, 1);
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n,
                                         int k, const float*, const float*, int, long long, const float*, int,
                                         long long, const float*, float*, int, long long, int batches) {
  return multiply(handle, CUDA_R_32F, m, n, k, batches);
}
cublasStatus_t cublasDotEx(cublasHandle_t handle, int, const void*, cudaDataType, int, const void*, cudaDataType, int,
                           void*, cudaDataType, cudaDataType) {
  return dot(handle);
}
cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int, const float*, int, const float*, int, float*) {
  return dot(handle);
}
}
