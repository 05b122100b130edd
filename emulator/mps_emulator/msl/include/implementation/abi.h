// What a compiled kernel library and the executor agree on.  Read twice: as
// C++ by the executor and as C++ for OpenCL by every kernel library, so it
// holds only types whose layout is the same in both.
#ifndef MPS_EMULATOR_MSL_ABI_H_
#define MPS_EMULATOR_MSL_ABI_H_

#ifdef __OPENCL_CPP_VERSION__
MSL_ALLOW_FUNCTION_POINTERS
#define MPS_EMULATOR_MSL_TEXT const __constant char
#else
#define MPS_EMULATOR_MSL_TEXT const char
#endif

// Raised with every change of this file: a cached library of another version
// is not loaded.
enum { kMpsEmulatorMslAbiVersion = 4 };

enum { kMpsEmulatorMslMaxBuffers = 31 };

// One dispatch, as the threads of one threadgroup see it.  Sizes and
// positions are in threads or threadgroups, x first.
struct mps_emulator_msl_launch {
  void *buffers[kMpsEmulatorMslMaxBuffers];
  void *threadgroup_buffers[kMpsEmulatorMslMaxBuffers];
  unsigned threadgroup_position[3];
  unsigned threadgroup_size[3];  // of this threadgroup; smaller at the edge
  unsigned dispatch_threadgroup_size[3];
  unsigned grid_size[3];
  unsigned threadgroup_count[3];
};

// Runs `count` consecutive threads of a row, beginning with the thread at
// (x, y, z) of the threadgroup.
typedef void (*mps_emulator_msl_thunk)(const mps_emulator_msl_launch *launch,
                                       unsigned x, unsigned y, unsigned z,
                                       unsigned count);

// What kernel code asks of the executor.  `site` tells one call in the source
// from every other: line * 2^32 + column.

// The thread's index in its threadgroup.
typedef unsigned (*mps_emulator_msl_thread_index)();

typedef void (*mps_emulator_msl_threadgroup_barrier)(unsigned flags,
                                                     unsigned long site);

// Waits for the other active threads of the simdgroup.  Returns the `size`
// bytes at `value` of all 32 lanes one after another, valid until this
// thread's next exchange; what stands at lanes that take no part is poison.
struct mps_emulator_msl_lanes {
  unsigned active;   // bit i: lane i takes part
  unsigned present;  // bit i: the simdgroup has a lane i
};
typedef const void *(*mps_emulator_msl_simdgroup_exchange)(
    const void *value, unsigned size, unsigned long site,
    mps_emulator_msl_lanes *lanes);

// The address of a threadgroup variable, the same for all threads of a
// threadgroup.  `slot` tells the variables of a kernel apart.
typedef void *(*mps_emulator_msl_threadgroup_variable)(unsigned slot,
                                                       unsigned long size,
                                                       unsigned long alignment);

// A function that suspends its thread is called at `site`, or has returned.
// A barrier in a function is another barrier for every call of the function.
typedef void (*mps_emulator_msl_enter_call)(unsigned long site);
typedef void (*mps_emulator_msl_leave_call)();

// The rest is called by libraries alone that were compiled to check races.

// The thread is about to touch memory.  `place` is an address in the code
// behind the access.
enum {
  kMpsEmulatorMslWrite = 1,
  kMpsEmulatorMslAtomic = 2,
  kMpsEmulatorMslStore = 4,  // an atomic write that reads nothing
};
typedef void (*mps_emulator_msl_access)(const void *address, unsigned long size,
                                        unsigned flags, const void *place);
// `flags` are metal::mem_flags.
typedef void (*mps_emulator_msl_fence)(unsigned flags);
typedef void (*mps_emulator_msl_simdgroup_barrier)(unsigned flags);
// The thread reads, at `site`, the value of a lane that takes no part.
typedef void (*mps_emulator_msl_inactive_lane)(unsigned lane,
                                               unsigned long site);

struct mps_emulator_msl_runtime {
  mps_emulator_msl_thread_index thread_index;
  mps_emulator_msl_threadgroup_barrier threadgroup_barrier;
  mps_emulator_msl_simdgroup_exchange simdgroup_exchange;
  mps_emulator_msl_threadgroup_variable threadgroup_variable;
  mps_emulator_msl_enter_call enter_call;
  mps_emulator_msl_leave_call leave_call;
  mps_emulator_msl_access access;
  mps_emulator_msl_fence fence;
  mps_emulator_msl_simdgroup_barrier simdgroup_barrier;
  mps_emulator_msl_inactive_lane inactive_lane;
};

enum {
  kMpsEmulatorMslBuffer = 0,
  kMpsEmulatorMslThreadgroup = 1,
  kMpsEmulatorMslBuiltin = 2
};

struct mps_emulator_msl_parameter {
  MPS_EMULATOR_MSL_TEXT *name;
  unsigned kind;   // kMpsEmulatorMslBuffer, ...
  unsigned index;  // of [[buffer(i)]] or [[threadgroup(i)]]
  unsigned writable;
  unsigned by_reference;
  unsigned active;       // 0: taken away by a function constant
  unsigned in_constant;  // 1: leads to `constant` memory
  unsigned long element_size;
  unsigned long alignment;  // of an element, in bytes
};

struct mps_emulator_msl_function_constant {
  MPS_EMULATOR_MSL_TEXT *name;
  MPS_EMULATOR_MSL_TEXT *type;
  unsigned index;
  unsigned defined;  // 1: this library was compiled with a value for it
};

enum { kMpsEmulatorMslNeedsFibers = 1 };

struct mps_emulator_msl_kernel {
  MPS_EMULATOR_MSL_TEXT *name;
  mps_emulator_msl_thunk thunk;
  const mps_emulator_msl_parameter *parameters;
  unsigned parameter_count;
  const mps_emulator_msl_function_constant *function_constants;
  unsigned function_constant_count;
  unsigned static_threadgroup_bytes;
  unsigned max_total_threads;
  unsigned flags;
};

// What a kernel library describes itself by: its one exported symbol,
// mps_emulator_msl_description, is of this type.
struct mps_emulator_msl_module {
  unsigned abi_version;
  unsigned kernel_count;
  const mps_emulator_msl_kernel *kernels;
  // Where the executor stores its functions after loading the library.
  const mps_emulator_msl_runtime **runtime;
};

#ifdef __OPENCL_CPP_VERSION__
MSL_END_FUNCTION_POINTERS
#endif

#endif  // MPS_EMULATOR_MSL_ABI_H_
