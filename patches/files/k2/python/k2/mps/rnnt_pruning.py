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
'''get_rnnt_prune_ranges and do_rnnt_pruning on mps.'''
from typing import Optional, Tuple

import torch
import _k2

from torch.autograd.function import once_differentiable
from .rnnt_boundary import boundary_rows
from .rnnt_pruned import DTYPES, MOST

# As in kernels/rnnt_pruning.h and kernels/simd_width.h.
_BACKWARD_THREADS = 256
_SIMD_WIDTH = 32


def ranges_in_metal(px_grad: torch.Tensor, py_grad: torch.Tensor,
                    boundary: torch.Tensor) -> bool:
    '''Return whether :func:`prune_ranges` takes these arguments.'''
    S, T = px_grad.shape[1], py_grad.shape[2]
    return (px_grad.device.type == 'mps' and py_grad.numel() != 0
            and all(x.dtype == torch.float32 and x.device == px_grad.device
                    for x in (px_grad, py_grad))
            and boundary.dtype == torch.int64
            and boundary.device == px_grad.device
            # The kernel counts up to begin + s_range * T in int32.
            and (S + 1) * (T + 1) < MOST // 2)


def prune_ranges(px_grad: torch.Tensor, py_grad: torch.Tensor,
                 boundary: torch.Tensor, s_range: int) -> torch.Tensor:
    '''Compute get_rnnt_prune_ranges(), with the same arguments.

    If k2 does not know the values of the boundary yet, the host waits for the
    GPU and then reads the values.
    '''
    B, S, columns = px_grad.shape
    T = py_grad.shape[2]
    is_regular = columns != T
    Ss, Ts = zip(*[row[2:] for row in boundary_rows(boundary)])
    assert is_regular or all(t >= s for s, t in zip(Ss, Ts)), (
        f'Modified transducer requires T >= S, but got T={Ts} and S={Ss}')
    if S == 0:
        return torch.zeros((B, T, 1), dtype=torch.int64, device=px_grad.device)
    if is_regular:
        # int() rounds towards 0, like rounding_mode='trunc' of torch.div().
        least = max(int((s - 1) / max(t, 1)) + 2 for s, t in zip(Ss, Ts))
        if s_range < least:
            print(
                f'Warning: get_rnnt_prune_ranges - got s_range={s_range} '
                f'for boundaries S={Ss}, T={Ts}. Adjusting to {least}')
            s_range = least
    if s_range > S:
        print(
            f'Warning: get_rnnt_prune_ranges - got s_range={s_range} '
            f'for boundaries S={S}. Adjusting to {S + 1}')
        s_range = S + 1
    assert s_range >= 1 + is_regular, (
        'Pruning range for standard RNN-T should be equal to or greater than '
        '2, and for modified RNN-T than 1, or no valid paths could survive '
        f'pruning. Given {s_range}')
    return _k2.mps_rnnt_prune_ranges(px_grad.contiguous(), py_grad.contiguous(),
                                     boundary.contiguous(), s_range)


class _Pruning(torch.autograd.Function):

    @staticmethod
    def forward(ctx, am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
                ) -> Tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ranges = ranges.contiguous()
        ctx.num_symbols = lm.shape[1] - 1
        ctx.save_for_backward(ranges)
        am_pruned = am.unsqueeze(2).expand(-1, -1, ranges.shape[2], -1)
        lm_pruned = _k2.mps_rnnt_prune(am=None, lm=lm.contiguous(),
                                       ranges=ranges)
        return am_pruned, lm_pruned

    @staticmethod
    @once_differentiable
    def backward(ctx, am_grad: Optional[torch.Tensor],
                 lm_grad: Optional[torch.Tensor]):
        (ranges,) = ctx.saved_tensors
        needs_am, needs_lm, _ = ctx.needs_input_grad
        needs_am = needs_am and am_grad is not None
        needs_lm = needs_lm and lm_grad is not None
        # If the program uses only the sum of both results, autograd passes one
        # tensor as both gradients.  The kernel then reads this tensor once.
        fused = needs_am and needs_lm and am_grad is lm_grad
        am_sum = lm_sum = None
        if fused or needs_lm:
            am_sum, lm_sum = _k2.mps_rnnt_prune_backward(
                out_grad=lm_grad.contiguous(), out=None, ranges=ranges,
                num_symbols=ctx.num_symbols, needs_am=fused, needs_lm=True)
        if needs_am and not fused:
            am_sum = am_grad.sum(2)
        return am_sum, lm_sum, None


class _JoinerInput(torch.autograd.Function):

    @staticmethod
    def forward(ctx, am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
                ) -> torch.Tensor:
        ranges = ranges.contiguous()
        out = _k2.mps_rnnt_prune(am=am.contiguous(), lm=lm.contiguous(),
                                 ranges=ranges)
        ctx.num_symbols = lm.shape[1] - 1
        ctx.save_for_backward(out, ranges)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, out_grad: torch.Tensor):
        out, ranges = ctx.saved_tensors
        needs_am, needs_lm, _ = ctx.needs_input_grad
        am_grad, lm_grad = _k2.mps_rnnt_prune_backward(
            out_grad=out_grad.contiguous(), out=out, ranges=ranges,
            num_symbols=ctx.num_symbols, needs_am=needs_am, needs_lm=needs_lm)
        return am_grad, lm_grad, None


def in_metal(am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor) -> bool:
    '''Return whether the kernels take these arguments of do_rnnt_pruning().

    The kernels take tensors on mps of the dtypes that do_rnnt_pruning()
    documents, if no tensor is empty.  do_rnnt_pruning() checks the shapes.
    '''
    if lm.device.type != 'mps' or lm.dtype not in DTYPES:
        return False
    B, T, s_range = ranges.shape
    # The backward kernel has a threadgroup for each row of lm and a simdgroup
    # for each row of am, and numbers its threads in int32.
    threads = (_BACKWARD_THREADS * (B * lm.shape[1] + 1)
               + _SIMD_WIDTH * B * T)
    return (am.device == ranges.device == lm.device
            and ranges.dtype == torch.int64
            and ranges.numel() != 0 and am.numel() != 0 and lm.numel() != 0
            and max(B * T * s_range, threads) <= MOST)


def prune(am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
          ) -> Tuple[torch.Tensor, torch.Tensor]:
    '''Compute do_rnnt_pruning().  :func:`in_metal` must return True.'''
    return _Pruning.apply(am, lm, ranges)


def fused_joiner_input(am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
                       ) -> torch.Tensor:
    '''Compute joiner_input() of joiner.py.  :func:`in_metal` must return True,
    and am and lm must have the same number of columns and the same dtype.'''
    return _JoinerInput.apply(am, lm, ranges)
