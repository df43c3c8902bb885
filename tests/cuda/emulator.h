// Runs generated CUDA kernels on the CPU: the threads of a block as fibers, blocks one after the other. Stands in the
// place of templates/cuda/prelude.cuh when a kernel is compiled by g++.
//
// Stricter than a GPU: a barrier that some thread of the block (of the warp, for exchanges) does not come by ends the
// process, and threads run in another order after every barrier, so that a missing one shows in the results.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define uchar unsigned char
#define ushort unsigned short
#define uint unsigned int
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")

namespace emulator {

struct Dim {
  unsigned x = 0;
};

enum State { kReady, kAtBlock, kAtWarp, kDone };

struct Fiber {
  ucontext_t context;
  State state;
  std::vector<char> stack;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline unsigned running;
inline Dim thread, block, grid;
inline void (*body)(void**);
inline void** arguments;
inline uint64_t slots[1024];
alignas(64) inline char dynamic[256 << 10];

inline void wait(State state) {
  Fiber& mine = fibers[running];
  mine.state = state;
  swapcontext(&mine.context, &scheduler);
}

inline void enter() {
  body(arguments);
  wait(kDone);
}

[[noreturn]] inline void refuse(const char* what) {
  fprintf(stderr, "emulated kernel: %s\n", what);
  abort();
}

inline void run_block(unsigned threads) {
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = fibers[t];
    f.state = kReady;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
  }
  for (unsigned phase = 0;; ++phase) {
    unsigned done = 0, at_block = 0;
    for (unsigned i = 0; i < threads; ++i) {
      unsigned t = phase % 2 ? threads - 1 - i : i;
      if (fibers[t].state != kReady) continue;
      running = thread.x = t;
      swapcontext(&scheduler, &fibers[t].context);
    }
    bool freed = false;
    for (unsigned w = 0; w < threads; w += 32) {
      unsigned waiting = 0;
      for (unsigned t = w; t < w + 32; ++t) waiting += fibers[t].state == kAtWarp;
      if (waiting == 32) {
        for (unsigned t = w; t < w + 32; ++t) fibers[t].state = kReady;
        freed = true;
      }
    }
    for (unsigned t = 0; t < threads; ++t) {
      done += fibers[t].state == kDone;
      at_block += fibers[t].state == kAtBlock;
    }
    if (done == threads) return;
    if (at_block == threads) {
      for (unsigned t = 0; t < threads; ++t) fibers[t].state = kReady;
    } else if (!freed) {
      refuse("threads wait at a barrier that others do not come by");
    }
  }
}

template <typename T>
T take(T value, unsigned from) {
  static_assert(sizeof(T) <= 8, "a register or two");
  memcpy(&slots[thread.x], &value, sizeof(T));
  wait(kAtWarp);
  memcpy(&value, &slots[from], sizeof(T));
  wait(kAtWarp);
  return value;
}

}  // namespace emulator

#define threadIdx emulator::thread
#define blockIdx emulator::block

#define EXPORTED __attribute__((visibility("default")))

extern "C" EXPORTED void emulate(void (*body)(void**), unsigned blocks, unsigned threads, unsigned shared,
                                 void** arguments, int backwards) {
  using namespace emulator;
  if (threads % 32 || threads > 1024) refuse("a block is of whole warps, 1024 threads at most");
  if (shared > sizeof(dynamic)) refuse("too much shared memory");
  while (fibers.size() < threads) fibers.emplace_back().stack.resize(64 << 10);
  emulator::body = body;
  emulator::arguments = arguments;
  grid.x = blocks;
  for (unsigned b = 0; b < blocks; ++b) {
    memset(dynamic, 0xff, shared);  // NaN
    block.x = backwards ? blocks - 1 - b : b;
    run_block(threads);
  }
}

inline void __syncthreads() { emulator::wait(emulator::kAtBlock); }

struct half {
  _Float16 value;
  half() = default;
  half(float x) : value(static_cast<_Float16>(x)) {}
  operator float() const { return static_cast<float>(value); }
};

template <typename To, typename From>
To opsgen_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To found;
  memcpy(&found, &value, sizeof(To));
  return found;
}

template <typename T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
T max(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
T opsgen_maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
T opsgen_minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
template <typename T>
T opsgen_sigmoid(T x) {
  T e = exp(-fabs(x));
  return (x < 0 ? e : T(1)) / (T(1) + e);
}
template <typename T>
T opsgen_rsqrt(T x) {
  return T(1) / sqrt(x);
}
inline int64_t opsgen_wide_product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint>(a)) * static_cast<uint>(b));
}
inline ushort opsgen_bfloat16(float x) {
  uint bits = opsgen_as<uint>(x);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline ushort opsgen_float16(float x) { return opsgen_as<ushort>(half(x)); }
template <int count, typename T>
void opsgen_hold_all(T*) {}
inline float opsgen_of_words(const uint* words, int64_t number) {
  return opsgen_as<float>(number & 1 ? words[number >> 1] & 0xffff0000u : words[number >> 1] << 16);
}
#define OPSGEN_NARROW(name)                                                                                 \
  template <int count>                                                                                     \
  void opsgen_round_##name(uint* words, const float* from) {                                               \
    for (int i = 0; i < count; i += 2) words[i / 2] = opsgen_##name(from[i]) | opsgen_##name(from[i + 1]) << 16; \
  }
