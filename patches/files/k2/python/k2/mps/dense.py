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
'''DenseFsaVec on mps: one kernel for the scores and one for their gradient.'''
from typing import Tuple

import torch
import _k2

from torch.autograd.function import once_differentiable


class _DenseScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, log_probs: torch.Tensor, segments: torch.Tensor,
                out: list) -> torch.Tensor:
        ctx.shape = log_probs.shape
        ctx.segments = segments
        dense, scores = _k2.mps_dense_fsa_vec_forward(log_probs, segments)
        out.append(dense)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx, scores_grad: torch.Tensor):
        grad = torch.empty(ctx.shape, dtype=torch.float32,
                           device=scores_grad.device)
        _k2.mps_dense_fsa_vec_backward(scores_grad.contiguous(), ctx.segments,
                                       grad)
        return grad, None, None


def dense_fsa_vec(log_probs: torch.Tensor, supervision_segments: torch.Tensor,
                  allow_truncate: int
                  ) -> Tuple[_k2.DenseFsaVec, torch.Tensor, torch.Tensor]:
    '''Return the members of a :class:`k2.DenseFsaVec`.

    Args:
      log_probs, supervision_segments, allow_truncate:
        As for :class:`k2.DenseFsaVec`, which has checked their shapes and
        dtypes.  ``log_probs`` is on mps.
    Returns:
      The ``_k2.DenseFsaVec``; its scores on mps, which support autograd; and
      the number of frames of each segment, ``torch.int32`` on the CPU.
    '''
    N, T, _ = log_probs.shape
    sequence, start, duration = supervision_segments.unbind(1)
    assert ((sequence >= 0) & (sequence < N)).all()
    assert ((start >= 0) & (start < T) & (duration >= 0)).all()
    assert (start + duration <= T + allow_truncate).all()
    end = (start + duration).clamp(max=T)
    duration = end - start
    out = []
    scores = _DenseScores.apply(
        log_probs, torch.stack([sequence, start, duration], dim=1), out)
    return out[0], scores, duration
