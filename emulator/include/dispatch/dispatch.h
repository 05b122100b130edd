// The part of Grand Central Dispatch that programs beside torch use: work in
// torch's serial queue, and bytes.
//
// Differences from libdispatch: the objects are plain C pointers in Objective-C
// too; every queue is serial; the program ends with a message for
// dispatch_sync() on the caller's own queue, and for an exception that leaves a
// block, instead of a hang or a bare std::terminate().
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

// ---- bytes: DISPATCH_DATA_DESTRUCTOR_DEFAULT is the only destructor
#define DISPATCH_DATA_DESTRUCTOR_DEFAULT ((dispatch_block_t)0)

DISPATCH_EXPORT dispatch_data_t
dispatch_data_create(const void *buffer, size_t size, dispatch_queue_t queue,
                     dispatch_block_t destructor);
#endif

}  // extern "C"
