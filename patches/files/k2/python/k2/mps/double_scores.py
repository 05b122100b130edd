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
'''Scores of states and arcs on the GPU, nearly in double precision.

For use_double_scores=False k2 uses the same kernels, because kernels in single
precision would not be faster.
'''
from typing import Tuple

import torch
import _k2

from torch.autograd.function import once_differentiable
from k2.mps import lattice
from k2.mps.graph_index import graph_index
from k2.mps import not_taken


def in_metal(fsas) -> bool:
    '''Return whether the GPU is faster than the host for an FsaVec.

    The functions below may be called only if the result is True.
    '''
    # With mps off, do not ask for the device, which takes a microsecond.
    if not _k2.version.with_mps or fsas.device.type != 'mps':
        return False
    if fsas.num_arcs == 0:
        not_taken.note('get_tot_scores', 'the FSAs have no arcs')
        return False
    not_taken.note('get_tot_scores')
    return _k2.mps_prefers_double_scores(fsas.arcs,
                                         fsas._get_state_batches().dim0)


def tot_scores(fsas, log_semiring: bool) -> torch.Tensor:
    '''Return what Fsa.get_tot_scores returns, as torch.float32.'''
    return _TotScores.apply(fsas, log_semiring, fsas.scores)


def forward_scores(fsas, log_semiring: bool) -> torch.Tensor:
    '''Return what Fsa.get_forward_scores returns, as torch.float32.'''
    return _Scores.apply(fsas, log_semiring, 'forward', fsas.scores)


def backward_scores(fsas, log_semiring: bool) -> torch.Tensor:
    '''Return what Fsa.get_backward_scores returns, as torch.float32.'''
    return _Scores.apply(fsas, log_semiring, 'backward', fsas.scores)


def arc_post(fsas, log_semiring: bool) -> torch.Tensor:
    '''Return what Fsa.get_arc_post returns, as torch.float32.'''
    return _ArcPost.apply(fsas, log_semiring, fsas.scores)


def entering_arcs(fsas) -> torch.Tensor:
    '''Return what Fsa._get_entering_arcs returns.'''
    scores, _ = _scores(fsas, log_semiring=False, forward=True, backward=False)
    return scores.best_arcs


def _incoming(fsas) -> Tuple[torch.Tensor, torch.Tensor]:
    '''Return the arcs of Fsa._get_incoming_arcs as two tensors of torch.int32.

    Returns:
      The row splits: for each state, where its incoming arcs begin in the
      second tensor.  The values: the indexes of the arcs, sorted by the state
      that the arcs enter.
    '''
    if lattice.made_by_metal(fsas):
        incoming = lattice.incoming_arcs(fsas)
        return incoming.shape.row_splits(2), incoming.values
    index = graph_index(fsas).index
    return index.incoming_begins, index.incoming


def _batched(fsas, log_semiring: bool, *,
             with_incoming: bool) -> '_k2.MpsBatchedFsas':
    incoming_begins, incoming = (_incoming(fsas) if with_incoming else
                                 (None, None))
    return _k2.MpsBatchedFsas(
        fsas=fsas.arcs, state_batches=fsas._get_state_batches(),
        log_semiring=log_semiring, incoming_begins=incoming_begins,
        incoming=incoming)


def _scores(fsas, log_semiring: bool, *, forward: bool,
            backward: bool) -> Tuple:
    '''Return the forward and the backward scores, each as a
    _k2.MpsDoubleScores, or None if they are not requested.'''
    wanted = {'forward': forward, 'backward': backward}
    # If scores change, an Fsa forgets the entries of its cache that have
    # "score" in their name.
    suffix = '_log' if log_semiring else '_tropical'
    # If the GPU has failed since scores were made, they may be wrong.
    suffix += f'_{_k2.mps_num_failures()}'
    names = {way: f'metal_{way}_scores{suffix}' for way in wanted}
    cache = fsas._cache
    missing = {way: wanted[way] and names[way] not in cache for way in wanted}
    if any(missing.values()):
        batched = _batched(fsas, log_semiring,
                           with_incoming=missing['forward'])
        made = _k2.mps_double_scores(batched, **missing)
        for way, scores in zip(wanted, made):
            if missing[way]:
                cache[names[way]] = scores
    return tuple(cache[names[way]] if wanted[way] else None for way in wanted)


