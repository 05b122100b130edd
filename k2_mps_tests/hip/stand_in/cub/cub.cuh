// Stands in for hipCUB: declares what k2's headers call.

#ifndef K2_MPS_TESTS_HIP_STAND_IN_CUB_H_
#define K2_MPS_TESTS_HIP_STAND_IN_CUB_H_

namespace cub {

template <typename Key, typename Value>
struct KeyValuePair {
  Key key;
  Value value;
};

// CUDA 13 has removed this functor.
struct Sum {};

struct DeviceScan {
  template <typename... Args>
  static int ExclusiveScan(Args... args);
  template <typename... Args>
  static int ExclusiveSum(Args... args);
  template <typename... Args>
  static int InclusiveScan(Args... args);
  template <typename... Args>
  static int InclusiveSum(Args... args);
};

struct DeviceReduce {
  template <typename... Args>
  static int Reduce(Args... args);
  template <typename... Args>
  static int Sum(Args... args);
};

struct DeviceSegmentedReduce {
  template <typename... Args>
  static int ArgMax(Args... args);
  template <typename... Args>
  static int Reduce(Args... args);
};

}  // namespace cub

#endif  // K2_MPS_TESTS_HIP_STAND_IN_CUB_H_
