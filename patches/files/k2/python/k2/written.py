# Copyright      2026  The k2-mps authors
#
# See ../../../LICENSE for clarification regarding multiple authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
'''Tell autograd of the tensors that `_k2` writes.'''
import functools

from _k2.ragged import RaggedTensor
import torch


def mark_written(tensor: torch.Tensor) -> None:
    '''Raise the version of a tensor that `_k2` has written.

    Then a backward pass that needs the old values raises a RuntimeError.
    '''
    # Tensors that are made in inference mode have no version.
    if not (hasattr(tensor, 'is_inference') and tensor.is_inference()):
        # A tensor and its detached views have the same version, in all releases
        # of torch.
        tensor.detach()[:0].zero_()


_sort = RaggedTensor.sort_


@functools.wraps(_sort)
def _sort_and_mark(self, *args, **kwargs):
    ans = _sort(self, *args, **kwargs)
    mark_written(self.values)
    return ans


RaggedTensor.sort_ = _sort_and_mark
