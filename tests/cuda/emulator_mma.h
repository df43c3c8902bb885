// mma.sync for emulator.h, by the fragments that the PTX manual draws (matrix fragments of mma.m16n8k16).
namespace emulator {

inline uint32_t fragments[1024][6];

inline float element(float, uint32_t bits) {
  bits <<= 16;
  float found;
  memcpy(&found, &bits, 4);
  return found;
}
inline float element(half, uint32_t bits) {
  half found;
  memcpy(&found, &bits, 2);
  return found;
}

// d += a b: a thread's four registers of a (16 rows, 16 steps), two of b (16 steps, 8 columns), four sums of d. `Half`
// is half, or float for bfloat16. Products are exact; the order of the sum is not specified.
template <typename Half>
void multiply(float* d, const uint32_t* a, const uint32_t* b) {
  memcpy(fragments[thread.x], a, 16);
  memcpy(fragments[thread.x] + 4, b, 8);
  wait(kAtWarp);
  unsigned first = thread.x & ~31u, group = thread.x % 32 / 4, place = thread.x % 4;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned row = group + i / 2 * 8, column = place * 2 + i % 2;
    double sum = d[i];
    for (unsigned k = 0; k < 16; ++k) {
      uint32_t left = fragments[first + row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      uint32_t right = fragments[first + column * 4 + k % 8 / 2][4 + k / 8];
      unsigned shift = k % 2 * 16;
      sum += double{element(Half(), left >> shift & 0xffff)} * double{element(Half(), right >> shift & 0xffff)};
    }
    d[i] = static_cast<float>(sum);
  }
  wait(kAtWarp);
}

}  // namespace emulator

inline void opsgen_mma_float16(float* d, const uint32_t* a, const uint32_t* b) { emulator::multiply<half>(d, a, b); }
inline void opsgen_mma_bfloat16(float* d, const uint32_t* a, const uint32_t* b) { emulator::multiply<float>(d, a, b); }

namespace emulator {

// Sixteen bytes of a row, of which `left` remain, in pieces of `size`.
inline void strip(uint32_t* to, const void* from, int left, unsigned size) {
  if (left > 0 && reinterpret_cast<uintptr_t>(from) % size) refuse("a strip at an odd address");
  if (left > 0 && left < 16 && left % size) refuse("a piece that lies in the row in part");
  memset(to, 0, 16);
  if (left > 0) memcpy(to, from, left < 16 ? left : 16);
}

inline uint32_t bits(float x, float) {
  uint32_t found;
  memcpy(&found, &x, 4);
  return found >> 16;
}
inline uint32_t bits(float x, half) {
  half rounded = x;
  uint16_t found;
  memcpy(&found, &rounded, 2);
  return found;
}
template <typename Small, typename Half>
void unpack(uint32_t* to, uint32_t from) {
  for (int i = 0; i < 2; ++i) {
    uint32_t low = bits(static_cast<Small>(from >> 16 * i & 0xff), Half());
    to[i] = low | bits(static_cast<Small>(from >> (16 * i + 8) & 0xff), Half()) << 16;
  }
}

}  // namespace emulator

inline void opsgen_strip16(uint32_t* to, const void* from, int left) { emulator::strip(to, from, left, 16); }
inline void opsgen_stream16(uint32_t* to, const void* from, int left) { emulator::strip(to, from, left, 16); }
inline void opsgen_strip8(uint32_t* to, const void* from, int left) { emulator::strip(to, from, left, 8); }
inline void opsgen_strip2(uint32_t* to, const void* from, int left) { emulator::strip(to, from, left, 2); }
inline void opsgen_strip1(uint32_t* to, const void* from, int left) { emulator::strip(to, from, left, 1); }
inline void opsgen_unpack_int8_bfloat16(uint32_t* to, uint32_t from) { emulator::unpack<int8_t, float>(to, from); }
inline void opsgen_unpack_uint8_bfloat16(uint32_t* to, uint32_t from) { emulator::unpack<uint8_t, float>(to, from); }
inline void opsgen_unpack_int8_float16(uint32_t* to, uint32_t from) { emulator::unpack<int8_t, half>(to, from); }
inline void opsgen_unpack_uint8_float16(uint32_t* to, uint32_t from) { emulator::unpack<uint8_t, half>(to, from); }
