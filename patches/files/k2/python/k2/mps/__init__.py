# Copyright      2026  The k2-mps authors
#
# See ../../../../LICENSE for clarification regarding multiple authors
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
'''k2 on torch's ``mps`` device.

FSAs and ragged tensors move to mps as they do to CUDA::

    fsa = fsa.to('mps')

Tensors on mps cannot be ``torch.float64``.  ``use_double_scores=True`` still
computes in double precision, but k2 returns the result as ``torch.float32``.
k2 raises a ``TypeError`` for a ragged tensor of ``torch.float64`` on mps.
'''
import torch
import _k2

from .scores import public_scores


def is_available() -> bool:
    '''Return whether k2 can use the device mps here.'''
    return _k2.version.with_mps and torch.backends.mps.is_available()


__all__ = ['is_available', 'public_scores']
