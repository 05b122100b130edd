// The functions of dispatch/dispatch.h.
#include <Foundation/Foundation.h>
#include <dlfcn.h>

#include "core/counters.h"
#include "core/fatal.h"
#include "metal/dispatch_queue.h"

using namespace mps_emulator;

namespace {

// Counts the calls that can cause a deadlock: the calling thread holds the GIL
// and waits for torch's queue, while a thread in the queue waits for the GIL.
void CountIfGilIsHeld() {
  static auto *const holds_gil =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (holds_gil && holds_gil()) Count(kSyncsWithGil);
}

}  // namespace

// dispatch.h has no dispatch_retain(), so an object has only one reference.
void dispatch_release(dispatch_object_t object) { delete FromHandle(object); }

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  if (!queue) Fatal("dispatch_sync: the queue is NULL");
  CountIfGilIsHeld();
  static_cast<DispatchQueue *>(FromHandle(queue))->Sync(block);
}

dispatch_data_t dispatch_data_create(const void *buffer, size_t size,
                                     dispatch_queue_t,
                                     dispatch_block_t destructor) {
  if (destructor != DISPATCH_DATA_DESTRUCTOR_DEFAULT)
    Fatal("dispatch_data_create: pass DISPATCH_DATA_DESTRUCTOR_DEFAULT, the "
          "emulator's only destructor");
  auto *data = new DispatchData;
  data->content.assign(static_cast<const char *>(buffer), size);
  return reinterpret_cast<dispatch_data_t>(static_cast<DispatchObject *>(data));
}
