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

// bfloat16, likewise, as its bits: rounded to nearest even, NaN to a NaN.
__device__ __forceinline__ ushort opsgen_bfloat16(float x) {
  ushort bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// The bfloat16 of that number among those in the words.
__device__ __forceinline__ float opsgen_of_words(const uint* words, int64_t number) {
  uint word = words[number >> 1];
  return __uint_as_float(number & 1 ? word & 0xffff0000u : word << 16);
}

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

// All bits of the product of the lower halves, which are unsigned. Not by asm, of which nvcc keeps every copy.
__device__ __forceinline__ int64_t opsgen_wide_product(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)(uint)a * (uint)b);
}

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

// Functions for results that are rounded to a half type; schedules/cuda/half_forms.py says how near they are.
__device__ __forceinline__ float opsgen_power_of_two(float x) {  // flushes results below 2^-126 to 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float opsgen_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float opsgen_half_exp(float x) { return opsgen_power_of_two(x * 1.4426950408889634f); }
__device__ __forceinline__ float opsgen_half_sigmoid(float x) {
  return opsgen_reciprocal(1.0f + opsgen_power_of_two(x * -1.4426950408889634f));
}
__device__ __forceinline__ float opsgen_half_one_plus_tanh(float u) {
  return opsgen_reciprocal(fmaf(opsgen_power_of_two(u * -2.8853900817779268f), 0.5f, 0.5f));
}
__device__ __forceinline__ float opsgen_half_one_plus_erf(float u) {
  float e = opsgen_power_of_two(u * u * -1.4426950408889634f);
  float t = opsgen_reciprocal(fmaf(fabsf(u), 0.435f, 1.0f));
  float p = fmaf(-0.15173389079134475f, t, 0.38379934898289786f);
  p = fmaf(fmaf(fmaf(fmaf(p, t, 0.010134484165087249f), t, 0.2748430266520236f), t, 0.23699752016997966f), t,
           0.24595586125612898f);
  float y = p * (t * e);
  return u < 0.0f ? y : 2.0f - y;
}

// k y (1 + erf(c y)) for positive k and c. Of y = infinity the limit keeps 0 times infinity out; of a NaN and 0 the
// larger is NaN.
__device__ __forceinline__ float opsgen_half_gated_erf(float y, float k, float c) {
  float large, z = fminf(y, 3.0e38f);
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(large) : "f"(y), "f"(0.0f));
  float e = opsgen_power_of_two(z * z * (c * c * -1.4426950408889634f));
  float t = opsgen_reciprocal(fmaf(fabsf(z), c * 0.435f, 1.0f));
  float p = fmaf(k * -0.15173389079134475f, t, k * 0.38379934898289786f);
  p = fmaf(fmaf(fmaf(fmaf(p, t, k * 0.010134484165087249f), t, k * 0.2748430266520236f), t, k * 0.23699752016997966f), t,
           k * 0.24595586125612898f);
  return fmaf(-fabsf(z), p * (t * e), 2.0f * k * large);
}

// Moves 16, 8, 4, 2 or 1 bytes at once, or sets them to zero; addresses are multiples of that. (By memcpy: through pointers to vectors,
// nvcc 13.0 leaves arrays of narrower elements on the stack.)
#define OPSGEN_MOVE(bytes)                                                                            \
  __device__ __forceinline__ void opsgen_clear##bytes(void* to) { memset(to, 0, bytes); }               \
  __device__ __forceinline__ void opsgen_move##bytes(void* to, const void* from) {                     \
    memcpy(__builtin_assume_aligned(to, bytes), __builtin_assume_aligned(from, bytes), bytes);         \
  }
OPSGEN_MOVE(16)
OPSGEN_MOVE(8)
OPSGEN_MOVE(4)
OPSGEN_MOVE(2)
OPSGEN_MOVE(1)

