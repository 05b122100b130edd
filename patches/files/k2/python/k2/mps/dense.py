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

from ..first_gradient import first_gradient_only


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
    @first_gradient_only
    def backward(ctx, scores_grad: torch.Tensor):
        grad = torch.empty(ctx.shape, dtype=torch.float32,
                           device=scores_grad.device)
        _k2.mps_dense_fsa_vec_backward(scores_grad.contiguous(), ctx.segments,
                                       grad)
        return grad, None, None


def dense_fsa_vec(log_probs: torch.Tensor, supervision_segments: torch.Tensor
                  ) -> Tuple[_k2.DenseFsaVec, torch.Tensor, torch.Tensor]:
    '''Return the members of a :class:`k2.DenseFsaVec`.

    Args:
      log_probs, supervision_segments:
        As for :class:`k2.DenseFsaVec`, which has checked these arguments.
        ``log_probs`` is on mps.
    Returns:
      The ``_k2.DenseFsaVec``; its scores on mps, which support autograd; and
      the number of frames of each segment, ``torch.int32`` on the CPU.
    '''
    sequence, start, duration = supervision_segments.unbind(1)
    end = (start + duration).clamp(max=log_probs.shape[1])
    duration = end - start
    out = []
    scores = _DenseScores.apply(
        log_probs, torch.stack([sequence, start, duration], dim=1), out)
    return out[0], scores, duration
