// Message lookup, the objects that blocks capture, and exceptions.
#include <Foundation/Foundation.h>
#include <dlfcn.h>
#include <objc/message.h>
#include <objc/runtime.h>

#include <cstdint>

#include "core/fatal.h"
#include "core/memory.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

extern "C" int __gxx_personality_v0(int, int, uint64_t, void *, void *);

namespace {

// The method for a message that the receiver does not understand.
id Refuse(id receiver, SEL selector, ...) {
  [receiver doesNotRecognizeSelector:selector];
  return nil;
}

// Without this function, libobjc would look for a method named forward::, and
// fail if the program has none.  A constructor sets the function, so that it is
// in place before any method of a program runs.
__attribute__((constructor)) void SetForwarding() {
  __objc_msg_forward2 = [](id, SEL) -> IMP { return &Refuse; };
}

// The number by which the compiler marks a captured variable that holds an
// object.  A __block variable has another number, because it does not retain
// its object.
constexpr int kFieldIsObject = 3;
constexpr int kFieldKindMask = 0xFF;

}  // namespace

// The code that clang makes for GCC's runtime calls this function for each
// message.  In every link line the emulator comes before libobjc (see cmake/),
// so the linker takes this definition.
extern "C" __attribute__((visibility("default"))) IMP
objc_msg_lookup(id receiver, SEL selector) {
  using Lookup = IMP (*)(id, SEL);
  static Lookup lookup =
      reinterpret_cast<Lookup>(dlsym(RTLD_NEXT, "objc_msg_lookup"));
  if (IsHandleAddress(receiver)) return LookUpBufferMethod(receiver, selector);
  if (PointersAreAddresses() && receiver)
    if (const Buffer *buffer = FindByPointer(receiver))
      Fatal(
          "-[MTLBuffer %s]: a message to the data pointer of a tensor on mps. "
          "With MPS_EMULATOR_POINTERS=addresses, the data pointer is the "
          "host's address of MTLBuffer #%lu: ask getMTLBufferStorage() of "
          "<ATen/native/mps/OperationUtils.h> for the buffer",
          sel_getName(selector), buffer->id);
  return lookup(receiver, selector);
}

// A copied block retains the objects that it captures, and releases them when
// the block is freed.  libBlocksRuntime does not support objects.  A library
// that has objects must define the following two functions.
extern "C" __attribute__((visibility("default"))) void _Block_object_assign(
    void *destination, const void *object, const int flags) {
  if ((flags & kFieldKindMask) == kFieldIsObject) {
    id captured = static_cast<id>(const_cast<void *>(object));
    *static_cast<id *>(destination) = [captured retain];
    return;
  }
  using Assign = void (*)(void *, const void *, int);
  static Assign assign =
      reinterpret_cast<Assign>(dlsym(RTLD_NEXT, "_Block_object_assign"));
  assign(destination, object, flags);
}

extern "C" __attribute__((visibility("default"))) void _Block_object_dispose(
    const void *object, const int flags) {
  if ((flags & kFieldKindMask) == kFieldIsObject) {
    [static_cast<id>(const_cast<void *>(object)) release];
    return;
  }
  using Dispose = void (*)(const void *, int);
  static Dispose dispose =
      reinterpret_cast<Dispose>(dlsym(RTLD_NEXT, "_Block_object_dispose"));
  dispose(object, flags);
}

// For each function of an Objective-C++ file, clang names GCC's Objective-C
// personality routine, which ignores C++ catch clauses that name a type.  C++'s
// own routine works for both languages.
extern "C" __attribute__((visibility("default"))) int __gnu_objc_personality_v0(
    int version, int actions, uint64_t exception_class, void *exception,
    void *context) {
  return __gxx_personality_v0(version, actions, exception_class, exception,
                              context);
}
