// What TVM's generated x86 objects need at run time: parallel loops, scratch memory, and the CPU's level.
//
// Every x86 library file carries a copy, so that it needs neither TVM's runtime nor a particular OpenMP. Nothing here
// is visible outside the library, except what the linker's version script lets out (`__tvm_ffi_*`).
//
// Environment, read at the first parallel loop:
//   OPSGEN_OPENMP=0     use no OpenMP runtime, but this file's own pool of threads
//   OPSGEN_OPENMP=1     where no OpenMP runtime is in the process, load libgomp rather than use the pool
//   OMP_NUM_THREADS     the pool's size (an OpenMP runtime reads it itself); default: the CPUs this process may run on
#include <cpuid.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

struct TVMParallelGroupEnv {
  void* sync_handle;
  int32_t num_task;
};
using FTVMParallelLambda = int (*)(int task_id, TVMParallelGroupEnv* env, void* closure);

namespace {

// Work one more thread must be given. Measured: fork and join take 0.6 µs with two OpenMP threads (EPYC), 6 to 8 µs
// with 16 (Xeon), but 20 to 50 µs where the threads sleep, which they do milliseconds after the last loop. Two shares
// of 20 µs are faster than 40 µs alone in a run of loops, and a lone one loses little.
constexpr int64_t kGrainNanoseconds = 20000;
constexpr int kChunksPerThread = 4;  // enough to even out unequal threads; each more costs one atomic and a prologue
constexpr int kMaxThreads = 256;
constexpr int kPoolSpins = 2000;

// --- Scratch memory --------------------------------------------------------------------------------------------------
// Generated code takes and returns scratch at every call, often at every iteration; from malloc a large block would be
// fresh, unmapped pages each time. A block is always returned by the thread that took it, so no lock is needed.
constexpr int kBlocks = 16;
constexpr size_t kRetainedBytes = size_t{64} << 20;  // kept by a thread while unused

struct Block {
  void* data;
  size_t size;
  uint64_t stamp;  // of its last use
  bool used;
};
thread_local Block blocks[kBlocks];
thread_local uint64_t block_clock;
thread_local bool thread_ending;

void trim_blocks(size_t limit) {
  for (;;) {
    size_t retained = 0;
    Block* oldest = nullptr;
    for (Block& block : blocks) {
      if (!block.data || block.used) continue;
      retained += block.size;
      if (!oldest || block.stamp < oldest->stamp) oldest = &block;
    }
    if (retained <= limit) return;
    free(oldest->data);
    *oldest = Block{};
  }
}

// Beside the plain data above, because other destructors may still call kernels after this one has run.
struct BlockGuard {
  bool armed = false;
  ~BlockGuard() { thread_ending = true, trim_blocks(0); }
};
thread_local BlockGuard block_guard;

// Code that returns an error does not return its scratch. What was taken after `stamp` becomes free, but stays in the
// table, so that a caller that does tidy up may still return it.
void abandon_blocks(uint64_t stamp) {
  for (Block& block : blocks)
    if (block.used && block.stamp > stamp) block.used = false;
}

void* take_block(size_t size) {
  size = (std::max<size_t>(size, 64) + 63) & ~size_t{63};
  block_guard.armed = true;  // touching it registers its destructor
  Block *best = nullptr, *slot = nullptr;
  for (Block& block : blocks) {
    if (block.used) continue;
    bool fits = block.data && block.size >= size && block.size <= 4 * size + 65536;
    if (fits && (!best || block.size < best->size)) best = &block;
    if (!slot || !block.data || (slot->data && block.stamp < slot->stamp)) slot = &block;
  }
  if (!best) {
    void* data = nullptr;
    if (posix_memalign(&data, 64, size) != 0) {
      trim_blocks(0);
      if (posix_memalign(&data, 64, size) != 0) return nullptr;
    }
    if (!slot || thread_ending) return data;  // outside the table; give_block frees it
    free(slot->data);
    *slot = Block{data, size, 0, false};
    best = slot;
  }
  best->used = true;
  best->stamp = ++block_clock;
  return best->data;
}

void give_block(void* data) {
  for (Block& block : blocks) {
    if (block.data != data) continue;
    block.used = false;
    block.stamp = block.size > kRetainedBytes ? 0 : ++block_clock;  // too large to keep: goes first
    return trim_blocks(kRetainedBytes);
  }
  free(data);
}

// --- One parallel loop -----------------------------------------------------------------------------------------------
thread_local bool inside_loop;  // a loop within a loop runs on its thread

struct Job {
  FTVMParallelLambda lambda;
  void* closure;
  TVMParallelGroupEnv env;  // env.num_task chunks
  int threads;
  std::atomic<int> code{0};   // the first failure's
  void* error = nullptr;      // the first failure's error object, owned
  struct alignas(64) Share {  // the chunks [next, end) of one thread; a cache line each
    std::atomic<int> next;
    int end;
  } shares[kMaxThreads];

