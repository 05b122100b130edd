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
'''The CTC loss on the GPU, without a lattice.'''
import inspect
from typing import NamedTuple
from typing import Optional

import torch
import _k2

from torch.autograd.function import once_differentiable
from ..autograd import intersect_dense
from .graph_index import GraphIndex
from .graph_index import graph_index
from . import not_taken

# If k2.ctc_loss makes a lattice, it calls intersect_dense with these limits,
# which are the defaults.
_LIMITS = inspect.signature(intersect_dense).parameters
_MAX_STATES = _LIMITS['max_states'].default
_MAX_ARCS = _LIMITS['max_arcs'].default

# _penalized() keeps its inputs and its result under this key in the cache of an
# Fsa.
_PENALIZED = 'mps_penalized'


class _Labels(NamedTuple):
    '''The labels of a call's graphs.  Each label must have a column of
    scores.'''
    index: GraphIndex
    num_columns: int

    def check(self, graph: str) -> None:
        '''Check the labels, if the host knows them.

        Args:
          graph:
            How the message names the decoding graph.
        Raises:
          RuntimeError: a label has no column of scores.
        '''
        for label in self.index.labels() or ():
            if not -1 <= label <= self.num_columns - 2:
                raise RuntimeError(
                    f'{graph} has label {label}, which is not within '
                    f'[-1, {self.num_columns - 2}]: dense_fsa_vec has '
                    f'{self.num_columns} columns of scores. Was the graph made '
                    'for a model with more symbols?')


def _penalty_source(graphs) -> Optional[torch.Tensor]:
    '''Return the attribute of the graphs that decides which arcs get a delay
    penalty from CtcLoss.

    Returns:
      A tensor with an element for each arc, or None if the attribute is
      missing or ragged.
    '''
    source = getattr(graphs, '_is_repeat_token_',
                     getattr(graphs, 'aux_labels', None))
    return source if isinstance(source, torch.Tensor) else None


def _penalized(graphs, index: GraphIndex) -> torch.Tensor:
    '''Return which arcs get a delay penalty from CtcLoss.

    Args:
      graphs:
        A k2.Fsa that has a _penalty_source().
      index:
        The graph_index() of ``graphs``.
    Returns:
      A 1-D tensor of torch.uint8 on mps: 1 for an arc that gets the penalty,
      else 0.
    '''
    source = _penalty_source(graphs)
    cached = graphs._cache.get(_PENALIZED)
    if cached is not None:
        *inputs, version, penalized = cached
        if (inputs[0] is source and inputs[1] is index
                and version == source._version):
            return penalized
    has_repeats = hasattr(graphs, '_is_repeat_token_')
    labels = graphs.labels if has_repeats else source
    mask = (labels == 0) | (labels == -1)
    if has_repeats:
        mask |= source != 0
    penalized = (~mask).to(torch.uint8)
    graphs._cache[_PENALIZED] = source, index, source._version, penalized
    return penalized


class _CtcScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, graphs, call, labels: _Labels, a_scores: torch.Tensor,
                b_scores: torch.Tensor) -> torch.Tensor:
        ctx.call, ctx.labels = call, labels
        scores, saved = call.forward()
        # torch raises if a saved tensor, such as b_scores, has changed before
        # the backward pass.  After this pass, torch frees the saved tensors.
        ctx.save_for_backward(a_scores, b_scores, saved.kept, saved.sums,
                              saved.totals)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: torch.Tensor):
        ctx.labels.check('The decoding graph of this k2.ctc_loss on mps, whose '
                         'loss is NaN,')
        _, _, kept, sums, totals = ctx.saved_tensors
        grads = ctx.call.backward(
            saved=_k2.MpsCtcSaved(kept=kept, sums=sums, totals=totals),
            score_grads=grad, need_graphs=ctx.needs_input_grad[3],
            need_dense=ctx.needs_input_grad[4])
        return None, None, None, *grads


def _rows_for_metal(graphs, dense, output_beam: float,
                    delay_penalty: float) -> Optional[int]:
    '''Return the number of rows of the longest sequence, or None if k2 must
    make a lattice.  A sequence has a row for each frame, and one more.

    k2 makes a lattice if an argument is not on mps, if an argument is not
    supported, or if the host is faster.  k2 also makes a lattice if the lattice
    could have more states or arcs than intersect_dense() allows, because
    intersect_dense() then narrows the beam.
    '''
    if (graphs.device.type != 'mps' or dense.device.type != 'mps'
            or len(graphs.shape) != 3 or graphs.shape[0] != dense.dim0()
            or not output_beam > 0):
        return None  # The code that makes a lattice raises if this is wrong.
    if delay_penalty > 0 and _penalty_source(graphs) is None:
        not_taken.note(
            'ctc_loss', 'delay_penalty needs a lattice, because '
            'graphs.aux_labels is not a tensor')
        return None
    num_rows = int(dense.duration.max()) + 1
    num_states = graphs.arcs.shape().tot_size(1)
    num_arcs = graphs.arcs.shape().tot_size(2)
    if ((num_rows + 1) * num_states > _MAX_STATES
            or (num_rows + 1) * num_arcs > _MAX_ARCS):
        not_taken.note(
            'ctc_loss', 'the lattice may exceed the max_states or the '
            'max_arcs of intersect_dense')
        return None
    not_taken.note('ctc_loss')
    return num_rows if _k2.mps_prefers_ctc(graphs.arcs, num_rows) else None


def tot_scores(graphs, dense, output_beam: float, delay_penalty: float,
               use_double_scores: bool) -> Optional[torch.Tensor]:
    '''Return the total scores of the lattices that CtcLoss would make, but do
    not make the lattices.

    Args:
      graphs:
        The k2.Fsa that CtcLoss calls decoding_graph.
      dense:
        The k2.DenseFsaVec.
      output_beam, delay_penalty, use_double_scores:
        As for CtcLoss.
    Returns:
      A 1-D tensor of torch.float32 on mps with a score for each FSA.  The
      tensor supports autograd.  None if k2 must make the lattices.
    Raises:
      RuntimeError: a label has no column of scores.  If the GPU makes the
      labels, the host does not wait for them: the loss is NaN, and the backward
      pass raises if the host knows the labels then.
    '''
    num_rows = _rows_for_metal(graphs, dense, output_beam, delay_penalty)
    if num_rows is None:
        return None
    index = graph_index(graphs)
    labels = _Labels(index, dense.scores.shape[1])
    labels.check('The decoding graph')
    call = _k2.MpsCtcCall(
        graphs=graphs.arcs, index=index.index, dense=dense.dense_fsa_vec,
        num_rows=num_rows,
        penalized=_penalized(graphs, index) if delay_penalty > 0 else None,
        penalty=-float(delay_penalty), use_double=use_double_scores,
        # The gradient of the graphs' scores needs the sums over paths for each
        # frame.
        all_sums=graphs.scores.requires_grad, output_beam=output_beam)
    return _CtcScores.apply(graphs, call, labels, graphs.scores, dense.scores)
