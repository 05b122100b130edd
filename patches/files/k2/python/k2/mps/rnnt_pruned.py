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
'''rnnt_loss_pruned and rnnt_loss on mps.  The forward pass reads the logits
once, and so does the backward pass.'''
from typing import Optional

import torch
import _k2

from torch.autograd.function import once_differentiable
from .rnnt_boundary import check_boundary

# The dtypes that the kernels of RNN-T losses take.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The largest int32.  The kernels number the elements that they read in int32.
MOST = 2**31 - 1


class _PrunedLoss(torch.autograd.Function):

    @staticmethod
    def forward(ctx, logits: torch.Tensor, symbols: torch.Tensor,
                ranges: Optional[torch.Tensor],
                boundary: Optional[torch.Tensor], arguments: dict,
                overwrite: bool) -> torch.Tensor:
        logits, symbols = logits.contiguous(), symbols.contiguous()
        ranges = ranges if ranges is None else ranges.contiguous()
        boundary = boundary if boundary is None else boundary.contiguous()
        need_grad = ctx.needs_input_grad[0]
        loss, saved = _k2.mps_rnnt_pruned_forward(
            _k2.MpsRnntPruned(logits=logits, symbols=symbols, ranges=ranges,
                              boundary=boundary, **arguments), need_grad)
        if need_grad:
            ctx.arguments, ctx.overwrite = arguments, overwrite
            ctx.save_for_backward(logits, symbols, ranges, boundary, saved.lse,
                                  saved.row_grads)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, loss_grad: torch.Tensor):
        logits, symbols, ranges, boundary, lse, row_grads = ctx.saved_tensors
        grad = _k2.mps_rnnt_pruned_backward(
            _k2.MpsRnntPruned(logits=logits, symbols=symbols, ranges=ranges,
                              boundary=boundary, **ctx.arguments),
            _k2.MpsRnntPrunedSaved(lse=lse, row_grads=row_grads), loss_grad,
            ctx.overwrite)
        if ctx.overwrite:
            # Because of this new version of the logits, torch raises if the
            # backward pass of another function needs the logits, or if this
            # backward pass runs a second time.
            torch.autograd.graph.increment_version(logits)
        return grad, None, None, None, None, None


def in_metal(logits: torch.Tensor, symbols: torch.Tensor,
             ranges: Optional[torch.Tensor], termination_symbol: int,
             boundary: Optional[torch.Tensor], use_hat_loss: bool) -> bool:
    '''Return whether the kernels take these arguments of rnnt_loss_pruned().

    The kernels take tensors on mps of the dtypes and shapes that
    rnnt_loss_pruned() documents, if ``logits`` is not empty.

    Args:
      ranges:
        None for rnnt_loss(), whose logits have a row for each of the S + 1
        positions.
    '''
    if logits.device.type != 'mps' or logits.dtype not in DTYPES:
        return False
    if logits.ndim != 4 or symbols.ndim != 2 or logits.numel() == 0:
        return False
    B, T, rows, C = logits.shape
    S = symbols.shape[1]
    integers = [(symbols, (B, S))]
    if ranges is not None:
        integers.append((ranges, (B, T, rows)))
    if boundary is not None:
        integers.append((boundary, (B, 4)))
    for x, shape in integers:
        if (x.dtype != torch.int64 or x.device != logits.device
                or x.shape != shape):
            return False
    return (0 <= termination_symbol < C
            and (not use_hat_loss or termination_symbol == 0)
            and (rows == S + 1 or ranges is not None and rows <= S)
            # 8 is kRpFrames of kernels/rnnt_pruned.h.
            and B * T * (S + 1) * 8 <= MOST)


def loss(logits: torch.Tensor, symbols: torch.Tensor,
         ranges: Optional[torch.Tensor], termination_symbol: int,
         boundary: Optional[torch.Tensor], rnnt_type: str,
         delay_penalty: float, reduction: Optional[str], use_hat_loss: bool,
         overwrite: bool = False) -> torch.Tensor:
    '''Compute rnnt_loss_pruned(), or rnnt_loss() if ranges is None.

    Args:
      overwrite:
        Whether the backward pass overwrites the logits with their gradient.
      others:
        As for rnnt_loss_pruned().  :func:`in_metal` must return True for these
        arguments.
    Returns:
      The loss, ``torch.float32`` on mps.  Autograd can differentiate the loss
      only once.
    '''
    B, T, _, _ = logits.shape
    if reduction not in ('none', 'mean', 'sum'):
        raise ValueError(
            "reduction should be ('none' | 'mean' | 'sum'), given "
            f'{reduction}')
    assert rnnt_type in ['regular', 'modified', 'constrained'], (
        f'rnnt_type: {rnnt_type}')
    S = symbols.shape[1]
    if use_hat_loss:
        assert rnnt_type != 'modified' or T >= S, (T, S)
    check_boundary(boundary, B, S, T, rnnt_type == 'regular' or use_hat_loss)
    arguments = dict(blank=termination_symbol, rnnt_type=rnnt_type,
                     delay_penalty=max(float(delay_penalty), 0.0),
                     reduction=reduction, hat=use_hat_loss)
    # Like torch, k2 does not overwrite the values of a leaf.
    base = logits if logits._base is None else logits._base
    return _PrunedLoss.apply(logits, symbols, ranges, boundary, arguments,
                             overwrite and not base.is_leaf)
