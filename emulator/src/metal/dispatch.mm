// The functions of dispatch/dispatch.h.
#include <Foundation/Foundation.h>
#include <dlfcn.h>

#include <string>

#include "core/counters.h"
#include "core/fatal.h"
#include "metal/dispatch_queue.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

struct Data : DispatchObject {
  std::string bytes;
};

DispatchQueue *QueueOf(dispatch_queue_t handle, const char *what) {
  if (!handle) Fatal("%s: the queue is NULL", what);
  return static_cast<DispatchQueue *>(FromHandle(handle));
}

// A deadlock: a thread in torch's queue waits for the GIL, and the thread that
// holds the GIL waits for the queue.
void CountIfGilIsHeld() {
  static auto *const holds_gil =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (holds_gil && holds_gil()) Count(kSyncsWithGil);
}

}  // namespace

void dispatch_release(dispatch_object_t object) {
  DispatchObject *mine = FromHandle(object);
  if (mine->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete mine;
}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  CountIfGilIsHeld();
  QueueOf(queue, __func__)->Sync(block);
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