// The same for an address in device memory that is a multiple of the `element` alone, no more than 16 bytes. `across`
// loads the two aligned pieces that the bytes lie in, both of which have some of them: there is no branch, behind which
// the loads of one strip would wait for those of another.
template <int bytes, int element>
__device__ __forceinline__ void opsgen_load_across(void* to, const void* from) {
  if constexpr (bytes % 4 == 0 && element <= 4) {
    constexpr int count = bytes / 4;
    uint words[2 * count];
    uint64_t at = reinterpret_cast<uint64_t>(from);
    uint past = static_cast<uint>(at) % bytes;
    const char* piece = static_cast<const char*>(from) - past;
    memcpy(words, __builtin_assume_aligned(piece, bytes), bytes);
    memcpy(words + count, __builtin_assume_aligned(piece + (past ? bytes : 0), bytes), bytes);
    _Pragma("unroll") for (int step = count / 2; step >= 1; step /= 2) {
      bool shift = past / 4 & step;
      _Pragma("unroll") for (int i = 0; i + step < 2 * count; ++i) words[i] = shift ? words[i + step] : words[i];
    }
    if constexpr (element < 4) {
      _Pragma("unroll") for (int i = 0; i < count; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], past % 4 * 8);
    }
    memcpy(to, words, bytes);
  } else {
    _Pragma("unroll") for (int i = 0; i < bytes; i += element)
      memcpy(static_cast<char*>(to) + i, __builtin_assume_aligned(static_cast<const char*>(from) + i, element), element);
  }
}
// In one move where it can be; loads and stores.
template <int bytes, int element>
__device__ __forceinline__ void opsgen_load_any(void* to, const void* from) {
  if (reinterpret_cast<uint64_t>(from) % bytes == 0) {
    memcpy(to, __builtin_assume_aligned(from, bytes), bytes);
  } else {
    opsgen_load_across<bytes, element>(to, from);
  }
}
template <int bytes, int element>
__device__ __forceinline__ void opsgen_store_any(void* to, const void* from) {
  if (reinterpret_cast<uint64_t>(to) % bytes == 0) {
    memcpy(__builtin_assume_aligned(to, bytes), from, bytes);
  } else {
    _Pragma("unroll") for (int i = 0; i < bytes; i += element)
      memcpy(__builtin_assume_aligned(static_cast<char*>(to) + i, element), static_cast<const char*>(from) + i, element);
  }
}

// The same into shared memory, where it is later: `opsgen_fetched` waits for all that the thread has asked for.
template <int bytes, int element>
__device__ __forceinline__ void opsgen_fetch_any(void* to, const void* from) {
  uint at = static_cast<uint>(__cvta_generic_to_shared(to));
  if (reinterpret_cast<uint64_t>(from) % bytes != 0) {
    _Pragma("unroll") for (int i = 0; i < bytes; i += element)
      memcpy(static_cast<char*>(to) + i, __builtin_assume_aligned(static_cast<const char*>(from) + i, element), element);
  } else if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else if constexpr (bytes >= 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(bytes) : "memory");
  } else {
    memcpy(to, __builtin_assume_aligned(from, bytes), bytes);
  }
}
__device__ __forceinline__ void opsgen_fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Rounds `count` floats, an even number, to a half type.
#define OPSGEN_NARROW(name, type)                                                                        \
  template <int count>                                                                                   \
  __device__ __forceinline__ void opsgen_round_##name(uint* words, const float* from) {                  \
    _Pragma("unroll") for (int i = 0; i < count / 2; ++i)                                                \
      asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i])); \
  }
OPSGEN_NARROW(bfloat16, "bf16")
OPSGEN_NARROW(float16, "f16")

