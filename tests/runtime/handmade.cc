// Launchers as the compiler would write them, small and by hand. Each checks what the loader promises it
// (docs/library-format.md, "Calling a launcher") and raises "Promise" where it is broken.
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#define LAUNCHER(name) \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##name(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*)

namespace {

int Raise(const char* kind, const std::string& message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message.c_str());
  return -1;
}

DLTensor* TensorOf(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(value.v_ptr);
  if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<DLTensor*>(value.v_ptr);
  return nullptr;
}

// A tensor with its leading dims flattened to one and at most one own dim: rows x columns.
struct View {
  char* data = nullptr;
  int64_t rows = 1, columns = 1, row_stride = 0, size = 0;
  std::string broken;
  DLTensor* tensor = nullptr;

  // own: how many dims follow the leading ones, 0 or 1.
  View(const TVMFFIAny& value, bool leading, int own, int code, int bits) {
    tensor = TensorOf(value);
    if (!tensor) { broken = "no tensor"; return; }
    size = bits / 8;
    data = static_cast<char*>(tensor->data) + tensor->byte_offset;
    if (tensor->dtype.code != code || tensor->dtype.bits != bits) broken = "dtype " + std::to_string(tensor->dtype.code);
    if (reinterpret_cast<uintptr_t>(data) % size) broken = "alignment";
    int outer = tensor->ndim - own;
    if (outer < 0 || (!leading && outer)) { broken = "rank"; return; }
    int64_t reach = 0, numel = 1;
    bool first = true;
    for (int i = 0; i < tensor->ndim; ++i) numel *= tensor->shape[i];
    for (int i = outer - 1; i >= 0; --i) {
      int64_t extent = tensor->shape[i], stride = Stride(i);
      rows *= extent;
      if (extent <= 1) continue;
      if (first) row_stride = stride;
      else if (stride != reach && numel) broken = "leading strides";
      reach = extent * stride;
      first = false;
    }
    if (own) {
      columns = tensor->shape[tensor->ndim - 1];
      if (columns > 1 && numel && Stride(tensor->ndim - 1) != 1) broken = "innermost stride";
    } else if (rows > 1 && row_stride != 1 && numel) {
      broken = "innermost stride";
    }
  }
  int64_t Stride(int i) const {
    if (tensor->strides) return tensor->strides[i];
    int64_t stride = 1;
    for (int k = tensor->ndim - 1; k > i; --k) stride *= tensor->shape[k];
    return stride;
  }
  template <typename T>
  T& at(int64_t row, int64_t column) const { return reinterpret_cast<T*>(data)[row * row_stride + column]; }

  bool Overlaps(const View& other) const {
    if (rows * columns == 0 || other.rows * other.columns == 0) return false;
    auto low = [](const View& v) { return v.row_stride < 0 ? v.data + (v.rows - 1) * v.row_stride * v.size : v.data; };
    auto high = [](const View& v) {
      return (v.row_stride < 0 ? v.data : v.data + (v.rows - 1) * v.row_stride * v.size) + v.columns * v.size;
    };
    return low(*this) < high(other) && low(other) < high(*this);
  }
};

template <typename T>
int ScaleAdd(const TVMFFIAny* args, int32_t count, int code, int factor) {
  if (count != 5 || args[0].type_index != kTVMFFIInt) return Raise("Promise", "arguments");
  if (args[3].type_index != kTVMFFIFloat) return Raise("Promise", "scalar");
  int bits = sizeof(T) * 8;
  View x(args[1], true, 1, code, bits), w(args[2], false, 1, code, bits), out(args[4], true, 1, code, bits);
  for (const View* view : {&x, &w, &out}) {
    if (!view->broken.empty()) return Raise("Promise", view->broken);
  }
  if (out.rows * out.columns == 0) return 0;
  if (!(args[0].v_int64 & 1)) {
    if (out.Overlaps(x)) return Raise("OpsgenOverlap", "out|x");
    if (out.Overlaps(w)) return Raise("OpsgenOverlap", "out|weight");
  }
  T scale = static_cast<T>(args[3].v_float64);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) out.at<T>(i, j) = factor * x.at<T>(i, j) * scale + w.at<T>(0, j);
  return 0;
}

}  // namespace

// out[..., hidden] = x[..., hidden] * scale + weight[hidden]; the low ones return twice the product, to be told apart.
LAUNCHER(scale_add_f32) { return ScaleAdd<float>(args, count, kDLFloat, 1); }
LAUNCHER(scale_add_f64) { return ScaleAdd<double>(args, count, kDLFloat, 1); }
LAUNCHER(scale_add_f32_low) { return ScaleAdd<float>(args, count, kDLFloat, 2); }