class _TotScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, fsas, log_semiring: bool,
                unused_scores: torch.Tensor) -> torch.Tensor:
        # In the tropical semiring, the total and its gradient need only the
        # forward scores.  These scores decide among paths of equal score, as on
        # the CPU.  In the log semiring, the total comes from the backward
        # scores, which do not need the incoming arcs.  The gradient needs the
        # forward scores too.  One dispatch for forward and backward scores
        # takes no longer than a dispatch for one of them.
        has_gradient = ctx.needs_input_grad[2]
        forward, backward = _scores(
            fsas, log_semiring, forward=has_gradient or not log_semiring,
            backward=log_semiring)
        if has_gradient:
            ctx.batched = _batched(fsas, log_semiring, with_incoming=True)
            ctx.scores = forward, backward
            ctx.save_for_backward(unused_scores)
        # Autograd attaches this function to the tensor that forward() returns.
        # The cache must keep a tensor without autograd, so return another
        # tensor.
        return (backward or forward).totals.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: torch.Tensor):
        # torch raises if the scores have changed in place.
        ctx.saved_tensors
        forward, backward = ctx.scores
        if backward is None:
            arc_grad = _k2.mps_double_scores_backprop(
                ctx.batched, is_forward=True, scores=forward, grad=grad,
                of_totals=True)
        else:
            arc_grad = _k2.mps_double_totals_backprop(ctx.batched, forward,
                                                      backward, grad)
        return None, None, arc_grad


class _Scores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, fsas, log_semiring: bool, direction: str,
                unused_scores: torch.Tensor) -> torch.Tensor:
        is_forward = direction == 'forward'
        forward, backward = _scores(fsas, log_semiring, forward=is_forward,
                                    backward=not is_forward)
        scores = forward if is_forward else backward
        if ctx.needs_input_grad[3]:
            ctx.batched = _batched(fsas, log_semiring, with_incoming=True)
            ctx.is_forward, ctx.scores = is_forward, scores
            ctx.save_for_backward(unused_scores)
        return scores.rounded()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: torch.Tensor):
        # torch raises if the scores have changed in place.
        ctx.saved_tensors
        arc_grad = _k2.mps_double_scores_backprop(
            ctx.batched, is_forward=ctx.is_forward, scores=ctx.scores,
            grad=grad, of_totals=False)
        return None, None, None, arc_grad


class _ArcPost(torch.autograd.Function):

    @staticmethod
    def forward(ctx, fsas, log_semiring: bool,
                unused_scores: torch.Tensor) -> torch.Tensor:
        forward, backward = _scores(fsas, log_semiring, forward=True,
                                    backward=True)
        batched = _batched(fsas, log_semiring, with_incoming=True)
        if ctx.needs_input_grad[2]:
            ctx.batched, ctx.scores = batched, (forward, backward)
            ctx.save_for_backward(unused_scores)
        return _k2.mps_double_arc_post(batched, forward, backward)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: torch.Tensor):
        # torch raises if the scores have changed in place.
        ctx.saved_tensors
        forward, backward = ctx.scores
        forward_grad, backward_grad = _k2.mps_double_arc_post_backprop(
            ctx.batched, grad)
        by_forward = _k2.mps_double_scores_backprop(
            ctx.batched, is_forward=True, scores=forward, grad=forward_grad,
            of_totals=False)
        by_backward = _k2.mps_double_scores_backprop(
            ctx.batched, is_forward=False, scores=backward, grad=backward_grad,
            of_totals=False)
        return None, None, grad + by_forward + by_backward