// Keeps the compiler from holding what it made of these values until now: it makes it again, in fewer registers.
__device__ __forceinline__ void opsgen_hold(uint& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void opsgen_hold(int& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void opsgen_hold(float& x) { asm volatile("" : "+f"(x)); }
__device__ __forceinline__ void opsgen_hold(double& x) { asm volatile("" : "+d"(x)); }
__device__ __forceinline__ void opsgen_hold(ushort& x) { asm volatile("" : "+h"(x)); }
__device__ __forceinline__ void opsgen_hold(half& x) { asm volatile("" : "+h"(x.bits)); }
template <typename T>
__device__ __forceinline__ void opsgen_hold(T&) {}
template <int count, typename T>
__device__ __forceinline__ void opsgen_hold_all(T* x) {
  _Pragma("unroll") for (int i = 0; i < count; ++i) opsgen_hold(x[i]);
}

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

// Makes an integer the larger of itself and a number, which other threads may do, too.
__device__ __forceinline__ int32_t opsgen_raise(void* place, int64_t number) {
  return atomicMax(static_cast<long long*>(place), static_cast<long long>(number)) < number;
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

// Sixteen bytes of a row, of which `left` remain: zeros beyond. In pieces, each of which lies in the row or beyond it;
// addresses are multiples of a piece. `stream`: of what is read once.
#define OPSGEN_STRIP16(name, how)                                                                           \
  __device__ __forceinline__ void opsgen_##name##16(uint32_t* to, const void* from, int left) {              \
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; "       \
                 "mov.b32 %3, 0; @p ld.global" how ".v4.u32 {%0, %1, %2, %3}, [%4]; }"                       \
                 : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])                                    \
                 : "l"(from), "r"(left));                                                                    \
  }
OPSGEN_STRIP16(strip, "")
OPSGEN_STRIP16(stream, ".L1::no_allocate.L2::128B")
__device__ __forceinline__ void opsgen_strip8(uint32_t* to, const void* from, int left) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
                 "@p ld.global.v2.u32 {%0, %1}, [%2]; }"
                 : "=&r"(to[2 * i]), "=&r"(to[2 * i + 1])
                 : "l"(static_cast<const char*>(from) + 8 * i), "r"(left - 8 * i));
  }
}
template <typename T>
__device__ __forceinline__ void opsgen_strip_of(uint32_t* to, const T* from, int left) {
  constexpr int kEach = 4 / sizeof(T);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[i] = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      int at = i * kEach + j;
      uint32_t bits = at * int(sizeof(T)) < left ? from[at] : T(0);
      to[i] |= bits << (8 * int(sizeof(T)) * j);
    }
  }
}
__device__ __forceinline__ void opsgen_strip2(uint32_t* to, const void* from, int left) {
  opsgen_strip_of(to, static_cast<const uint16_t*>(from), left);
}
__device__ __forceinline__ void opsgen_strip1(uint32_t* to, const void* from, int left) {
  opsgen_strip_of(to, static_cast<const uint8_t*>(from), left);
}

// Four small integers as halves, two in a register. All steps are exact. In the last bits of 1024, float16 has the
// integers up to 1023, and bfloat16 in those of 128 the ones up to 127: the eighth bit counts in what is taken off.
__device__ __forceinline__ uint32_t opsgen_sum_bfloat16(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sum;
}
__device__ __forceinline__ void opsgen_unpack_int8_bfloat16(uint32_t* to, uint32_t from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t apart = __byte_perm(from, 0, i ? 0x4342 : 0x4140);
    to[i] = opsgen_sum_bfloat16((apart & 0x007f007fu) | 0x43004300u, (apart & 0x00800080u) | 0xc300c300u);
  }
}
__device__ __forceinline__ void opsgen_unpack_uint8_bfloat16(uint32_t* to, uint32_t from) {
  opsgen_unpack_int8_bfloat16(to, from ^ 0x80808080u);
#pragma unroll
  for (int i = 0; i < 2; ++i) to[i] = opsgen_sum_bfloat16(to[i], 0x43004300u);
}
template <uint32_t kFlip, uint32_t kOff>
__device__ __forceinline__ void opsgen_unpack_float16(uint32_t* to, uint32_t from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t sum = __byte_perm(from ^ kFlip, 0x64646464u, i ? 0x4342 : 0x4140);
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(to[i]) : "r"(sum), "r"(kOff));
  }
}
__device__ __forceinline__ void opsgen_unpack_int8_float16(uint32_t* to, uint32_t from) {
  opsgen_unpack_float16<0x80808080u, 0x64806480u>(to, from);
}
__device__ __forceinline__ void opsgen_unpack_uint8_float16(uint32_t* to, uint32_t from) {
  opsgen_unpack_float16<0u, 0x64006400u>(to, from);
}