// low[...], high[...] = the smallest and the largest of x[..., n], neutral 0; bias[n], where given, is added first.
static int Bounds(const TVMFFIAny* args, int32_t count, bool with_bias) {
  if (count != 4 + with_bias) return Raise("Promise", "arguments");
  View x(args[1], true, 1, kDLFloat, 32), low(args[count - 2], true, 0, kDLFloat, 32);
  View high(args[count - 1], true, 0, kDLFloat, 32), bias(args[1 + with_bias], !with_bias, 1, kDLFloat, 32);
  for (const View* view : {&x, &low, &high, &bias}) {
    if (!view->broken.empty()) return Raise("Promise", view->broken);
  }
  if (!(args[0].v_int64 & 1)) {
    if (low.Overlaps(x) || high.Overlaps(x)) return Raise("OpsgenOverlap", "low|x");
    if (low.Overlaps(high)) return Raise("OpsgenOverlap", "low|high");
  }
  for (int64_t i = 0; i < x.rows; ++i) {
    float least = 0, most = 0;
    for (int64_t j = 0; j < x.columns; ++j) {
      float value = x.at<float>(i, j) + (with_bias ? bias.at<float>(0, j) : 0.f);
      if (!j || value < least) least = value;
      if (!j || value > most) most = value;
    }
    low.at<float>(i, 0) = least;
    high.at<float>(i, 0) = most;
  }
  return 0;
}
LAUNCHER(bounds) { return Bounds(args, count, false); }
LAUNCHER(bounds_bias) { return Bounds(args, count, true); }

// out[...] = table[index[...]] for int64 indices in [0, n).
LAUNCHER(pick) {
  View table(args[1], false, 1, kDLFloat, 32), index(args[2], true, 0, kDLInt, 64), out(args[3], true, 0, kDLFloat, 32);
  for (const View* view : {&table, &index, &out}) {
    if (!view->broken.empty()) return Raise("Promise", view->broken);
  }
  for (int64_t i = 0; i < index.rows; ++i) {
    int64_t value = index.at<int64_t>(i, 0);
    if (value < 0 || value >= table.columns) {
      return Raise("OpsgenIndex", "index|" + std::to_string(value) + "|" + std::to_string(i) + "|" + std::to_string(table.columns));
    }
  }
  for (int64_t i = 0; i < index.rows; ++i) out.at<float>(i, 0) = table.at<float>(0, index.at<int64_t>(i, 0));
  return 0;
}

// cache[..., n] += x[..., n] in place; with subtract, -=. total[...] = the rows' sums afterwards.
static int Accumulate(const TVMFFIAny* args, int32_t count, float sign) {
  View cache(args[1], true, 1, kDLFloat, 32), x(args[2], true, 1, kDLFloat, 32), total(args[3], true, 0, kDLFloat, 32);
  for (const View* view : {&cache, &x, &total}) {
    if (!view->broken.empty()) return Raise("Promise", view->broken);
  }
  if (!(args[0].v_int64 & 1)) {
    if (cache.Overlaps(x)) return Raise("OpsgenOverlap", "cache|x");
    if (total.Overlaps(cache)) return Raise("OpsgenOverlap", "total|cache");
  }
  for (int64_t i = 0; i < x.rows; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < x.columns; ++j) sum += cache.at<float>(i, j) += sign * x.at<float>(i, j);
    total.at<float>(i, 0) = sum;
  }
  return 0;
}
LAUNCHER(accumulate) { return Accumulate(args, count, 1.f); }
LAUNCHER(accumulate_subtract) { return Accumulate(args, count, -1.f); }

// out[..., n] = the bits of x[..., n].
template <typename T>
static int Same(const TVMFFIAny* args, int code) {
  View x(args[1], true, 1, code, sizeof(T) * 8), out(args[2], true, 1, code, sizeof(T) * 8);
  for (const View* view : {&x, &out}) {
    if (!view->broken.empty()) return Raise("Promise", view->broken);
  }
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) out.at<T>(i, j) = x.at<T>(i, j);
  return 0;
}
LAUNCHER(same_float64) { return Same<uint64_t>(args, kDLFloat); }
LAUNCHER(same_float32) { return Same<uint32_t>(args, kDLFloat); }
LAUNCHER(same_float16) { return Same<uint16_t>(args, kDLFloat); }
LAUNCHER(same_bfloat16) { return Same<uint16_t>(args, kDLBfloat); }
LAUNCHER(same_float8_e4m3fn) { return Same<uint8_t>(args, kDLFloat8_e4m3fn); }
LAUNCHER(same_float8_e5m2) { return Same<uint8_t>(args, kDLFloat8_e5m2); }
LAUNCHER(same_int64) { return Same<uint64_t>(args, kDLInt); }
LAUNCHER(same_int32) { return Same<uint32_t>(args, kDLInt); }
LAUNCHER(same_int16) { return Same<uint16_t>(args, kDLInt); }
LAUNCHER(same_int8) { return Same<uint8_t>(args, kDLInt); }
LAUNCHER(same_uint8) { return Same<uint8_t>(args, kDLUInt); }
LAUNCHER(same_bool) { return Same<uint8_t>(args, kDLBool); }

// out[heads * size] = 1: a result whose dim is an expression.
LAUNCHER(ones) {
  View out(args[2], false, 1, kDLFloat, 32);
  if (!out.broken.empty()) return Raise("Promise", out.broken);
  for (int64_t j = 0; j < out.columns; ++j) out.at<float>(0, j) = 1;
  return 0;
}

