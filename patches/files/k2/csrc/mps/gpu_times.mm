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

#include "k2/csrc/mps/gpu_times.h"

#include <atomic>
#include <map>
#include <mutex>

#include "k2/csrc/mps/stream.h"

namespace k2 {
namespace mps {

namespace {

struct GpuTimes {
  std::atomic<bool> collects{false};
  std::mutex mutex;
  std::map<double, double> ends;  // by the beginning, for each command buffer
};

GpuTimes &GetGpuTimes() {
  static auto *times = new GpuTimes;
  return *times;
}

}  // namespace

void StartGpuTimes() {
  GpuTimes &times = GetGpuTimes();
  std::lock_guard<std::mutex> lock(times.mutex);
  times.ends.clear();
  times.collects = true;
}

void NoteOpenCommandBuffer() {
  RunInStream([] {
    @autoreleasepool {
      NoteGpuTime(torch::mps::get_command_buffer());
    }
  });
}

std::vector<GpuTime> StopGpuTimes() {
  GpuTimes &times = GetGpuTimes();
  std::lock_guard<std::mutex> lock(times.mutex);
  times.collects = false;
  std::vector<GpuTime> ans;
  for (const auto &[begin, end] : times.ends) ans.push_back({begin, end});
  return ans;
}

void NoteGpuTime(id<MTLCommandBuffer> commands) {
  if (!GetGpuTimes().collects.load(std::memory_order_relaxed)) return;
  // A command buffer with several kernels gets several handlers, which all
  // note the same beginning.
  [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
    const double begin = [done GPUStartTime], end = [done GPUEndTime];
    GpuTimes &times = GetGpuTimes();
    std::lock_guard<std::mutex> lock(times.mutex);
    if (times.collects && begin > 0 && end > begin) times.ends[begin] = end;
  }];
}

}  // namespace mps
}  // namespace k2