// Two floats, rounded to nearest even, in one register.
#define OPSGEN_PACK(type, name)                                                       \
  __device__ __forceinline__ uint32_t opsgen_pack_##type(float low, float high) {     \
    uint32_t y;                                                                       \
    asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));         \
    return y;                                                                         \
  }
OPSGEN_PACK(float16, "f16")
OPSGEN_PACK(bfloat16, "bf16")

// The nearest bfloat16, and what a number has beyond it (nothing where that is infinite or NaN).
__device__ __forceinline__ float opsgen_nearest_bfloat16(float x) {
  return __uint_as_float(opsgen_pack_bfloat16(0.0f, x) & 0xffff0000u);
}
__device__ __forceinline__ float opsgen_beyond(float x, float nearest) {
  return fabsf(nearest) < CUDART_INF_F ? x - nearest : 0.0f;
}

__device__ __forceinline__ uint32_t opsgen_shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Starts to copy 16, 8 or 4 bytes from device memory to shared memory, or zeros; addresses are multiples of that.
#define OPSGEN_COPY(bytes, cache)                                                                           \
  __device__ __forceinline__ void opsgen_copy##bytes(void* to, const void* from, bool wanted) {              \
    asm volatile("{ .reg .pred p; setp.eq.s32 p, %2, 0; cp.async." cache ".shared.global [%0], [%1], " #bytes \
                 ", p; }" ::"r"(opsgen_shared_address(to)), "l"(from), "r"(static_cast<int>(wanted))         \
                 : "memory");                                                                                \
  }
OPSGEN_COPY(16, "cg")
OPSGEN_COPY(8, "ca")
OPSGEN_COPY(4, "ca")
// What a thread has started since the last time is one group; waits until no more than the last `count` groups run.
__device__ __forceinline__ void opsgen_copies_are_a_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int count>
__device__ __forceinline__ void opsgen_wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory");
}

// Four matrices of 8 rows of 16 bytes, whose addresses the threads of the warp give, eight for each: a register of a
// thread has two elements of row t / 4, or, transposed, of column t / 4.
#define OPSGEN_LOAD_MATRICES(name, kind)                                                               \
  __device__ __forceinline__ void name(uint32_t* to, const void* row) {                                 \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" kind ".shared.b16 {%0, %1, %2, %3}, [%4];"             \
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                   \
                 : "r"(opsgen_shared_address(row))                                                      \
                 : "memory");                                                                           \
  }
OPSGEN_LOAD_MATRICES(opsgen_load_matrices, "")
OPSGEN_LOAD_MATRICES(opsgen_load_transposed, ".trans")

// The threads of a warp wait for each other, and see each other's shared memory.
__device__ __forceinline__ void opsgen_synchronize_warp() { __syncwarp(); }

// Blocks of a cluster (from sm_90 on) send each other values, whose arrival completes a phase of a barrier in the
// receiver's shared memory. (Not barrier.cluster, which waits for all stores to device memory before.)
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint opsgen_shared(const void* p) { return static_cast<uint>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void opsgen_barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(opsgen_shared(barrier)) : "memory");
}
// All threads of the cluster, after the barriers of all its blocks are initialised.
__device__ __forceinline__ void opsgen_cluster_start() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// By one thread, once a phase: the bytes that complete it.
__device__ __forceinline__ void opsgen_barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(opsgen_shared(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void opsgen_barrier_wait(uint64_t* barrier, int phase) {
  uint done;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(opsgen_shared(barrier)), "r"(phase)
        : "memory");
  } while (!done);
}
// To the same place in the shared memory of another block.
template <typename T>
__device__ __forceinline__ void opsgen_cluster_send(T* place, T value, uint64_t* barrier, int block) {
  uint at, signal;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(opsgen_shared(place)), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(signal) : "r"(opsgen_shared(barrier)), "r"(block));
  if constexpr (sizeof(T) == 8) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(at),
                 "l"(opsgen_as<int64_t>(value)), "r"(signal)
                 : "memory");
  } else {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at),
                 "r"(opsgen_as<int>(value)), "r"(signal)
                 : "memory");
  }
}
#endif
