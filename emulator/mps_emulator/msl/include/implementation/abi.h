// The interface between a compiled kernel library and the executor.  The
// executor reads this file as C++, a kernel library as C++ for OpenCL, so all
// types have the same layout in both languages.
#ifndef MPS_EMULATOR_MSL_ABI_H_
#define MPS_EMULATOR_MSL_ABI_H_

#ifdef __OPENCL_CPP_VERSION__
#define MPS_EMULATOR_MSL_TEXT const __constant char
#else
#define MPS_EMULATOR_MSL_TEXT const char
#endif

// Every change of this file raises the version: the executor loads no cached
// library of another version.
enum { kMpsEmulatorMslAbiVersion = 4 };

enum { kMpsEmulatorMslMaxBuffers = 31 };

// One dispatch, for the threads of one threadgroup.  Sizes and positions are in
// threads or threadgroups, x first.
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

// The executor's functions for kernel code.  `site` identifies a call in the
// source: line * 2^32 + column.

// The thread's index in its threadgroup.
typedef unsigned (*mps_emulator_msl_thread_index)();

typedef void (*mps_emulator_msl_threadgroup_barrier)(unsigned flags,
                                                     unsigned long site);

// Waits for the other active threads of the SIMD group.  Returns the `size`
// bytes at `value` of all 32 lanes, one after another, poison for inactive
// lanes.  The result is valid until this thread's next exchange.
struct mps_emulator_msl_lanes {
  unsigned active;   // bit i: lane i is active
  unsigned present;  // bit i: the SIMD group has a lane i
};
typedef const void *(*mps_emulator_msl_simdgroup_exchange)(
    const void *value, unsigned size, unsigned long site,
    mps_emulator_msl_lanes *lanes);

// The address of a threadgroup variable, the same for all threads of a
// threadgroup.  `slot` identifies a variable of the kernel.
typedef void *(*mps_emulator_msl_threadgroup_variable)(unsigned slot,
                                                       unsigned long size,
                                                       unsigned long alignment);

// A call at `site` of a function that suspends its thread begins or ends.
// A barrier in a function is a different barrier for each call of the function.
typedef void (*mps_emulator_msl_enter_call)(unsigned long site);
typedef void (*mps_emulator_msl_leave_call)();

// Only libraries that are compiled to check races call the functions below.

// The thread is about to access memory.  `place` is an address in the code
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
// A "lane" for the next function: the lanes that threads name differ, where
// they must be the same.
enum { kMpsEmulatorMslLanesDiffer = 1 << 16 };

// The thread reads, at `site`, the value of an inactive lane, or of one that
// does not exist.
typedef void (*mps_emulator_msl_inactive_lane)(unsigned lane,
                                               unsigned long site);

// The thread is about to use `index`, which an array or a vector lacks; `type`
// is clang's name of its type.
typedef void (*mps_emulator_msl_outside_array)(const char *type, long index,
                                               unsigned line);

// The thread converts `value` to an integer type that lacks it; `type` is
// clang's name of the integer type.
typedef void (*mps_emulator_msl_outside_integer)(float value, const char *type,
                                                 unsigned line);

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
  mps_emulator_msl_outside_array outside_array;
  mps_emulator_msl_outside_integer outside_integer;
};

enum {
  kMpsEmulatorMslBuffer = 0,
  kMpsEmulatorMslThreadgroup = 1,
  kMpsEmulatorMslBuiltin = 2
};

struct mps_emulator_msl_parameter {
  MPS_EMULATOR_MSL_TEXT *name;
  unsigned kind;          // kMpsEmulatorMslBuffer, ...
  unsigned index;         // of [[buffer(i)]] or [[threadgroup(i)]]
  unsigned writable;      // a `device` pointer or reference to a non-const type
  unsigned by_reference;  // `T &`: at least one whole element must be bound
  unsigned in_constant;   // 1: points to `constant` memory
  unsigned long element_size;  // of the pointee, in bytes
  unsigned long alignment;     // of the pointee, in bytes
};

// The kernel can reach a barrier or a simdgroup function, which suspends a
// thread.
enum { kMpsEmulatorMslNeedsFibers = 1 };

struct mps_emulator_msl_kernel {
  MPS_EMULATOR_MSL_TEXT *name;
  mps_emulator_msl_thunk thunk;
  const mps_emulator_msl_parameter *parameters;
  unsigned parameter_count;
  unsigned static_threadgroup_bytes;
  unsigned max_total_threads;
  unsigned flags;
};

// The description of a kernel library: the type of its only exported symbol,
// mps_emulator_msl_description.
struct mps_emulator_msl_module {
  unsigned abi_version;
  unsigned kernel_count;
  const mps_emulator_msl_kernel *kernels;
  // Where the executor stores its functions after loading the library.
  const mps_emulator_msl_runtime **runtime;
};

#endif  // MPS_EMULATOR_MSL_ABI_H_
