// Stands in for moderngpu: declares what k2's headers call.

#ifndef K2_MPS_TESTS_HIP_STAND_IN_MODERNGPU_H_
#define K2_MPS_TESTS_HIP_STAND_IN_MODERNGPU_H_

namespace mgpu {

struct context_t;
template <typename... Args>
void mergesort(Args &&...args);
template <typename... Args>
void segmented_sort(Args &&...args);
template <typename... Args>
void segmented_sort_indices(Args &&...args);
template <typename... Args>
void transform_lbs(Args &&...args);

}  // namespace mgpu

#endif  // K2_MPS_TESTS_HIP_STAND_IN_MODERNGPU_H_