OPSGEN_NARROW(bfloat16)
OPSGEN_NARROW(float16)
template <int bytes, int element>
void opsgen_load_any(void* to, const void* from) {
  memcpy(to, from, bytes);
}
template <int bytes, int element>
void opsgen_load_across(void* to, const void* from) {
  memcpy(to, from, bytes);
}
template <int bytes, int element>
void opsgen_store_any(void* to, const void* from) {
  memcpy(to, from, bytes);
}
// What the GPU fetches later is wrong until then here, too.
inline std::vector<std::vector<std::pair<void*, std::vector<char>>>> fetches(1024);
template <int bytes, int element>
void opsgen_fetch_any(void* to, const void* from) {
  const char* first = static_cast<const char*>(from);
  fetches[emulator::thread.x].push_back({to, std::vector<char>(first, first + bytes)});
}
inline void opsgen_fetched() {
  for (auto& [to, what] : fetches[emulator::thread.x]) memcpy(to, what.data(), what.size());
  fetches[emulator::thread.x].clear();
}
inline float opsgen_half_exp(float x) { return expf(x); }
inline float opsgen_half_sigmoid(float x) { return opsgen_sigmoid(x); }
inline float opsgen_half_one_plus_tanh(float u) { return static_cast<float>(1 + tanh(static_cast<double>(u))); }
inline float opsgen_half_one_plus_erf(float u) { return static_cast<float>(erfc(-static_cast<double>(u))); }
inline float opsgen_half_gated_erf(float y, float k, float c) {
  return static_cast<float>(double(k) * y * erfc(-static_cast<double>(c) * y));
}
#define OPSGEN_MOVE(bytes)                                                                            \
  inline void opsgen_clear##bytes(void* to) { memset(to, 0, bytes); }                                  \
  inline void opsgen_move##bytes(void* to, const void* from) {                                         \
    if ((uintptr_t(to) | uintptr_t(from)) % bytes) emulator::refuse("a move to or from an odd address"); \
    memcpy(to, from, bytes);                                                                           \
  }
OPSGEN_MOVE(16)
OPSGEN_MOVE(8)
OPSGEN_MOVE(4)
OPSGEN_MOVE(2)
OPSGEN_MOVE(1)
inline int64_t opsgen_address(const void* p) { return reinterpret_cast<int64_t>(p); }
inline int64_t opsgen_blocks() { return emulator::grid.x; }
template <typename T>
T opsgen_exchange(T value, int other) {
  return emulator::take(value, emulator::thread.x ^ static_cast<unsigned>(other));
}
template <typename T>
T opsgen_from_below(T value, int lanes) {
  unsigned lane = emulator::thread.x % 32;
  return emulator::take(value, emulator::thread.x - (lane >= static_cast<unsigned>(lanes) ? lanes : 0));
}
template <typename T>
T opsgen_from_above(T value, int lanes) {
  unsigned lane = emulator::thread.x % 32;
  return emulator::take(value, emulator::thread.x + (lane + lanes < 32 ? lanes : 0));
}
template <typename T>
T opsgen_from_lane(T value, int lane) {
  if (lane < 0 || lane > 31) emulator::refuse("a lane that a warp has not");
  return emulator::take(value, emulator::thread.x / 32 * 32 + lane);
}
inline int32_t opsgen_raise(void* place, int64_t number) {
  int64_t found;
  memcpy(&found, place, 8);
  if (found < number) memcpy(place, &number, 8);
  return found < number;
}
inline int64_t opsgen_fetch_add(void* place, int64_t number) {
  int64_t found, sum;
  memcpy(&found, place, 8);
  sum = found + number;
  memcpy(place, &sum, 8);
  return found;
}

template <typename A, typename B>
int32_t opsgen_dp4a(int32_t sum, uint32_t a, uint32_t b) {
  for (int i = 0; i < 32; i += 8) {
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(A(a >> i) * B(b >> i)));
  }
  return sum;
}
inline int32_t opsgen_dp4a_ss(int32_t s, uint32_t a, uint32_t b) { return opsgen_dp4a<int8_t, int8_t>(s, a, b); }
inline int32_t opsgen_dp4a_su(int32_t s, uint32_t a, uint32_t b) { return opsgen_dp4a<int8_t, uint8_t>(s, a, b); }
inline int32_t opsgen_dp4a_us(int32_t s, uint32_t a, uint32_t b) { return opsgen_dp4a<uint8_t, int8_t>(s, a, b); }
inline int32_t opsgen_dp4a_uu(int32_t s, uint32_t a, uint32_t b) { return opsgen_dp4a<uint8_t, uint8_t>(s, a, b); }

#include "emulator_mma.h"
#include "float8.cuh"
#include "emulator_tiles.h"
