// Drives templates/x86/threads.cc as TVM's generated code does: through the weak `__TVMBackend*` variables, with a
// closure that takes any number of chunks. Linked with it into one shared object for test_threads.py.
#include <sys/syscall.h>
#include <time.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))
struct Env {
  void* sync_handle;
  int32_t num_task;
};
using Lambda = int (*)(int, Env*, void*);
extern "C" {
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(Lambda, void*, int);
__attribute__((weak)) int (*__TVMBackendParallelBarrier)(int, Env*);
__attribute__((weak)) void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
__attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void*);
int32_t opsgen_parallel_cost(int64_t);
int32_t opsgen_cpu_level();
const char* opsgen_threads_runtime();
}

struct Loop {
  int64_t extent, inner;  // with `inner`, each index runs a loop of so many within
  const int64_t* naps;    // [extent]: ns an index sleeps, or null
  int32_t* counts;        // [extent], or [extent, inner]
  int64_t* threads;       // [extent]: who ran the index
};

// Counted with atomics: when something is wrong, two threads run an index at the same time.
static int run_chunk(int task, Env* env, void* closure) {
  Loop& loop = *static_cast<Loop*>(closure);
  int64_t step = (loop.extent + env->num_task - 1) / env->num_task;
  for (int64_t i = std::min(task * step, loop.extent); i < std::min((task + 1) * step, loop.extent); ++i) {
    if (loop.naps) {
      timespec nap{0, loop.naps[i]};
      nanosleep(&nap, nullptr);
    }
    if (loop.threads) loop.threads[i] = syscall(SYS_gettid);
    if (!loop.inner) {
      __atomic_fetch_add(&loop.counts[i], 1, __ATOMIC_RELAXED);
      continue;
    }
    Loop within{loop.inner, 0, nullptr, loop.counts + i * loop.inner, nullptr};
    if (int code = __TVMBackendParallelLaunch(run_chunk, &within, 0)) return code;
  }
  return 0;
}

EXPORT int run(int64_t extent, int tasks, int64_t cost, int64_t inner, const int64_t* naps, int32_t* counts,
               int64_t* threads) {
  Loop loop{extent, inner, naps, counts, threads};
  if (cost >= 0) opsgen_parallel_cost(cost);
  return __TVMBackendParallelLaunch(run_chunk, &loop, tasks);
}

EXPORT void* take(uint64_t bytes) { return __TVMBackendAllocWorkspace(1, 0, bytes, 2, 32); }
EXPORT int give(void* data) { return __TVMBackendFreeWorkspace(1, 0, data); }
EXPORT int cpu_level() { return opsgen_cpu_level(); }
EXPORT const char* threads_runtime() { return opsgen_threads_runtime(); }

// f(task, tasks, mode): a loop whose chunk `task` fails on the thread that runs it. mode 0: with a message; 1:
// silently; 2: every chunk fails; 3: in a barrier whose result is ignored; 4: out of memory, holding scratch.
EXPORT int __tvm_ffi_fail(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  struct Wanted {
    int task, mode;
  } wanted{static_cast<int>(args[0].v_int64), static_cast<int>(args[2].v_int64)};
  auto chunk = [](int task, Env* env, void* closure) {
    Wanted& wanted = *static_cast<Wanted*>(closure);
    timespec nap{0, 200000};  // long enough for every thread to take part
    nanosleep(&nap, nullptr);
    if (task != wanted.task && wanted.mode != 2) return 0;
    if (wanted.mode == 1) return -1;
    if (wanted.mode == 3) return __TVMBackendParallelBarrier(task, env), 0;
    if (wanted.mode == 4) return memset(take(8 << 20), 1, 8 << 20), take(uint64_t{1} << 60) ? 0 : -1;
    char text[64];
    snprintf(text, sizeof(text), "chunk %d on thread %ld", task, syscall(SYS_gettid));
    TVMFFIErrorSetRaisedFromCStr("ValueError", text);
    return -1;
  };
  return __TVMBackendParallelLaunch(chunk, &wanted, static_cast<int>(args[1].v_int64));
}