  Job(FTVMParallelLambda lambda, void* closure, int chunks, int threads)
      : lambda(lambda), closure(closure), env{this, chunks}, threads(threads) {
    for (int i = 0; i < threads; ++i) {
      shares[i].next.store(static_cast<int>(int64_t{chunks} * i / threads), std::memory_order_relaxed);
      shares[i].end = static_cast<int>(int64_t{chunks} * (i + 1) / threads);
    }
  }

  // Errors lie in thread-local storage of the thread that failed: take them from there for finish() to raise on the
  // caller's.
  void fail(int result) {
    void* raised = nullptr;
    int none = 0;
    TVMFFIErrorMoveFromRaised(&raised);
    if (code.compare_exchange_strong(none, result)) error = raised;
    else if (raised) TVMFFIObjectDecRef(raised);
  }

  // Runs thread `me`'s own chunks, so that its cache serves it from call to call, then what others have left. Any
  // number of threads finishes the job, even one: OpenMP may give fewer than were asked for.
  void work(int me) {
    bool outer = inside_loop;
    inside_loop = true;
    for (int i = 0; i < threads; ++i) {
      Share& share = shares[(me + i) % threads];
      while (share.next.load(std::memory_order_relaxed) < share.end && code.load(std::memory_order_relaxed) == 0) {
        int chunk = share.next.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= share.end) break;
        uint64_t stamp = block_clock;
        if (int result = lambda(chunk, &env, closure)) {
          abandon_blocks(stamp);
          fail(result);
        }
      }
    }
    inside_loop = outer;
  }

  int finish() {  // after every thread has left work()
    int result = code.load();
    if (result == 0) return 0;
    if (error) {
      TVMFFIErrorSetRaised(error);
      TVMFFIObjectDecRef(error);
    } else {  // a failure without an error would crash whoever fetches it
      TVMFFIErrorSetRaisedFromCStr("InternalError", "a part of a parallel loop failed and gave no reason");
    }
    if (!inside_loop) abandon_blocks(0);
    return result;
  }
};

// --- Own pool --------------------------------------------------------------------------------------------------------
// Serves one loop at a time. Its threads are detached and only ever wait for the next loop, and nothing here has a
// destructor: there is nothing to hang on at exit.
struct Pool {
  pthread_mutex_t serving = PTHREAD_MUTEX_INITIALIZER;  // held while a loop runs; guards `created`, `full`
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;    // guards the rest
  pthread_cond_t start = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
  Job* job = nullptr;
  std::atomic<uint64_t> generation{0};
  int running = 0;
  int created = 0;
  bool full = false;  // a thread could not be created: stay with those there are
} pool;

void* pool_thread(void* argument) {
  int me = static_cast<int>(reinterpret_cast<intptr_t>(argument));
  uint64_t seen = 0;
  pthread_mutex_lock(&pool.mutex);
  for (;;) {
    // A thread that sleeps takes some 30 µs to wake: look out for the next loop a moment longer than that.
    pthread_mutex_unlock(&pool.mutex);
    for (int i = 0; i < kPoolSpins && pool.generation.load(std::memory_order_relaxed) == seen; ++i) {
      __builtin_ia32_pause();
    }
    pthread_mutex_lock(&pool.mutex);
    while (!pool.job || pool.generation == seen || me >= pool.job->threads) pthread_cond_wait(&pool.start, &pool.mutex);
    seen = pool.generation;
    Job* job = pool.job;
    ++pool.running;
    pthread_mutex_unlock(&pool.mutex);
    job->work(me);
    pthread_mutex_lock(&pool.mutex);
    if (--pool.running == 0) pthread_cond_signal(&pool.done);
  }
}

