// The functions of dispatch/dispatch.h.
#include <Foundation/Foundation.h>
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "core/counters.h"
#include "core/fatal.h"
#include "metal/dispatch_queue.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

struct Semaphore : DispatchObject {
  std::mutex mutex;
  std::condition_variable signaled;
  intptr_t value;
};

struct Data : DispatchObject {
  std::string bytes;
};

DispatchQueue *QueueOf(dispatch_queue_t handle, const char *what) {
  if (!handle) Fatal("%s: the queue is NULL", what);
  return static_cast<DispatchQueue *>(FromHandle(handle));
}

Semaphore *SemaphoreOf(dispatch_semaphore_t handle) {
  return static_cast<Semaphore *>(FromHandle(handle));
}

// A deadlock: a thread in torch's queue waits for the GIL, and the thread that
// holds the GIL waits for the queue.
void CountIfGilIsHeld() {
  static auto *const holds_gil =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (holds_gil && holds_gil()) Count(kSyncsWithGil);
}

uint64_t NanosecondsNow() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

void dispatch_retain(dispatch_object_t object) {
  FromHandle(object)->references.fetch_add(1, std::memory_order_relaxed);
}

void dispatch_release(dispatch_object_t object) {
  DispatchObject *mine = FromHandle(object);
  if (mine->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete mine;
}

dispatch_queue_t dispatch_queue_create(const char *label,
                                       dispatch_queue_attr_t attributes) {
  if (attributes != DISPATCH_QUEUE_SERIAL)
    Fatal("dispatch_queue_create: the emulator has serial queues only");
  return ToHandle(new DispatchQueue(label ? label : ""));
}

const char *dispatch_queue_get_label(dispatch_queue_t queue) {
  return QueueOf(queue, __func__)->label().c_str();
}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  CountIfGilIsHeld();
  QueueOf(queue, __func__)->Sync(block);
}

void dispatch_sync_f(dispatch_queue_t queue, void *context,
                     dispatch_function_t work) {
  CountIfGilIsHeld();
  QueueOf(queue, __func__)->Sync([=] { work(context); });
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_block_t copy = [block copy];
  QueueOf(queue, __func__)->Async([copy] {
    copy();
    [copy release];
  });
}

void dispatch_async_f(dispatch_queue_t queue, void *context,
                      dispatch_function_t work) {
  QueueOf(queue, __func__)->Async([=] { work(context); });
}

void dispatch_assert_queue(dispatch_queue_t queue) {
  if (!QueueOf(queue, __func__)->RunsOnThisThread())
    Fatal("dispatch_assert_queue: the caller does not run on queue \"%s\"",
          dispatch_queue_get_label(queue));
}

void dispatch_assert_queue_not(dispatch_queue_t queue) {
  if (QueueOf(queue, __func__)->RunsOnThisThread())
    Fatal("dispatch_assert_queue_not: the caller runs on queue \"%s\"",
          dispatch_queue_get_label(queue));
}

void dispatch_once_f(dispatch_once_t *predicate, void *context,
                     dispatch_function_t function) {
  // 0: no thread yet; 1: a thread runs the block; ~0: done.
  constexpr dispatch_once_t kDone = ~dispatch_once_t{0};
  if (__atomic_load_n(predicate, __ATOMIC_ACQUIRE) == kDone) return;
  static std::recursive_mutex *mutex = new std::recursive_mutex;
  std::lock_guard<std::recursive_mutex> lock(*mutex);
  if (__atomic_load_n(predicate, __ATOMIC_ACQUIRE) == kDone) return;
  if (*predicate) Fatal("dispatch_once: the block waits for its own predicate");
  *predicate = 1;
  function(context);
  __atomic_store_n(predicate, kDone, __ATOMIC_RELEASE);
}

void dispatch_once(dispatch_once_t *predicate, dispatch_block_t block) {
  dispatch_once_f(predicate, &block, [](void *context) {
    (*static_cast<dispatch_block_t *>(context))();
  });
}

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta) {
  if (when == DISPATCH_TIME_FOREVER) return when;
  if (when == DISPATCH_TIME_NOW) when = NanosecondsNow();
  return when + static_cast<uint64_t>(delta);
}

dispatch_semaphore_t dispatch_semaphore_create(intptr_t value) {
  if (value < 0) return nullptr;
  Semaphore *semaphore = new Semaphore;
  semaphore->value = value;
  return reinterpret_cast<dispatch_semaphore_t>(
      static_cast<DispatchObject *>(semaphore));
}

intptr_t dispatch_semaphore_wait(dispatch_semaphore_t handle,
                                 dispatch_time_t timeout) {
  Semaphore *semaphore = SemaphoreOf(handle);
  {
    std::lock_guard<std::mutex> lock(semaphore->mutex);
    if (semaphore->value > 0) {
      --semaphore->value;
      return 0;
    }
  }
  if (timeout != DISPATCH_TIME_NOW) LetDeviceProgress();
  std::unique_lock<std::mutex> lock(semaphore->mutex);
  auto signaled = [&] { return semaphore->value > 0; };
  if (timeout == DISPATCH_TIME_FOREVER) {
    semaphore->signaled.wait(lock, signaled);
  } else {
    uint64_t now = NanosecondsNow();
    std::chrono::nanoseconds left(timeout > now ? timeout - now : 0);
    if (!semaphore->signaled.wait_for(lock, left, signaled)) return 1;
  }
  --semaphore->value;
  return 0;
}

intptr_t dispatch_semaphore_signal(dispatch_semaphore_t handle) {
  Semaphore *semaphore = SemaphoreOf(handle);
  std::lock_guard<std::mutex> lock(semaphore->mutex);
  ++semaphore->value;
  semaphore->signaled.notify_one();
  return 0;
}

dispatch_data_t dispatch_data_create(const void *buffer, size_t size,
                                     dispatch_queue_t,
                                     dispatch_block_t destructor) {
  if (destructor != DISPATCH_DATA_DESTRUCTOR_DEFAULT)
    Fatal("dispatch_data_create: the emulator copies the bytes; pass "
          "DISPATCH_DATA_DESTRUCTOR_DEFAULT, its only destructor");
  Data *data = new Data;
  data->bytes.assign(static_cast<const char *>(buffer), size);
  return reinterpret_cast<dispatch_data_t>(static_cast<DispatchObject *>(data));
}

size_t dispatch_data_get_size(dispatch_data_t data) {
  return static_cast<Data *>(FromHandle(data))->bytes.size();
}
