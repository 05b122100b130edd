/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef K2_CSRC_MPS_GRID_H_
#define K2_CSRC_MPS_GRID_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "k2/csrc/mps/kernels/simd_width.h"
#include "k2/csrc/mps/metal.h"

// These functions choose how many threads a threadgroup has, and how many lanes
// share a state.  They also divide a dispatch that would take too long.

namespace k2 {
namespace mps {

/* Returns how many units of `unit` threads fit into a threadgroup of a
   kernel, at least 1.  A unit is one simdgroup, or several simdgroups that work
   together.  Throws if a threadgroup of the kernel cannot have `unit` threads.

   @param [in] source, kernel, device_of   As for MaxThreadsPerThreadgroup().
 */
inline int64_t MaxUnits(const std::string &source, const std::string &kernel,
                        const torch::Tensor &device_of, uint32_t unit) {
  const int64_t most =
      MaxThreadsPerThreadgroup(source, kernel, device_of) / unit;
  TORCH_CHECK(most > 0, "On this GPU a threadgroup of the kernel ", kernel,
              " may have fewer than ", unit, " threads");
  return most;
}

/* Returns how many threads a threadgroup gets: the smallest multiple of `unit`
   that is at least `wanted` > 0.  If the kernel cannot have so many threads,
   returns the largest multiple that it can have.  Throws as MaxUnits() does.
 */
inline uint32_t FitThreads(const std::string &source, const std::string &kernel,
                           const torch::Tensor &device_of, int64_t wanted,
                           uint32_t unit) {
  return std::min((wanted + unit - 1) / unit,
                  MaxUnits(source, kernel, device_of, unit)) *
         unit;
}

// The name of an instance of a kernel, and the number of threads that its
// threadgroups get.
struct Instance {
  std::string kernel;
  uint32_t threads;
};

/* Returns the smallest instance of a kernel whose threadgroups may have
   `wanted` threads.  If there is no such instance, returns the largest one.  A
   kernel's instances are KERNEL_256, KERNEL_512 and KERNEL_1024, named after
   the most threads that their threadgroups may have.  In a smaller instance,
   Metal's compiler gives each thread more registers, and a threadgroup takes
   less memory.  Throws as MaxUnits() does.

   @param [in] source, kernel, device_of, wanted, unit   As for FitThreads().
 */
inline Instance FitInstance(const std::string &source,
                            const std::string &kernel,
                            const torch::Tensor &device_of, int64_t wanted,
                            uint32_t unit) {
  int32_t most = 256;
  while (most < wanted && most < 1024) most *= 2;
  const std::string name = kernel + "_" + std::to_string(most);
  return {name, FitThreads(source, name, device_of, wanted, unit)};
}

/* Returns how many lanes of a simdgroup share a state, a power of 2 from 1 to
   32.  Each lane keeps `arcs_of_lane` arcs in registers.  The result is the
   smallest such power of 2 whose lanes can keep the average number of arcs of a
   state, or 32 if 32 lanes do not suffice.
 */
inline int32_t LanesOfState(int64_t num_arcs, int64_t num_states,
                            int32_t arcs_of_lane) {
  int32_t lanes = 1;
  while (lanes < kSimdWidth && num_states * arcs_of_lane * lanes < num_arcs)
    lanes *= 2;
  return lanes;
}

/* Returns how many threads to request for a threadgroup that goes through the
   states of one FSA: enough for one and a half times the average number of
   states.  In a larger FSA, each thread has several states.

   The function does not use the size of the largest FSA, because the host would
   have to wait to learn this size.

   @param [in] num_states   Of all FSAs.
   @param [in] num_fsas     More than 0.
   @param [in] lanes        How many lanes share a state; see LanesOfState().
 */
inline int64_t ThreadsOfFsa(int64_t num_states, int64_t num_fsas,
                            int32_t lanes) {
  const int64_t states_of_all = num_states * 3 / 2;
  return (states_of_all + num_fsas - 1) / num_fsas * lanes;
}

/* Returns in how many waves a GPU runs a dispatch: the number of threadgroups,
   divided by the number of threadgroups that all cores hold at once, rounded
   up.

   A core of Apple's GPUs has about 60 KiB of threadgroup memory.  A core of an
   M1 also has registers for 384 threads of 128 registers each; no thread can
   have more registers.  If a threadgroup of the kernel may have more than 384
   threads, Metal gives each thread fewer registers.  The number 384 comes from
   a table in Mesa's driver for the M1 (src/asahi/compiler/agx_performance.c).
   From the M3 on, registers do not limit the number of threads in this way, so
   a core may hold more threads.

   @param [in] source, kernel, device_of   As for MaxThreadsPerThreadgroup().
   @param [in] grid   As for Launch().
   @return            At least 1, unless the grid is empty.
 */
inline int64_t NumWaves(const std::string &source, const std::string &kernel,
                        const torch::Tensor &device_of, Grid grid) {
  constexpr uint32_t kThreadsOfCore = 384, kBytesOfCore = 60 << 10;
  const uint32_t threads = std::max(
                     kThreadsOfCore,
                     MaxThreadsPerThreadgroup(source, kernel, device_of)),
                 bytes = ThreadgroupMemory(source, kernel, device_of);
  const int64_t at_once =
      int64_t{NumCores()} * std::min(threads / grid.threads_per_threadgroup,
                                     kBytesOfCore / std::max(bytes, 1u));
  return (grid.threadgroups + at_once - 1) / at_once;
}

/* Returns into how many dispatches LaunchInParts() divides a kernel that goes
   through steps one after another.  Each dispatch should take less than a
   second.

   The number of steps of a dispatch, times the number of waves, is at most
   2^16.  A step is estimated to take up to 12 microseconds.  A dispatch also
   has at most 2^28 units of work.  One core is estimated to do more than 2^28
   units in a second.

   @param [in] work        Units of work: roughly the number of arcs that all
                           steps together follow.
   @param [in] num_steps   Number of steps.
   @param [in] num_waves   What NumWaves() returns.
   @return                 At least 1, and at most num_steps if num_steps is not
                           0.
 */
inline int64_t NumParts(int64_t work, int64_t num_steps, int64_t num_waves) {
  constexpr int64_t kMaxSteps = 1 << 16, kMaxWork = 1 << 28;
  const int64_t wanted =
      std::max((num_steps * num_waves - 1) / kMaxSteps, (work - 1) / kMaxWork) +
      1;
  return std::max(int64_t{1}, std::min(wanted, num_steps));
}

/* Launches a kernel that goes through steps one after another, in NumParts()
   dispatches.  Each dispatch has its own command buffer; see Commit().

   @param [in] work, num_steps, num_waves   As for NumParts().
   @param [in] launch      Launches steps `first` to `last` - 1.  Called as
                           launch(first, last) for each part, in order.
 */
template <typename F>
void LaunchInParts(int64_t work, int64_t num_steps, int64_t num_waves,
                   F launch) {
  const int64_t num_parts = NumParts(work, num_steps, num_waves);
  for (int64_t i = 0; i != num_parts; ++i) {
    if (i != 0) Commit();
    launch(static_cast<int32_t>(num_steps * i / num_parts),
           static_cast<int32_t>(num_steps * (i + 1) / num_parts));
  }
}

/* Returns a grid with a thread for each of `size` > 0 elements.  The last
   threads of the last threadgroup may have no element.
 */
inline Grid GridOf(int32_t size, uint32_t threads = 256) {
  return {(size + threads - 1) / threads, threads};
}

/* Returns a grid with a simdgroup for each of `size` > 0 rows.  A threadgroup
   has `threads` threads, a multiple of 32.
 */
inline Grid GridOfSimdgroups(int64_t size, uint32_t threads = 256) {
  const int64_t simdgroups = threads / kSimdWidth;
  return {static_cast<uint32_t>((size + simdgroups - 1) / simdgroups), threads};
}

}  // namespace mps
}  // namespace k2

#endif  // K2_CSRC_MPS_GRID_H_
