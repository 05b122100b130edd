// The values of a thread's built-in parameters, like thread_position_in_grid.
// A target's file defines target_built_ins and then includes this file.  The
// argument d of the functions is 0 for x, 1 for y and 2 for z.
#pragma once

namespace __msl {

struct built_ins : target_built_ins {
  MSL_INLINE uint thread_position_in_grid(int d) const {
    return threadgroup_position_in_grid(d) *
               dispatch_threads_per_threadgroup(d) +
           thread_position_in_threadgroup(d);
  }

  MSL_INLINE uint thread_index_in_threadgroup(int) const {
    return thread_position_in_threadgroup(0) +
           threads_per_threadgroup(0) *
               (thread_position_in_threadgroup(1) +
                threads_per_threadgroup(1) * thread_position_in_threadgroup(2));
  }
  MSL_INLINE uint thread_index_in_simdgroup(int) const { return lane(); }
  MSL_INLINE uint simdgroup_index_in_threadgroup(int) const {
    return index() / 32;
  }
  MSL_INLINE uint threads_per_simdgroup(int) const { return 32; }
  MSL_INLINE uint thread_execution_width(int) const { return 32; }
  MSL_INLINE uint simdgroups_per_threadgroup(int) const {
    return (threads() + 31) / 32;
  }
  MSL_INLINE uint dispatch_simdgroups_per_threadgroup(int) const {
    return (dispatch_threads() + 31) / 32;
  }

 private:
  MSL_INLINE uint threads() const {
    return threads_per_threadgroup(0) * threads_per_threadgroup(1) *
           threads_per_threadgroup(2);
  }
  MSL_INLINE uint dispatch_threads() const {
    return dispatch_threads_per_threadgroup(0) *
           dispatch_threads_per_threadgroup(1) *
           dispatch_threads_per_threadgroup(2);
  }
};

}  // namespace __msl
