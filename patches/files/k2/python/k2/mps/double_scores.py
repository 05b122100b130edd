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
'''Scores of states and arcs by the GPU, nearly in double precision.

It is all the same whether the caller asks for double precision: these are no
slower than scores in single precision would be.
'''
import torch
import _k2


def in_metal(fsas) -> bool:
    '''Return whether the GPU is faster than the host for this k2.Fsa, an
    FsaVec.  Only then the following functions may be called.'''
    return (fsas.device.type == 'mps' and fsas.num_arcs > 0
            and _k2.prefer_double_scores_mps(fsas.num_arcs,
                                             fsas._get_state_batches().dim0))


def tot_scores(fsas, log_semiring: bool) -> torch.Tensor:
    '''As Fsa.get_tot_scores, in torch.float32.'''
    # Backward scores need no arcs by the states that they enter.  But of equal
    # paths the CPU takes the one that forward scores find.
    return _Scores.apply(fsas, log_semiring, not log_semiring, True,
                         fsas.scores)


def forward_scores(fsas, log_semiring: bool) -> torch.Tensor:
    '''As Fsa.get_forward_scores, in torch.float32.'''
    return _Scores.apply(fsas, log_semiring, True, False, fsas.scores)


def backward_scores(fsas, log_semiring: bool) -> torch.Tensor:
    '''As Fsa.get_backward_scores, in torch.float32.'''
    return _Scores.apply(fsas, log_semiring, False, False, fsas.scores)


def arc_post(fsas, log_semiring: bool) -> torch.Tensor:
    '''As Fsa.get_arc_post, in torch.float32.'''
    return _ArcPost.apply(fsas, log_semiring, fsas.scores)


def entering_arcs(fsas) -> torch.Tensor:
    '''As Fsa._get_entering_arcs.'''
    return _scores(fsas, False, True).best_arcs


def _batched(fsas, log_semiring: bool) -> '_k2.BatchedFsas':
    return _k2.BatchedFsas(fsas.arcs, fsas._get_state_batches(), log_semiring)


def _entering(fsas):
    '''Return where the arcs of each state begin in the list of arcs by the
    states that they enter, and that list: two tensors of torch.int32.'''
    name, cache = 'metal_entering', fsas._cache
    if name not in cache:
        # The GPU's work, in torch's operators: a host that reads arcs would
        # have to wait for all that the GPU has to do.
        arcs, shape = fsas.arcs.values(), fsas.arcs.shape()
        targets = shape.row_ids(2) - arcs[:, 0] + arcs[:, 1]
        targets, entering = torch.sort(targets, stable=True)
        states = torch.arange(shape.tot_size(1) + 1, dtype=torch.int32,
                              device=arcs.device)
        cache[name] = (torch.searchsorted(targets, states, out_int32=True),
                       entering.to(torch.int32))
    return cache[name]


def _scores(fsas, log_semiring: bool, is_forward: bool) -> '_k2.DoubleScores':
    # Fsa forgets what has "score" in its name if scores change.
    name = 'metal_scores_%s_%s' % ('forward' if is_forward else 'backward',
                                   'log' if log_semiring else 'tropical')
    cache = fsas._cache
    if name not in cache:
        batched = _batched(fsas, log_semiring)
        cache[name] = (
            _k2.double_forward_scores(batched, *_entering(fsas))
            if is_forward else _k2.double_backward_scores(batched))
    return cache[name]


class _Scores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, fsas, log_semiring: bool, is_forward: bool,
                of_totals: bool, unused_scores: torch.Tensor) -> torch.Tensor:
        scores = _scores(fsas, log_semiring, is_forward)
        ctx.arguments = (_batched(fsas, log_semiring), is_forward, scores)
        ctx.of_totals = of_totals
        # So that torch notes if they change.
        ctx.save_for_backward(unused_scores)
        # What is in the cache must not refer to this function.
        return scores.totals.detach() if of_totals else scores.rounded()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: torch.Tensor):
        ctx.saved_tensors
        return (None, None, None, None, _k2.double_scores_backprop(
            *ctx.arguments, grad, ctx.of_totals))


class _ArcPost(torch.autograd.Function):

    @staticmethod
    def forward(ctx, fsas, log_semiring: bool,
                unused_scores: torch.Tensor) -> torch.Tensor:
        batched = _batched(fsas, log_semiring)
        forward_scores = _scores(fsas, log_semiring, True)
        backward_scores = _scores(fsas, log_semiring, False)
        ctx.fsas = fsas
        ctx.batched = batched
        ctx.scores = forward_scores, backward_scores
        ctx.save_for_backward(unused_scores)
        return _k2.double_arc_post(batched, forward_scores, backward_scores)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: torch.Tensor):
        ctx.saved_tensors
        forward_scores, backward_scores = ctx.scores
        forward_grad, backward_grad = _k2.double_arc_post_backprop(
            ctx.batched, *_entering(ctx.fsas), grad)
        arc_grad = grad + _k2.double_scores_backprop(
            ctx.batched, True, forward_scores, forward_grad, False)
        return None, None, arc_grad + _k2.double_scores_backprop(
            ctx.batched, False, backward_scores, backward_grad, False)
