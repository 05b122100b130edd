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
'''Scores in double precision on a device that has no ``torch.float64``.'''
import torch
import _k2
from torch.autograd.function import once_differentiable


class _PublicScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, fsas, scores: torch.Tensor) -> torch.Tensor:
        ctx.arcs = fsas.arcs
        return _k2.public_scores(ctx.arcs, scores)

    @staticmethod
    @once_differentiable  # autograd does not record what C++ computes
    def backward(ctx, grad: torch.Tensor):
        return None, _k2.internal_scores(ctx.arcs, grad)


def public_scores(fsas, scores: torch.Tensor) -> torch.Tensor:
    '''Return scores as a user of k2 gets them.

    If an FSA is on mps, k2 keeps its scores in double precision on the CPU, as
    ``torch.float64``.  This function converts such scores to ``torch.float32``
    on mps, and its backward pass converts the gradient back.

    Args:
      fsas:
        The k2.Fsa that the scores belong to.
      scores:
        A 1-D tensor of ``torch.float32`` or ``torch.float64``.
    Returns:
      If ``scores`` is ``torch.float64`` and ``fsas`` is on mps, a
      ``torch.float32`` copy on mps, else ``scores`` itself.  Autograd records
      the copy.
    '''
    # With mps off, do not ask for the device, which takes a microsecond.
    if (not _k2.version.with_mps or fsas.device.type != 'mps'
            or scores.dtype != torch.float64):
        return scores
    return _PublicScores.apply(fsas, scores)
