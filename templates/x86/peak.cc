// What a core can do at most: FMAs on registers alone, and reads of memory that lies in a given cache or beyond.
// Built by opsgen/bench/peak.py for AVX2 and AVX-512; W is the vector length in floats.
#include <cstdint>

typedef float vec __attribute__((vector_size(W * 4)));
typedef float unaligned __attribute__((vector_size(W * 4), aligned(4)));

extern "C" {

// 12 chains of FMAs, none waiting for another; returns the flops done.
int64_t opsgen_peak_fma(int64_t turns, float* out) {
  vec a = vec{} + 1.0f, b = a, c = a, d = a, e = a, f = a, g = a, h = a, k = a, l = a, m = a, n = a;
  vec x = vec{} + 0.999f, y = vec{} + 0.001f;
  for (int64_t i = 0; i < turns; ++i) {
    a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y, e = e * x + y, f = f * x + y;
    g = g * x + y, h = h * x + y, k = k * x + y, l = l * x + y, m = m * x + y, n = n * x + y;
    asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f));
    asm volatile("" : "+v"(g), "+v"(h), "+v"(k), "+v"(l), "+v"(m), "+v"(n));
  }
  vec s = a + b + c + d + e + f + g + h + k + l + m + n;
  for (int i = 0; i < W; ++i) out[i] = s[i];
  return turns * 12 * W * 2;
}

// Reads n floats (a multiple of 8 * W) again and again; returns the bytes read.
int64_t opsgen_peak_read(const float* data, int64_t n, int64_t turns, float* out) {
  vec a = {}, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (int64_t t = 0; t < turns; ++t) {
    for (const float *p = data, *end = data + n; p != end; p += 8 * W) {
      const auto* v = reinterpret_cast<const unaligned*>(p);
      a += v[0], b += v[1], c += v[2], d += v[3], e += v[4], f += v[5], g += v[6], h += v[7];
    }
    asm volatile("" : : : "memory");
  }
  vec s = a + b + c + d + e + f + g + h;
  for (int i = 0; i < W; ++i) out[i] = s[i];
  return turns * n * 4;
}
}