// Fails in the way that `how` says; sleeps 0.2 s for 3.
LAUNCHER(fail) {
  switch (static_cast<int>(args[2].v_float64)) {
    case 0: return Raise("OpsgenMemory", "123456");
    case 1: return Raise("ValueError", "a launcher's own words");
    case 2: return Raise("OpsgenIndex", "no such form");
    case 3: usleep(200000); return 0;
    default: return 0;
  }
}

LAUNCHER(nothing) { return 0; }

// A packed vector of floats, which lie in reverse order behind a header of 128 bytes.
struct Packed {
  char* begin = nullptr;
  float* end = nullptr;
  int64_t columns = 0;
  std::string broken;

  explicit Packed(const TVMFFIAny& value) {
    DLTensor* tensor = TensorOf(value);
    if (!tensor || tensor->ndim != 1 || tensor->dtype.code != kDLUInt || tensor->dtype.bits != 8) { broken = "no bytes"; return; }
    char* data = static_cast<char*>(tensor->data) + tensor->byte_offset;
    uint32_t dims;
    memcpy(&dims, data + 12, 4);
    memcpy(&columns, data + 16, 8);
    if (reinterpret_cast<uintptr_t>(data) % 64) broken = "alignment of a packed weight";
    if (memcmp(data, "OPSGENPK\1\0\0\0", 12) || dims != 1) broken = "header";
    if (tensor->shape[0] != 128 + 4 * columns) broken = "size of a packed weight";
    end = reinterpret_cast<float*>(data + 128) + columns;
    begin = data;
  }
  float& at(int64_t column) const { return end[-1 - column]; }
  bool Overlaps(const View& rows) const {  // of rows one behind the other
    return rows.data < reinterpret_cast<char*>(end) && begin < rows.data + rows.rows * rows.columns * rows.size;
  }
};

LAUNCHER(pack_reversed) {
  View w(args[1], false, 1, kDLFloat, 32);
  Packed packed(args[2]);
  if (!w.broken.empty() || !packed.broken.empty()) return Raise("Promise", w.broken + packed.broken);
  if (packed.columns != w.columns) return Raise("Promise", "shape of a packed weight");
  for (int64_t j = 0; j < w.columns; ++j) packed.at(j) = w.at<float>(0, j);
  return 0;
}

// out[..., n] = sign * x[..., n] * factor[n] + term[n]
static int Mix(const TVMFFIAny* args, int32_t count, bool with_packed, float sign) {
  if (count != 4 && count != 5) return Raise("Promise", "arguments");
  bool with_term = count == 5;
  View x(args[1], true, 1, kDLFloat, 32), out(args[count - 1], true, 1, kDLFloat, 32);
  if (!x.broken.empty() || !out.broken.empty()) return Raise("Promise", x.broken + out.broken);
  if (!(args[0].v_int64 & 1) && out.Overlaps(x)) return Raise("OpsgenOverlap", "out|x");
  if (!(args[0].v_int64 & 1) && with_packed && Packed(args[2]).Overlaps(out)) return Raise("OpsgenOverlap", "out|factor");
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.columns; ++j) {
      float factor, term = 0;
      if (with_packed) {
        Packed f(args[2]), t(args[count - 2]);
        if (!f.broken.empty() || !t.broken.empty()) return Raise("Promise", f.broken + t.broken);
        factor = f.at(j);
        if (with_term) term = t.at(j);
      } else {
        View f(args[2], false, 1, kDLFloat, 32), t(args[count - 2], false, 1, kDLFloat, 32);
        if (!f.broken.empty() || !t.broken.empty()) return Raise("Promise", f.broken + t.broken);
        factor = f.at<float>(0, j);
        if (with_term) term = t.at<float>(0, j);
      }
      out.at<float>(i, j) = sign * x.at<float>(i, j) * factor + term;
    }
  }
  return 0;
}
LAUNCHER(mix) { return Mix(args, count, false, 1); }
LAUNCHER(mix_packed) { return Mix(args, count, true, 1); }
LAUNCHER(mix_alone) { return Mix(args, count, false, 1); }
LAUNCHER(mix_alone_packed) { return Mix(args, count, true, 1); }
LAUNCHER(mix_negated) { return Mix(args, count, false, -1); }
LAUNCHER(mix_negated_packed) { return Mix(args, count, true, -1); }

LAUNCHER(idle) { return 0; }
LAUNCHER(idle_packed) { return 0; }

#define TEN(name) \
  LAUNCHER(name##0) { return 0; } LAUNCHER(name##1) { return 0; } LAUNCHER(name##2) { return 0; } \
  LAUNCHER(name##3) { return 0; } LAUNCHER(name##4) { return 0; } LAUNCHER(name##5) { return 0; } \
  LAUNCHER(name##6) { return 0; } LAUNCHER(name##7) { return 0; } LAUNCHER(name##8) { return 0; } \
  LAUNCHER(name##9) { return 0; }
TEN(many_0) TEN(many_1) TEN(many_2)
