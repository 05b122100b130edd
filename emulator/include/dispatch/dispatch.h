// The part of Grand Central Dispatch that Metal extensions of torch use: serial
// queues, and data objects.
//
// The differences from libdispatch are:
// - Dispatch objects are plain C pointers, in Objective-C too.
// - Every queue is serial.
// - If a block calls dispatch_sync() on the queue that runs the block, or if an
//   exception leaves a block, the program ends with a message.  On a Mac, the
//   first mistake hangs the program, and the second mistake calls
//   std::terminate().
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DISPATCH_EXPORT __attribute__((visibility("default")))

// Every kind of object converts to dispatch_object_t.
typedef struct dispatch_object_s {
} *dispatch_object_t;
#define DISPATCH_DECL(name) \
  typedef struct name##_s : dispatch_object_s{} * name##_t

DISPATCH_DECL(dispatch_data);
DISPATCH_DECL(dispatch_queue);

extern "C" {

// ---- reference counts
DISPATCH_EXPORT void dispatch_release(dispatch_object_t object);

#ifdef __BLOCKS__
typedef void (^dispatch_block_t)(void);

// ---- queues
DISPATCH_EXPORT void dispatch_sync(dispatch_queue_t queue,
                                   dispatch_block_t block);

// ---- data objects; the only destructor is DISPATCH_DATA_DESTRUCTOR_DEFAULT
#define DISPATCH_DATA_DESTRUCTOR_DEFAULT ((dispatch_block_t)0)

DISPATCH_EXPORT dispatch_data_t
dispatch_data_create(const void *buffer, size_t size, dispatch_queue_t queue,
                     dispatch_block_t destructor);
#endif

}  // extern "C"
