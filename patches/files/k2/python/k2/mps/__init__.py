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

An FSA, a ragged tensor or a loss moves to mps as it moves to CUDA::

    fsa = fsa.to('mps')

Programs see one difference: tensors on mps cannot be float64.
``use_double_scores=True`` still computes in double precision, and k2 returns
the result as ``torch.float32``.
A ragged tensor of ``torch.float64`` is refused with a ``TypeError``.

If k2 cannot use the device, ``k2.mps.unavailable_reason()`` tells why, and
what to do.  k2 then still works on the CPU.
'''
from typing import Optional

from .. import compatibility
from .scores import public_scores


def is_available() -> bool:
    '''Return whether k2 can use the device mps here.'''
    return unavailable_reason() is None


def unavailable_reason() -> Optional[str]:
    '''Return why k2 cannot use the device mps here, and what to do.

    Returns:
      A text of some lines, or None if k2 can use the device.
    '''
    return compatibility.mps_problem(compatibility.facts())


__all__ = ['is_available', 'public_scores', 'unavailable_reason']

compatibility.warn_without_mps()
