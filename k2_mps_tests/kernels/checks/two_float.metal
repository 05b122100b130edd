#include <metal_stdlib>

#include "k2/csrc/mps/kernels/path_sums.h"

// Runs each operation of two_float.h and exp() of path_sums.h by itself.  A
// thread does one operation and writes the error of the result.  The kernel
// computes the error without products and without two_float.h.  So a wrong
// function cannot hide its own error.

struct TwoFloatParams {
  int size, operation;
};

enum TwoFloatOperation {
  kTwoSum,
  kQuickTwoSum,
  kAdd,
  kAddFloat,
  kAddSameSign,
  kMul,
  kDiv,
  kExp,
  kFloatExp,
  kLog,
  kScore,
  kPosterior,
  kCtcPosterior,
  kFloatPosterior,
};

// Returns exp(a.high + a.low - b.high - b.low).  Calls the functions that
// compute the posterior of an arc from scores.
template <typename E, typename T>
inline TwoFloat Posterior(TwoFloat a, TwoFloat b) {
  typedef PathSum<E, T> Sum;
  return AsTwoFloat(ValueOf(PosteriorOf(ExpOf<Sum>(a.high), ExpOf<Sum>(a.low),
                                        ExpOf<Sum>(-b.high),
                                        ExpOf<Sum>(b.low))));
}

inline TwoFloat Result(int operation, TwoFloat a, TwoFloat b) {
  switch (operation) {
    case kTwoSum:
      return TwoSum(a.high, b.high);
    case kQuickTwoSum:
      return QuickTwoSum(a.high, b.high);
    case kAdd:
      return Add(a, b);
    case kAddFloat:
      return Add(a, b.high);
    case kAddSameSign:
      return AddSameSign(a, b);
    case kMul:
      return Mul(a, b);
    case kDiv:
      return Div(a, b);
    case kExp:
      return ValueOf(ExpOf<PathSum<float, TwoFloat>>(a.high));
    case kFloatExp:
      return TwoFloat{ValueOf(ExpOf<PathSum<float, float>>(a.high)), 0.0f};
    case kLog:
      return Log(a);
    case kScore:
      return ScoreOf(ExpOf<PathSum<float, float>>(a.high));
    case kPosterior:
      return Posterior<TwoFloat, TwoFloat>(a, b);
    case kCtcPosterior:
      return Posterior<float, TwoFloat>(a, b);
    default:
      return Posterior<float, float>(a, b);
  }
}

// left, right   [size], the operands
// expected      [size]
// results       [size]
// differences   [size], results minus expected
kernel void two_float(device const TwoFloat *left [[buffer(0)]],
                      device const TwoFloat *right [[buffer(1)]],
                      device const TwoFloat *expected [[buffer(2)]],
                      device TwoFloat *results [[buffer(3)]],
                      device float *differences [[buffer(4)]],
                      constant TwoFloatParams &params [[buffer(5)]],
                      uint i [[thread_position_in_grid]]) {
  if (int(i) >= params.size) return;
  const TwoFloat result = Result(params.operation, left[i], right[i]);
  results[i] = result;
  differences[i] =
      (result.high - expected[i].high) + (result.low - expected[i].low);
}

typedef PathSum<TwoFloat, TwoFloat> Sum;

// Computes the scores of states.  Each score is a sum over the arcs that enter
// the state.
//
// states   [sums * arcs], the path sum of the state that each arc leaves
// scores   [sums * arcs], the score of each arc
// sums     [sums], the score of each state, rounded to a float
kernel void path_sums(device const Sum *states [[buffer(0)]],
                      device const float *scores [[buffer(1)]],
                      device float *sums [[buffer(2)]],
                      constant int2 &params [[buffer(3)]],
                      uint i [[thread_position_in_grid]]) {
  const int num_sums = params.x, num_arcs = params.y;
  if (int(i) >= num_sums) return;
  const int begin = int(i) * num_arcs;
  TwoFloat max = {-INFINITY, 0.0f};
  for (int n = begin; n < begin + num_arcs; ++n)
    max = MaxInOrder(max, states[n], ExpOf<Sum>(scores[n]));
  TwoFloat sum = {0.0f, 0.0f};
  for (int n = begin; n < begin + num_arcs; ++n)
    sum = AddInOrder(sum, max, states[n], ExpOf<Sum>(scores[n]));
  sums[i] = ScoreOf(MakeSum(max, sum)).high;
}
