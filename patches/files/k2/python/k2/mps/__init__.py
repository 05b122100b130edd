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

An FSA, a ragged tensor or a loss moves there as it does to CUDA::

    fsa = fsa.to('mps')

The one difference that a program can see is float64, which tensors on that
device cannot have.  ``use_double_scores=True`` does compute in double
precision; the result is rounded to ``torch.float32`` where it is returned.
A ragged tensor of ``torch.float64`` is refused with a ``TypeError``.

``with k2.mps.counters() as counted`` tells what k2 does there.
``python -m k2.mps.check`` compares mps with the CPU on this machine.
'''
from .counting import Counters
from .counting import counters
from .scores import public_scores

__all__ = ['Counters', 'counters', 'public_scores']
