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

#ifndef K2_PYTHON_CSRC_TORCH_VERSIONS_H_
#define K2_PYTHON_CSRC_TORCH_VERSIONS_H_

#include <memory>
#include <unordered_map>

#include "k2/csrc/fsa.h"
#include "k2/python/csrc/torch/note_write.h"

namespace k2 {

/* The versions of the tensors that share the memory of arcs.  As with torch's
   views, an operation in place on one of these tensors raises the version of
   the others.  The labels have a version of their own, because most backward
   passes do not need them. */
struct ArcVersions {
  c10::VariableVersion arcs{0};  // the scores, too
  c10::VariableVersion labels{0};
  int32_t num_objects = 0;  // Fsas and tensors which have had this memory
};

// Returns the versions of `arcs`.  The caller must hold Python's GIL.
inline ArcVersions &VersionsOf(FsaOrVec &arcs) {
  std::shared_ptr<void> &versions = arcs.values.GetRegion()->versions;
  if (versions == nullptr) versions = std::make_shared<ArcVersions>();
  return *static_cast<ArcVersions *>(versions.get());
}

/* Called for arcs whose memory is the memory of a tensor.  If other arcs have
   this memory, `arcs` get the versions of the other arcs.  Returns the versions
   of `arcs`.  The caller must hold the GIL. */
inline ArcVersions &ShareVersions(FsaOrVec &arcs) {
  static auto *of_memory = new std::unordered_map<void *, std::weak_ptr<void>>;
  static size_t limit = 64;  // entries that may be there before some are erased
  const RegionPtr &region = arcs.values.GetRegion();
  std::weak_ptr<void> &known = (*of_memory)[region->data];
  region->versions = known.lock();
  ArcVersions &ans = VersionsOf(arcs);
  known = region->versions;
  if (of_memory->size() <= limit) return ans;
  for (auto entry = of_memory->begin(); entry != of_memory->end();) {
    if (entry->second.expired())
      entry = of_memory->erase(entry);
    else
      ++entry;
  }
  limit = 2 * of_memory->size() + 64;
  return ans;
}

inline void SetVersion(const torch::Tensor &tensor,
                       const c10::VariableVersion &version) {
  if (HasVersion(tensor))
    tensor.unsafeGetTensorImpl()->set_version_counter(version);
}

}  // namespace k2

#endif  // K2_PYTHON_CSRC_TORCH_VERSIONS_H_