void grow_pool(int threads) {
  if (pool.created == 0) {  // the threads run this code for ever: it must not be unloaded
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(pool_thread), &self)) {
      dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  while (pool.created < threads - 1) {
    pthread_t thread;
    pool.full = pthread_create(&thread, nullptr, pool_thread, reinterpret_cast<void*>(intptr_t{pool.created + 1})) != 0;
    if (pool.full) break;
    pthread_setname_np(thread, "opsgen-pool");
    pthread_detach(thread);
    ++pool.created;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void run_on_pool(Job& job) {
  if (pthread_mutex_trylock(&pool.serving) != 0) return job.work(0);  // busy with another caller's loop
  if (pool.created < job.threads - 1 && !pool.full) grow_pool(job.threads);
  pthread_mutex_lock(&pool.mutex);
  pool.job = &job;
  ++pool.generation;
  pthread_mutex_unlock(&pool.mutex);
  pthread_cond_broadcast(&pool.start);
  job.work(0);
  pthread_mutex_lock(&pool.mutex);
  pool.job = nullptr;  // a thread that wakes up only now has missed it, and nobody waits for it
  while (pool.running > 0) pthread_cond_wait(&pool.done, &pool.mutex);
  pthread_mutex_unlock(&pool.mutex);
  pthread_mutex_unlock(&pool.serving);
}

// --- Which threads to use --------------------------------------------------------------------------------------------
// OpenMP is looked up, not linked: two OpenMP runtimes in one process fight for the same cores, so the one that torch
// or another library brought must be used, whatever its name. libgomp, libiomp5 and libomp all have GNU's entry points.
// Where nobody brought one, the pool is better: OpenMP's threads all meet at the end of a loop, also those that had
// nothing to do; when another process holds one's core, that takes the kernel's time slice. (MiniLM, one sentence, two
// cores with one busy: 129 ms with libgomp, 5.5 ms with the pool; both idle: 3.5 and 4.)
struct Runtime {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags);
  int (*max_threads)();  // the caller's setting: OMP_NUM_THREADS, torch.set_num_threads
  int (*in_parallel)();
  int (*thread_num)();
  bool openmp;    // run loops on OpenMP's threads; else on the pool
  bool settled;   // never to be looked for again
  int pool_size;  // used where there is no OpenMP to ask for its maximum
  unsigned long long objects;  // loaded into the process so far, when it was looked for
  char path[1024];
};
std::atomic<const Runtime*> current_runtime{nullptr};  // replaced ones are not freed: another thread may read them
pthread_mutex_t runtime_mutex = PTHREAD_MUTEX_INITIALIZER;
bool forked = false;

int find_openmp_object(dl_phdr_info* object, size_t, void* result) {
  const char* base = basename(object->dlpi_name);
  if (!strstr(base, "libgomp") && !strstr(base, "libiomp5") && !strstr(base, "libomp.")) return 0;
  snprintf(static_cast<char*>(result), sizeof(Runtime::path), "%s", object->dlpi_name);
  return 1;
}

// This library may have been loaded after the fork, too late for after_fork_in_child: ask the kernel (PF_FORKNOEXEC in
// field 9).
bool forked_without_exec() {
  char text[1024] = "";
  if (FILE* file = fopen("/proc/self/stat", "re")) {
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
  }
  unsigned flags = 0;
  const char* end_of_name = strrchr(text, ')');
  return end_of_name && sscanf(end_of_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & 0x40);
}

int default_pool_size() {
  const char* text = getenv("OMP_NUM_THREADS");
  if (int wanted = text ? atoi(text) : 0; wanted > 0) return wanted;
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

// Grows with every object that is loaded: torch may come after the first loop.
unsigned long long loaded_objects() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* result) {
        *static_cast<unsigned long long*>(result) = object->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

void find_runtime(Runtime& runtime) {
  runtime.objects = loaded_objects();
  runtime.pool_size = default_pool_size();
  const char* wanted = getenv("OPSGEN_OPENMP");
  runtime.settled = wanted && strcmp(wanted, "0") == 0;
  if (runtime.settled) return;
  Dl_info info;
  void* symbol = dlsym(RTLD_DEFAULT, "GOMP_parallel");
  if (symbol && dladdr(symbol, &info)) snprintf(runtime.path, sizeof(runtime.path), "%s", info.dli_fname);
  bool fresh = !symbol && !dl_iterate_phdr(find_openmp_object, runtime.path);
  if (fresh && !(wanted && strcmp(wanted, "1") == 0)) return;
  void* object = dlopen(fresh ? "libgomp.so.1" : runtime.path, RTLD_LAZY | RTLD_NODELETE | (fresh ? 0 : RTLD_NOLOAD));
  if (!object && !symbol) return;  // with a symbol it is part of the executable: null is RTLD_DEFAULT, which finds it
  if (fresh) dl_iterate_phdr(find_openmp_object, runtime.path);
  // All from one object: a process may hold several runtimes.
  reinterpret_cast<void*&>(runtime.parallel) = dlsym(object, "GOMP_parallel");
  reinterpret_cast<void*&>(runtime.max_threads) = dlsym(object, "omp_get_max_threads");
  reinterpret_cast<void*&>(runtime.in_parallel) = dlsym(object, "omp_in_parallel");
  reinterpret_cast<void*&>(runtime.thread_num) = dlsym(object, "omp_get_thread_num");
  bool complete = runtime.parallel && runtime.max_threads && runtime.in_parallel && runtime.thread_num;
  if (!complete) runtime.max_threads = runtime.in_parallel = nullptr;
  // A runtime that came through a fork believes in threads that did not, and would wait for them for ever. Asking it
  // for its settings is harmless, though: the pool obeys torch.set_num_threads in the workers of a data loader.
  runtime.openmp = complete && (fresh || !(forked || forked_without_exec()));
  runtime.settled = complete;
}

bool still_good(const Runtime* runtime) {
  return runtime && (runtime->settled || runtime->objects == loaded_objects());
}

const Runtime& the_runtime() {
  const Runtime* found = current_runtime.load(std::memory_order_acquire);
  if (still_good(found)) return *found;
  pthread_mutex_lock(&runtime_mutex);
  found = current_runtime.load(std::memory_order_relaxed);
  if (!still_good(found)) {
    Runtime* fresh = new (std::nothrow) Runtime{};
    static Runtime alone{};  // no memory: one thread
    if (fresh) find_runtime(*fresh);
    found = fresh ? fresh : &alone;
    if (fresh) current_runtime.store(found, std::memory_order_release);
  }
  pthread_mutex_unlock(&runtime_mutex);
  return *found;
}

int thread_limit(const Runtime& found) {
  if (found.in_parallel && found.in_parallel()) return 1;
  int limit = found.max_threads ? found.max_threads() : found.pool_size;
  return std::min(std::max(limit, 1), kMaxThreads);
}

// Only the thread that forked lives on in the child: locks that others held stay locked, and the pool has no threads.
void after_fork_in_child() {
  forked = true;
  current_runtime.store(nullptr);
  runtime_mutex = PTHREAD_MUTEX_INITIALIZER;
  new (&pool) Pool;
}

__attribute__((constructor)) void watch_forks() { pthread_atfork(nullptr, nullptr, after_fork_in_child); }

thread_local int64_t stated_cost = INT64_MAX;

// Only called while an OpenMP runtime is the current one, which it then stays.
void openmp_thread(void* job) {
  static_cast<Job*>(job)->work(current_runtime.load(std::memory_order_relaxed)->thread_num());
}

}  // namespace

extern "C" {

// The one-thread time of this thread's next parallel loop. Without it a loop takes all threads.
int32_t opsgen_parallel_cost(int64_t nanoseconds) {
  stated_cost = nanoseconds;
  return 0;
}

int TVMBackendParallelLaunch(FTVMParallelLambda lambda, void* closure, int num_task) {
  int64_t useful = stated_cost / kGrainNanoseconds;
  stated_cost = INT64_MAX;
  int threads = 1;
  const Runtime* found = nullptr;
  if (useful > 1 && !inside_loop && num_task != 1) {
    threads = static_cast<int>(std::min<int64_t>(thread_limit(*(found = &the_runtime())), useful));
    if (num_task > 0) threads = std::min(threads, num_task);
  }
  int chunks = num_task > 0 ? num_task : threads == 1 ? 1 : threads * kChunksPerThread;
  Job job(lambda, closure, chunks, threads);
  if (threads == 1) job.work(0);
  else if (found->openmp) found->parallel(openmp_thread, &job, static_cast<unsigned>(threads), 0);
  else run_on_pool(job);
  return job.finish();
}

// Chunks of one loop do not run at the same time, so they cannot wait for one another; opsgen emits no barrier.
// Generated code ignores the result: the loop itself fails.
int TVMBackendParallelBarrier(int, TVMParallelGroupEnv* env) {
  if (env->num_task == 1) return 0;
  TVMFFIErrorSetRaisedFromCStr("InternalError", "barriers within a parallel loop are not supported");
  static_cast<Job*>(env->sync_handle)->fail(-1);
  return -1;
}

// Where it returns null, generated code returns -1 at once and leaves the error to us.
void* TVMBackendAllocWorkspace(int, int, uint64_t bytes, int, int) {
  void* data = bytes <= PTRDIFF_MAX ? take_block(bytes) : nullptr;
  if (!data) {
    char text[32];
    snprintf(text, sizeof(text), "%llu", static_cast<unsigned long long>(bytes));
    TVMFFIErrorSetRaisedFromCStr("OpsgenMemory", text);
    if (!inside_loop) abandon_blocks(0);
  }
  return data;
}

int TVMBackendFreeWorkspace(int, int, void* data) {
  give_block(data);
  return 0;
}

// Generated objects call through these variables, of which they hold weak null definitions. Ours are strong, so the
// linker takes them, and hidden, so that libtvm_ffi, which fills in such variables when it loads a library, finds none
// to overwrite.
decltype(&TVMBackendParallelLaunch) __TVMBackendParallelLaunch = TVMBackendParallelLaunch;
decltype(&TVMBackendParallelBarrier) __TVMBackendParallelBarrier = TVMBackendParallelBarrier;
decltype(&TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = TVMBackendAllocWorkspace;
decltype(&TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = TVMBackendFreeWorkspace;

// What this thread's parallel loops run on: "openmp <path>", "pool" or "serial", and the most threads they take.
const char* opsgen_threads_runtime() {
  static thread_local char text[sizeof(Runtime::path) + 32];
  const Runtime& found = the_runtime();
  int limit = thread_limit(found);
  if (found.openmp) snprintf(text, sizeof(text), "openmp %s, %d threads", found.path, limit);
  else if (limit > 1 && !(pool.full && pool.created == 0)) snprintf(text, sizeof(text), "pool, %d threads", limit);
  else snprintf(text, sizeof(text), "serial, 1 thread");
  return text;
}

// 2: AVX-512 F, BW, CD, DQ, VL (x86-64-v4); 1: AVX2, FMA, F16C, BMI and the rest of x86-64-v3; 0: less. The operating
// system must save the registers too.
int32_t opsgen_cpu_level() {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  constexpr unsigned kOne = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C | bit_MOVBE;
  if ((c & kOne) != kOne) return 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x06) != 0x06) return 0;  // xmm, ymm
  if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & bit_LZCNT)) return 0;
  constexpr unsigned kTwo = bit_AVX2 | bit_BMI | bit_BMI2;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & kTwo) != kTwo) return 0;
  constexpr unsigned kThree = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
  return (b & kThree) == kThree && (low & 0xe0) == 0xe0 ? 2 : 1;  // 0xe0: mask registers, zmm0-15, zmm16-31
}

// The same two for Python: library["opsgen_threads_runtime"]() and library["opsgen_cpu_level"]().
#define OPSGEN_EXPORT __attribute__((visibility("default")))
OPSGEN_EXPORT int __tvm_ffi_opsgen_threads_runtime(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  const char* text = opsgen_threads_runtime();
  TVMFFIByteArray bytes{text, strlen(text)};
  return TVMFFIStringFromByteArray(&bytes, result);
}
OPSGEN_EXPORT int __tvm_ffi_opsgen_cpu_level(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = opsgen_cpu_level();
  return 0;
}

}  // extern "C"
