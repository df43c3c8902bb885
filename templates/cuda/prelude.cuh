// What generated kernels call. No header of CUDA's is needed, so that NVRTC compiles this as it is.
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif
#define uchar unsigned char
#define ushort unsigned short
#define uint unsigned int
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double(0x7fffffffffffffffLL)

// float16, as far as kernels need it: they compute in float32, and round once.
struct half {
  unsigned short bits;
  half() = default;
  __device__ __forceinline__ half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ __forceinline__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};

// What TMA is told of a tensor, under the name that cuda.h has for it.
struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};

// The same bits as another type.
template <typename To, typename From>
__device__ __forceinline__ To opsgen_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To found;
  memcpy(&found, &value, sizeof(To));
  return found;
}

// The larger and the smaller of two numbers; NaN if one is NaN.
__device__ __forceinline__ float opsgen_maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float opsgen_minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ double opsgen_maximum(double a, double b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ double opsgen_minimum(double a, double b) { return a < b || a != a ? a : b; }

// 1 / (1 + e^-x), as e^min(x, 0) / (1 + e^-|x|), which keeps its relative accuracy down to denormal results.
__device__ __forceinline__ float opsgen_sigmoid(float x) {
  float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
__device__ __forceinline__ double opsgen_sigmoid(double x) {
  double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

// Two roundings; rsqrtf is an approximation.
__device__ __forceinline__ float opsgen_rsqrt(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ double opsgen_rsqrt(double x) { return 1.0 / sqrt(x); }

// Moves 16, 8, 4, 2 or 1 bytes at once; both addresses are multiples of that. (By memcpy: through pointers to vectors,
// nvcc 13.0 leaves arrays of narrower elements on the stack.)
#define OPSGEN_MOVE(bytes)                                                                            \
  __device__ __forceinline__ void opsgen_move##bytes(void* to, const void* from) {                     \
    memcpy(__builtin_assume_aligned(to, bytes), __builtin_assume_aligned(from, bytes), bytes);         \
  }
OPSGEN_MOVE(16)
OPSGEN_MOVE(8)
OPSGEN_MOVE(4)
OPSGEN_MOVE(2)
OPSGEN_MOVE(1)

__device__ __forceinline__ int64_t opsgen_address(const void* p) { return reinterpret_cast<int64_t>(p); }
__device__ __forceinline__ int64_t opsgen_blocks() { return gridDim.x; }

// The value of the thread of the warp whose number differs in the bits of `other`; all threads of the warp take part.
template <typename T>
__device__ __forceinline__ T opsgen_exchange(T value, int other) {
  return static_cast<T>(__shfl_xor_sync(0xffffffffu, value, other));
}

// d += a b on tensor cores, by all threads of a warp: 16 rows and 16 steps of a (four registers of a thread, two elements
// each), 16 steps and 8 columns of b (two registers), sums in float32.
#define OPSGEN_MMA(type, name)                                                                              \
  __device__ __forceinline__ void opsgen_mma_##type(float* d, const uint32_t* a, const uint32_t* b) {        \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0, %1, %2, %3}, "            \
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                             \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                        \
  }
OPSGEN_MMA(float16, "f16")
OPSGEN_MMA(bfloat16, "bf16")

// The value of the thread of the warp that is so many lanes below or above (of those without one, their own), and of a
// lane; all threads of the warp take part.
template <typename T>
__device__ __forceinline__ T opsgen_from_below(T value, int lanes) {
  return static_cast<T>(__shfl_up_sync(0xffffffffu, value, lanes));
}
template <typename T>
__device__ __forceinline__ T opsgen_from_above(T value, int lanes) {
  return static_cast<T>(__shfl_down_sync(0xffffffffu, value, lanes));
}
template <typename T>
__device__ __forceinline__ T opsgen_from_lane(T value, int lane) {
  return static_cast<T>(__shfl_sync(0xffffffffu, value, lane));
}

// Adds to an integer that other threads add to, too, and gives what it was before.
__device__ __forceinline__ int64_t opsgen_fetch_add(void* place, int64_t number) {
  return atomicAdd(static_cast<unsigned long long*>(place), static_cast<unsigned long long>(number));
}

// sum + the products of four 8-bit integers each; s: signed, u: unsigned.
#define OPSGEN_DP4A(name, types)                                                                      \
  __device__ __forceinline__ int32_t opsgen_dp4a_##name(int32_t sum, uint32_t a, uint32_t b) {        \
    int32_t y;                                                                                         \
    asm("dp4a." types " %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(sum));                       \
    return y;                                                                                          \
  }
OPSGEN_DP4A(ss, "s32.s32")
OPSGEN_DP4A(su, "s32.u32")
OPSGEN_DP4A(us, "u32.s32")
OPSGEN_DP4A(uu, "u32.u32")
