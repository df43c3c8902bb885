// For emulator.h: copies to shared memory that run beside the threads, ldmatrix, and barriers of a warp.
//
// A copy is done when its thread waits for it and not before, so that a wait which is missing shows in the results.
namespace emulator {

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
struct Copies {
  std::vector<Copy> started;
  std::vector<std::vector<Copy>> groups;
};
inline Copies copies[1024];

inline void finish_copies(unsigned left) {
  Copies& mine = copies[thread.x];
  while (mine.groups.size() > left) {
    for (const Copy& c : mine.groups.front()) {
      if (c.from) memcpy(c.to, c.from, c.bytes);
      else memset(c.to, 0, c.bytes);
    }
    mine.groups.erase(mine.groups.begin());
  }
}

inline void load_matrices(uint32_t* to, const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16) refuse("a matrix's row at an odd address");
  slots[thread.x] = reinterpret_cast<uint64_t>(row);
  wait(kAtWarp);
  unsigned first = thread.x & ~31u, line = thread.x % 32 / 4, pair = thread.x % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    uint16_t found[2];
    for (unsigned j = 0; j < 2; ++j) {
      unsigned from = transposed ? pair + j : line, at = transposed ? line : pair + j;
      found[j] = reinterpret_cast<const uint16_t*>(slots[first + i * 8 + from])[at];
    }
    memcpy(to + i, found, 4);
  }
  wait(kAtWarp);
}

}  // namespace emulator

#define OPSGEN_COPY(bytes)                                                                                        \
  inline void opsgen_copy##bytes(void* to, const void* from, bool wanted) {                                       \
    if ((uintptr_t(to) | (wanted ? uintptr_t(from) : 0)) % bytes) emulator::refuse("a copy to or from an odd address"); \
    emulator::copies[emulator::thread.x].started.push_back({to, wanted ? from : nullptr, bytes});                  \
  }
OPSGEN_COPY(16)
OPSGEN_COPY(8)
OPSGEN_COPY(4)
inline void opsgen_copies_are_a_group() {
  emulator::Copies& mine = emulator::copies[emulator::thread.x];
  mine.groups.push_back(std::move(mine.started));
  mine.started.clear();
}
template <int count>
void opsgen_wait_for_copies() {
  emulator::finish_copies(count);
}
inline void opsgen_load_matrices(uint32_t* to, const void* row) { emulator::load_matrices(to, row, false); }
inline void opsgen_load_transposed(uint32_t* to, const void* row) { emulator::load_matrices(to, row, true); }
inline void opsgen_synchronize_warp() { emulator::wait(emulator::kAtWarp); }

inline uint32_t opsgen_pack_float16(float low, float high) {
  half both[2] = {half(low), half(high)};
  uint32_t found;
  memcpy(&found, both, 4);
  return found;
}
inline uint16_t opsgen_bits_of_bfloat16(float x) {
  uint32_t bits = opsgen_as<uint32_t>(x);
  if (x != x) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline uint32_t opsgen_pack_bfloat16(float low, float high) {
  return opsgen_bits_of_bfloat16(low) | uint32_t{opsgen_bits_of_bfloat16(high)} << 16;
}
inline float opsgen_nearest_bfloat16(float x) { return opsgen_as<float>(opsgen_pack_bfloat16(0.0f, x)); }
inline float opsgen_beyond(float x, float nearest) { return fabsf(nearest) < CUDART_INF_F ? x - nearest : 0.0f; }
