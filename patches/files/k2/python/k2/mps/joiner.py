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
'''Functions that reduce the memory of pruned RNN-T on mps.'''
from typing import Optional

import torch

from . import rnnt_pruned
from . import rnnt_pruning


def joiner_input(am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
                 ) -> torch.Tensor:
    '''Return the input of the last layer of a joiner::

        am_pruned, lm_pruned = k2.do_rnnt_pruning(am, lm, ranges)
        torch.tanh(am_pruned + lm_pruned)

    On mps, one kernel computes the result of these lines from ``am`` and
    ``lm``, so the pruned tensors and their sum take no memory.  Autograd can
    differentiate this result only once.  On other devices, k2 runs the lines
    above.

    Args:
      am:
        The projected output of the encoder, of shape ``(B, T, D)``.
      lm:
        The projected output of the prediction network, of shape
        ``(B, S + 1, D)`` and with the dtype of ``am``.
      ranges:
        The result of :func:`k2.get_rnnt_prune_ranges`, torch.int64 of shape
        ``(B, T, s_range)``.
    Returns:
      A tensor of shape ``(B, T, s_range, D)`` and with the dtype of ``am``.
    '''
    if (am.dtype == lm.dtype and am.shape[-1] == lm.shape[-1]
            and rnnt_pruning.in_metal(am, lm, ranges)):
        return rnnt_pruning.fused_joiner_input(am, lm, ranges)
    from ..rnnt_loss import do_rnnt_pruning
    return torch.tanh(sum(do_rnnt_pruning(am, lm, ranges)))


def rnnt_loss_pruned_in_place(logits: torch.Tensor, symbols: torch.Tensor,
                              ranges: torch.Tensor, termination_symbol: int,
                              boundary: Optional[torch.Tensor] = None,
                              rnnt_type: str = 'regular',
                              delay_penalty: float = 0.0,
                              reduction: Optional[str] = 'mean',
                              use_hat_loss: bool = False) -> torch.Tensor:
    '''Compute :func:`k2.rnnt_loss_pruned`.  The backward pass overwrites the
    logits on mps with their gradient, so that memory does not hold both.

    Use this function only if nothing else needs the logits, for example if the
    last layer of the joiner is linear.  If another function needs the logits in
    its backward pass, that backward pass raises a RuntimeError.

    Memory still holds both the logits and their gradient if ``logits`` is on
    another device, is not contiguous, or is a leaf of the autograd graph.

    Args and Returns:
      As for :func:`k2.rnnt_loss_pruned`.
    '''
    if rnnt_pruned.in_metal(logits, symbols, ranges, termination_symbol,
                            boundary, use_hat_loss):
        return rnnt_pruned.loss(logits, symbols, ranges, termination_symbol,
                                boundary, rnnt_type, delay_penalty, reduction,
                                use_hat_loss, overwrite=True)
    from ..rnnt_loss import rnnt_loss_pruned
    return rnnt_loss_pruned(logits, symbols, ranges, termination_symbol,
                            boundary, rnnt_type, delay_penalty, reduction,
                            use_hat_loss)
