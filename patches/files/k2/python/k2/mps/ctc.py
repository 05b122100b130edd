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
'''CTC without a lattice, on the GPU.'''
import inspect
from collections import deque
from typing import Optional
from typing import Tuple

import torch
import _k2

from ..autograd import intersect_dense
from ..first_gradient import first_gradient_only
from .graph_index import GraphIndex
from .graph_index import graph_index

# k2.ctc_loss calls intersect_dense with its default limits.
_LIMITS = inspect.signature(intersect_dense).parameters
_MAX_STATES = _LIMITS['max_states'].default
_MAX_ARCS = _LIMITS['max_arcs'].default

# In the cache of an Fsa: the inputs of _penalized(), and its result.
_PENALIZED = 'mps_penalized'

# (GraphIndex, number of columns) of calls whose labels are not yet checked.
_unchecked = deque()


def _require_columns(labels: Tuple[int, int], num_columns: int,
                     graph: str) -> None:
    for label in labels:
        if not -1 <= label <= num_columns - 2:
            raise RuntimeError(
                f'{graph} has label {label}, which is not within '
                f'[-1, {num_columns - 2}]: dense_fsa_vec has {num_columns} '
                'columns of scores. Was the graph made for a model with more '
                'symbols?')


def _check_labels(index: GraphIndex, num_columns: int) -> None:
    '''Raise if a label has no column of scores.

    If the GPU fills the index, the host knows the labels later: then a later
    call raises, since this one would have to wait.
    '''
    while _unchecked and _unchecked[0][0].labels() is not None:
        earlier, columns = _unchecked.popleft()
        _require_columns(
            earlier.labels(), columns,
            'The decoding graph of an earlier k2.ctc_loss on mps, whose loss '
            'is NaN,')
    if index.labels() is None:
        _unchecked.append((index, num_columns))
    else:
        _require_columns(index.labels(), num_columns, 'The decoding graph')


def _penalty_source(graphs) -> Optional[torch.Tensor]:
    '''Return the attribute by which CtcLoss chooses the arcs that get a delay
    penalty; None if the graph lacks it or if it is ragged.'''
    source = getattr(graphs, '_is_repeat_token_',
                     getattr(graphs, 'aux_labels', None))
    return source if isinstance(source, torch.Tensor) else None


def _penalized(graphs) -> torch.Tensor:
    '''Return which arcs get a delay penalty from CtcLoss.

    Args:
      graphs:
        A k2.Fsa that has a _penalty_source().
    Returns:
      A 1-D tensor of torch.uint8.
    '''
    source = _penalty_source(graphs)
    index = graph_index(graphs)
    known = graphs._cache.get(_PENALIZED)
    if known is not None:
        of, version, of_index, penalized = known
        if of is source and version == source._version and of_index is index:
            return penalized
    has_repeats = hasattr(graphs, '_is_repeat_token_')
    labels = graphs.labels if has_repeats else source
    mask = (labels == 0) | (labels == -1)
    if has_repeats:
        mask |= source != 0
    penalized = (~mask).to(torch.uint8)
    graphs._cache[_PENALIZED] = source, source._version, index, penalized
    return penalized


class _CtcScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, graphs, dense, output_beam: float, penalty: float,
                penalized: Optional[torch.Tensor], use_double_scores: bool,
                a_scores: torch.Tensor, b_scores: torch.Tensor) -> torch.Tensor:
        num_columns = b_scores.shape[1]
        index = graph_index(graphs)
        _check_labels(index, num_columns)
        ctx.arguments = dict(
            fsas=graphs.arcs, index=index.index, penalized=penalized,
            dense=dense.dense_fsa_vec, num_rows=_num_rows(dense),
            penalty=penalty, use_double=use_double_scores,
            # The gradient of the graphs' scores adds up all frames in their
            # order.
            all_sums=a_scores.requires_grad)
        scores, saved = _k2.mps_ctc_forward(**ctx.arguments,
                                            output_beam=output_beam)
        # torch raises if a saved tensor, such as the scores, has changed, and
        # frees them all after the backward pass.
        ctx.save_for_backward(a_scores, b_scores, saved.kept, saved.sums,
                              saved.totals)
        return scores

    @staticmethod
    @first_gradient_only
    def backward(ctx, grad: torch.Tensor):
        a_scores, b_scores, kept, sums, totals = ctx.saved_tensors
        grads = _k2.mps_ctc_backward(
            **ctx.arguments,
            saved=_k2.MpsCtcSaved(kept=kept, sums=sums, totals=totals),
            score_grads=grad, need_graphs=a_scores.requires_grad,
            need_dense=b_scores.requires_grad)
        return (*[None] * 6, *grads)


def _num_rows(dense) -> int:
    '''Return the rows of the longest sequence of a k2.DenseFsaVec.'''
    return int(dense.duration.max()) + 1


def in_metal(graphs, dense, output_beam: float, delay_penalty: float) -> bool:
    '''Return whether the GPU computes the loss, without a lattice.

    It does not on other devices, if the host is faster, and if the lattice may
    exceed a limit, so that k2 would narrow the beam.

    Args:
      graphs:
        The k2.Fsa that CtcLoss calls decoding_graph.
      dense:
        The k2.DenseFsaVec.
      output_beam, delay_penalty:
        As for CtcLoss.
    '''
    if (graphs.device.type != 'mps' or dense.device.type != 'mps'
            or len(graphs.shape) != 3 or graphs.shape[0] != dense.dim0()
            or graphs.shape[0] == 0 or not output_beam > 0):
        return False
    num_rows = _num_rows(dense)
    num_states = graphs.arcs.shape().tot_size(1)
    num_arcs = graphs.arcs.shape().tot_size(2)
    return ((num_rows + 1) * num_states <= _MAX_STATES
            and (num_rows + 1) * num_arcs <= _MAX_ARCS
            and (not delay_penalty > 0 or _penalty_source(graphs) is not None)
            and _k2.mps_prefers_ctc(graphs.arcs, num_rows))


def tot_scores(graphs, dense, output_beam: float, delay_penalty: float,
               use_double_scores: bool) -> torch.Tensor:
    '''Return the total scores of the lattices of CtcLoss, without the lattices.

    Args:
      graphs, dense, output_beam, delay_penalty:
        As for :func:`in_metal`, which must be true.
      use_double_scores:
        As for CtcLoss.
    Returns:
      A 1-D tensor of torch.float32 on mps with a score for each FSA, which
      supports autograd.
    '''
    penalized = _penalized(graphs) if delay_penalty > 0 else None
    return _CtcScores.apply(graphs, dense, output_beam, -float(delay_penalty),
                            penalized, use_double_scores, graphs.scores,
                            dense.scores)
