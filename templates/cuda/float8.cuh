// 8-bit floats as bits: float32 from them and to them, rounded to nearest even. e4m3fn saturates: beyond 448 all is 448,
// infinities too. e5m2 does not: beyond 57344 it is infinite. NaN stays NaN, but may lose its sign.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define OPSGEN_FLOAT8_INSTRUCTIONS 1
#else
#define OPSGEN_FLOAT8_INSTRUCTIONS 0
#endif

__device__ __forceinline__ uint32_t opsgen_float8_sign(float x) { return opsgen_as<uint32_t>(x) >> 24 & 0x80u; }

#if OPSGEN_FLOAT8_INSTRUCTIONS
#define OPSGEN_FROM_FLOAT8(name, type)                                                                  \
  __device__ __forceinline__ float opsgen_from_##name(uint8_t x) {                                      \
    float y;                                                                                            \
    asm("{ .reg .b32 h; .reg .b16 a, b; cvt.rn.f16x2." type "x2 h, %1; mov.b32 {a, b}, h; cvt.f32.f16 %0, a; }" \
        : "=f"(y)                                                                                       \
        : "h"(static_cast<unsigned short>(x)));                                                         \
    return y;                                                                                           \
  }
OPSGEN_FROM_FLOAT8(float8_e4m3fn, "e4m3")
OPSGEN_FROM_FLOAT8(float8_e5m2, "e5m2")
#else
__device__ __forceinline__ float opsgen_from_float8_e4m3fn(uint8_t x) {
  uint32_t size = x & 0x7fu, sign = (x & 0x80u) << 24;
  // Below 2^-6 as a difference: no float32 denormal is met.
  uint32_t small = opsgen_as<uint32_t>(opsgen_as<float>((size << 20) + (121u << 23)) - 0.015625f);
  uint32_t bits = size < 8u ? small : size < 0x7fu ? (size << 20) + (120u << 23) : 0x7fc00000u;
  return opsgen_as<float>(bits | sign);
}
__device__ __forceinline__ float opsgen_from_float8_e5m2(uint8_t x) {
  return static_cast<float>(opsgen_as<half>(static_cast<uint16_t>(x << 8)));
}
#endif

// The code of |x| in a type with so many bits of mantissa whose least normal number is 2^exponent, without a limit.
template <int exponent, int mantissa>
__device__ __forceinline__ uint32_t opsgen_float8_code(uint32_t size) {
  constexpr int dropped = 23 - mantissa;
  constexpr uint32_t large = static_cast<uint32_t>(127 + exponent + dropped) << 23;
  uint32_t normal = size + ((1u << (dropped - 1)) - 1u) + (size >> dropped & 1u);
  normal = (normal >> dropped) - (static_cast<uint32_t>(exponent + 126) << mantissa);
  // Beside this number, float32's step is the type's least one: the addition rounds.
  uint32_t small = opsgen_as<uint32_t>(opsgen_as<float>(size) + opsgen_as<float>(large)) - large;
  return size < static_cast<uint32_t>(127 + exponent) << 23 ? small : normal;
}

__device__ __forceinline__ uint8_t opsgen_to_float8_e4m3fn(float x) {
  uint32_t size = opsgen_as<uint32_t>(x) & 0x7fffffffu, code;
#if OPSGEN_FLOAT8_INSTRUCTIONS
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  code = pair & 0x7fu;
#else
  code = opsgen_float8_code<-6, 3>(size);
  code = code > 0x7eu ? 0x7eu : code;
  code = size > 0x7f800000u ? 0x7fu : code;
#endif
  return static_cast<uint8_t>(code | opsgen_float8_sign(x));
}

__device__ __forceinline__ uint8_t opsgen_to_float8_e5m2(float x) {
  uint32_t size = opsgen_as<uint32_t>(x) & 0x7fffffffu, code;
#if OPSGEN_FLOAT8_INSTRUCTIONS
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  code = pair & 0x7fu;
  // The instruction saturates. 61440: a tie between 57344 and what 65536 would be, which is even.
  code = size >= 0x47700000u && size <= 0x7f800000u ? 0x7cu : code;
#else
  code = opsgen_float8_code<-14, 2>(size);
  code = code > 0x7cu ? 0x7cu : code;
  code = size > 0x7f800000u ? 0x7fu : code;
#endif
  return static_cast<uint8_t>(code | opsgen_float8_sign(x));
}
