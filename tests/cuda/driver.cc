// What stands for libcuda.so.1 where kernels are emulated: device memory is the host's, a cubin is a shared object made by
// tests/cuda/emulated.py, and a launch has run when it returns. `pretend` sets what the driver says of itself.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {
int g_version = 13000, g_capability = 90, g_devices = 2, g_free = 1 << 30;
thread_local void* g_current = nullptr;
int g_contexts[64];
struct Function {
  void (*body)(void**);
  void (*emulate)(void (*)(void**), unsigned, unsigned, unsigned, void**, int);
  int allowed;
  void* context;
};
struct Module {
  void* library;
  void* context;
};
int g_loaded = 0, g_launched = 0, g_held = 0, g_refused = 0, g_backwards = 0;
}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API void pretend(int version, int capability, int devices, int free_bytes) {
  g_version = version;
  g_capability = capability;
  g_devices = devices;
  g_free = free_bytes;
}
API void refuse_launches(int code) { g_refused = code; }
API void run_backwards(int whether) { g_backwards = whether; }  // blocks from the last to the first
API int modules_loaded() { return g_loaded; }
API int kernels_launched() { return g_launched; }
API int allocations_held() { return g_held; }

API int cuInit(unsigned) { return 0; }
API int cuDriverGetVersion(int* v) { return *v = g_version, 0; }
API int cuDeviceGetCount(int* n) { return *n = g_devices, 0; }
API int cuDeviceGet(int* d, int i) { return *d = i, i < g_devices ? 0 : 101; }
API int cuDeviceGetAttribute(int* v, int what, int) {
  switch (what) {
    case 75: return *v = g_capability / 10, 0;
    case 76: return *v = g_capability % 10, 0;
    case 16: return *v = 1, 0;
    case 97: return *v = 227 << 10, 0;
  }
  return 1;
}
API int cuDevicePrimaryCtxRetain(void** c, int d) { return *c = &g_contexts[d], 0; }
API int cuCtxGetCurrent(void** c) { return *c = g_current, 0; }
API int cuCtxPushCurrent_v2(void* c) { return g_current = c, 0; }
API int cuCtxPopCurrent_v2(void** c) { return *c = g_current, g_current = nullptr, 0; }
API int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
API int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) { return *free_bytes = g_free, *total = 1 << 30, 0; }
API int cuMemAllocAsync(void** p, size_t n, void*) {
  if (n > static_cast<size_t>(g_free)) return 2;
  ++g_held;
  return *p = aligned_alloc(512, (n + 511) / 512 * 512), memset(*p, 0xff, n), 0;
}
API int cuMemFreeAsync(void* p, void*) { return --g_held, free(p), 0; }
API int cuGetErrorName(int, const char** s) { return *s = "CUDA_ERROR_PRETENDED", 0; }
API int cuGetErrorString(int, const char** s) { return *s = "a pretended error", 0; }

API int cuModuleLoadData(void** module, const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (!g_current || memcmp(bytes, "EMULATED", 8)) return 200;
  uint64_t size;
  memcpy(&size, bytes + 8, 8);
  int file = memfd_create("kernels", 0);
  for (uint64_t done = 0; done < size;) {
    ssize_t n = write(file, bytes + 16 + done, size - done);
    if (n <= 0) return 999;
    done += n;
  }
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 200;
  }
  ++g_loaded;
  *module = new Module{library, g_current};
  return 0;
}
API int cuModuleGetFunction(void** f, void* module, const char* name) {
  Module* m = static_cast<Module*>(module);
  char launch[512];
  snprintf(launch, sizeof(launch), "launch_%s", name);
  void* body = dlsym(m->library, launch);
  if (!body) return 500;
  *f = new Function{reinterpret_cast<void (*)(void**)>(body),
                    reinterpret_cast<decltype(Function::emulate)>(dlsym(m->library, "emulate")), 48 << 10, m->context};
  return 0;
}
API int cuFuncSetAttribute(void* f, int what, int value) {
  if (what != 8 || value > (227 << 10)) return 1;
  return static_cast<Function*>(f)->allowed = value, 0;
}
API int cuLaunchKernel(void* f, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared,
                       void*, void** arguments, void**) {
  Function* function = static_cast<Function*>(f);
  if (g_refused) return g_refused;
  if (function->context != g_current) return 201;
  if (blocks == 0 || static_cast<int>(shared) > function->allowed) return 1;
  ++g_launched;
  return function->emulate(function->body, blocks, threads, shared, arguments, g_backwards), 0;
}
