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
'''The smoothed and the simple loss of RNN-T, on the GPU.'''
from typing import List
from typing import Optional
from typing import Tuple
from typing import Union

import torch
import _k2

from torch.autograd.function import once_differentiable
from .rnnt_boundary import check_boundary
from .rnnt_pruned import DTYPES

_TYPES = ('regular', 'modified', 'constrained')
_REDUCTIONS = ('none', 'mean', 'sum')
# The members of _k2.MpsRnntSmoothedSaved, each a tensor or None.
_SAVED = ('am_max', 'lm_max', 'am_exp', 'lm_exp', 'lm_log_sum', 'next',
          'unigram', 'am_log_sum', 'log_sums', 'px_grad', 'py_grad')


def in_metal(lm: torch.Tensor, am: torch.Tensor, symbols: torch.Tensor,
             termination_symbol: int, boundary: Optional[torch.Tensor],
             rnnt_type: str, reduction: Optional[str] = 'none') -> bool:
    '''Return whether the kernels take the arguments of a loss.

    The kernels take tensors on mps, of which only ``symbols`` may be empty.
    For wrong arguments, the result is False, and torch's operators then raise
    the errors.

    Args:
      lm, am, symbols, termination_symbol, boundary, rnnt_type, reduction:
        As for :func:`k2.rnnt_loss_smoothed`.
    '''
    if (am.device.type != 'mps' or am.ndim != 3 or lm.ndim != 3
            or am.numel() == 0):
        return False
    B, T, C = am.shape
    S = lm.shape[1] - 1
    return (lm.device == am.device and symbols.device == am.device
            and lm.dtype in DTYPES and am.dtype in DTYPES
            and symbols.dtype == torch.int64
            and lm.shape == (B, S + 1, C) and symbols.shape == (B, S)
            and 0 <= termination_symbol < C
            and rnnt_type in _TYPES and reduction in _REDUCTIONS
            and (boundary is None or boundary.device == am.device
                 and boundary.dtype == torch.int64
                 and boundary.shape == (B, 4)))


def _options(lm: torch.Tensor, am: torch.Tensor, symbols: torch.Tensor,
             boundary: Optional[torch.Tensor], rest: dict
             ) -> '_k2.MpsRnntSmoothed':
    return _k2.MpsRnntSmoothed(lm=lm, am=am, symbols=symbols,
                               boundary=boundary, **rest)


def _tensors_of(saved: '_k2.MpsRnntSmoothedSaved'
                ) -> List[Optional[torch.Tensor]]:
    return [getattr(saved, name) for name in _SAVED]


def _saved_of(tensors: List[Optional[torch.Tensor]]
              ) -> '_k2.MpsRnntSmoothedSaved':
    return _k2.MpsRnntSmoothedSaved(**dict(zip(_SAVED, tensors)))


class _Logprobs(torch.autograd.Function):

    @staticmethod
    def forward(ctx, lm, am, symbols, boundary, rest: dict):
        px, py, saved = _k2.mps_rnnt_smoothed_logprobs(
            _options(lm, am, symbols, boundary, rest))
        ctx.rest = rest
        ctx.save_for_backward(lm, am, symbols, boundary, *_tensors_of(saved))
        return px, py

    @staticmethod
    @once_differentiable
    def backward(ctx, px_grad, py_grad):
        lm, am, symbols, boundary, *saved = ctx.saved_tensors
        lm_grad, am_grad = _k2.mps_rnnt_smoothed_logprobs_backward(
            _options(lm, am, symbols, boundary, ctx.rest), _saved_of(saved),
            px_grad, py_grad)
        return lm_grad, am_grad, None, None, None


class _Loss(torch.autograd.Function):

    @staticmethod
    def forward(ctx, lm, am, symbols, boundary, rest: dict, reduction: str,
                return_grad: bool, grads: List[torch.Tensor]) -> torch.Tensor:
        needs_grads = (return_grad or lm.requires_grad or am.requires_grad)
        loss, saved = _k2.mps_rnnt_smoothed_loss(
            _options(lm, am, symbols, boundary, rest), reduction, needs_grads)
        if needs_grads:
            ctx.rest, ctx.reduction = rest, reduction
            ctx.save_for_backward(lm, am, symbols, boundary,
                                  *_tensors_of(saved))
            grads.extend((saved.px_grad, saved.py_grad))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, loss_grad: torch.Tensor):
        lm, am, symbols, boundary, *saved = ctx.saved_tensors
        lm_grad, am_grad = _k2.mps_rnnt_smoothed_loss_backward(
            _options(lm, am, symbols, boundary, ctx.rest), ctx.reduction,
            _saved_of(saved), loss_grad)
        return (lm_grad, am_grad, *[None] * 6)


def _arguments(lm, am, symbols, termination_symbol, lm_only_scale,
               am_only_scale, boundary, rnnt_type, delay_penalty):
    '''Return the first five arguments of _Logprobs and _Loss.'''
    B, T, _ = am.shape
    check_boundary(boundary, B, symbols.shape[1], T, rnnt_type == 'regular')
    rest = dict(termination_symbol=termination_symbol, rnnt_type=rnnt_type,
                lm_only_scale=lm_only_scale, am_only_scale=am_only_scale,
                delay_penalty=max(delay_penalty, 0.0))
    return (lm.float().contiguous(), am.float().contiguous(),
            symbols.contiguous(),
            None if boundary is None else boundary.contiguous(), rest)


def logprobs(lm: torch.Tensor, am: torch.Tensor, symbols: torch.Tensor,
             termination_symbol: int, lm_only_scale: float,
             am_only_scale: float, boundary: Optional[torch.Tensor],
             rnnt_type: str) -> Tuple[torch.Tensor, torch.Tensor]:
    '''Return what :func:`k2.get_rnnt_logprobs_smoothed` returns.

    Args:
      As for :func:`k2.get_rnnt_logprobs_smoothed`.  :func:`in_metal` must
      return True for these arguments.
    Returns:
      px and py, torch.float32 on mps.  Autograd can differentiate them only
      once.
    '''
    return _Logprobs.apply(*_arguments(
        lm, am, symbols, termination_symbol, lm_only_scale, am_only_scale,
        boundary, rnnt_type, 0.0))


def loss(lm: torch.Tensor, am: torch.Tensor, symbols: torch.Tensor,
         termination_symbol: int, lm_only_scale: float, am_only_scale: float,
         boundary: Optional[torch.Tensor], rnnt_type: str,
         delay_penalty: float, reduction: str, return_grad: bool
         ) -> Union[torch.Tensor,
                    Tuple[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]]:
    '''Return what :func:`k2.rnnt_loss_smoothed` returns.

    Args:
      As for :func:`k2.rnnt_loss_smoothed`.  :func:`in_metal` must return True
      for these arguments.
    Returns:
      The loss, torch.float32 on mps.  Autograd can differentiate the loss only
      once.  If ``return_grad``, a tuple of the loss and the gradients of px and
      py, torch.float32 on mps.
    '''
    grads = []
    ans = _Loss.apply(
        *_arguments(lm, am, symbols, termination_symbol, lm_only_scale,
                    am_only_scale, boundary, rnnt_type, delay_penalty),
        reduction, return_grad, grads)
    return (ans, tuple(grads)) if return_grad else ans
