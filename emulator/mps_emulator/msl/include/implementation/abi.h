// The interface between a compiled kernel library and the executor.  The
// executor includes this file as C++, and a kernel library includes it as C++
// for OpenCL.  So all types must have the same layout in both languages.
#ifndef MPS_EMULATOR_MSL_ABI_H_
#define MPS_EMULATOR_MSL_ABI_H_

#ifdef __OPENCL_CPP_VERSION__
#define MPS_EMULATOR_MSL_TEXT const __constant char
#else
#define MPS_EMULATOR_MSL_TEXT const char
#endif

// Raise the version with every change of this file.  The executor does not load
// a cached library of another version.
enum { kMpsEmulatorMslAbiVersion = 5 };

enum { kMpsEmulatorMslMaxBuffers = 31 };

// What the threads of a threadgroup must know about their dispatch.  Arrays of
// three numbers have the values for x, y and z.
struct mps_emulator_msl_launch {
  void *buffers[kMpsEmulatorMslMaxBuffers];              // by [[buffer(i)]]
  void *threadgroup_buffers[kMpsEmulatorMslMaxBuffers];  // [[threadgroup(i)]]
  unsigned threadgroup_position[3];  // this threadgroup's position in the grid
  // Sizes in threads.  At the edge of the grid, a threadgroup can be smaller
  // than dispatch_threadgroup_size.
  unsigned threadgroup_size[3];
  unsigned dispatch_threadgroup_size[3];
  unsigned grid_size[3];
  unsigned threadgroup_count[3];  // the number of threadgroups in the grid
};

// Runs the kernel in `count` threads of a row, one after another.  The first
// thread is at (x, y, z) of the threadgroup.
typedef void (*mps_emulator_msl_thunk)(const mps_emulator_msl_launch *launch,
                                       unsigned x, unsigned y, unsigned z,
                                       unsigned count);

// Functions of the executor that kernel code calls.  `site` identifies a call
// in the source of the kernel: line * 2^32 + column.

// The index of the calling thread in its threadgroup.
typedef unsigned (*mps_emulator_msl_thread_index)();

typedef void (*mps_emulator_msl_threadgroup_barrier)(unsigned flags,
                                                     unsigned long site);

// Waits until all active threads of the simdgroup have called this function.
// Returns an array of 32 elements of `size` bytes: element i is what lane i
// passed at `value`.  The elements of inactive lanes are filled with a fixed
// byte.  The array is valid until this thread's next exchange.
struct mps_emulator_msl_lanes {
  unsigned active;   // bit i: lane i is active
  unsigned present;  // bit i: the simdgroup has a lane i
};
typedef const void *(*mps_emulator_msl_simdgroup_exchange)(
    const void *value, unsigned size, unsigned long site,
    mps_emulator_msl_lanes *lanes);

// Returns the address of a threadgroup variable.  All threads of a threadgroup
// get the same address.  `slot` is the number of the variable in the program.
// `size` and `alignment` are in bytes.
typedef void *(*mps_emulator_msl_threadgroup_variable)(unsigned slot,
                                                       unsigned long size,
                                                       unsigned long alignment);

// A kernel can call a function that contains a barrier or a simdgroup function.
// Then the kernel calls enter_call() before this call, which is at `site`, and
// leave_call() after this call.  So the executor knows all calls in progress:
// threads meet at a barrier only if they have reached the barrier through the
// same calls.
typedef void (*mps_emulator_msl_enter_call)(unsigned long site);
typedef void (*mps_emulator_msl_leave_call)();

// Only libraries that are compiled to report their accesses call the functions
// below.

// The calling thread is about to access memory.  `place` is an address in the
// code of the access: the return address of the call that announces the access.
enum {
  kMpsEmulatorMslWrite = 1,
  kMpsEmulatorMslAtomic = 2,
  kMpsEmulatorMslStore = 4,  // an atomic write that does not read
  // The second access of a copy, which is announced before the copy begins.
  kMpsEmulatorMslSecond = 8,
};
typedef void (*mps_emulator_msl_access)(const void *address, unsigned long size,
                                        unsigned flags, const void *place);
// The calling thread calls atomic_thread_fence() or simdgroup_barrier().
// `flags` has the bits of metal::mem_flags.
typedef void (*mps_emulator_msl_fence)(unsigned flags);
typedef void (*mps_emulator_msl_simdgroup_barrier)(unsigned flags);
// A call like simd_broadcast() requires that all threads of a simdgroup name
// the same lane.  If the threads name different lanes, kernel code passes
// kMpsEmulatorMslLanesDiffer to inactive_lane() as `lane`.
enum { kMpsEmulatorMslLanesDiffer = 1 << 16 };

// At `site`, the calling thread reads the value of a lane that is inactive or
// does not exist.
typedef void (*mps_emulator_msl_inactive_lane)(unsigned lane,
                                               unsigned long site);

// The calling thread is about to use `index`, which is outside of an array or a
// vector.  `type` is clang's name of the type of the array or vector.
typedef void (*mps_emulator_msl_outside_array)(const char *type, long index,
                                               unsigned line);

// The calling thread converts `value` to an integer type that cannot represent
// this value.  `type` is clang's name of the integer type.
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
  unsigned kind;      // one of the enumerators above
  unsigned index;     // the i of [[buffer(i)]] or [[threadgroup(i)]]
  unsigned writable;  // 1: a `device` pointer or reference to a non-const type
  // 1: a reference, to which at least one whole element must be bound.
  unsigned by_reference;
  unsigned in_constant;        // 1: points to `constant` memory
  unsigned long element_size;  // the size of the pointee, in bytes
  unsigned long alignment;     // the alignment of the pointee, in bytes
};

// A flag of a kernel that can reach a barrier or a simdgroup function.  Such a
// function suspends its thread, so the thread needs a fiber.
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

// The description of a kernel library.  The library exports only one symbol, an
// object of this type with the name mps_emulator_msl_description.
struct mps_emulator_msl_module {
  unsigned abi_version;
  unsigned kernel_count;
  const mps_emulator_msl_kernel *kernels;
  // The address at which the executor stores a pointer to its functions after
  // it has loaded the library.
  const mps_emulator_msl_runtime **runtime;
};

#endif  // MPS_EMULATOR_MSL_ABI_H_
