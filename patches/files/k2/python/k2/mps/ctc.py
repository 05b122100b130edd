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
from collections import deque
from typing import Optional
from typing import Tuple

import torch
import _k2

from ..first_gradient import first_gradient_only
from .graph_index import GraphIndex
from .graph_index import graph_index

# The limits with which k2.ctc_loss calls intersect_dense.
_MAX_STATES = 15000000
_MAX_ARCS = 1 << 30

# In the cache of an Fsa: what _penalized() made it of, and what it made.
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


def _penalized(graphs) -> Optional[torch.Tensor]:
    '''Return which arcs CtcLoss gives a delay penalty.

    Returns:
      A 1-D tensor of torch.uint8; or None if the graph lacks an attribute, so
      that CtcLoss raises its own error.
    '''
    has_repeats = hasattr(graphs, '_is_repeat_token_')
    source = (graphs._is_repeat_token_
              if has_repeats else getattr(graphs, 'aux_labels', None))
    if not isinstance(source, torch.Tensor):
        return None
    index = graph_index(graphs)
    known = graphs._cache.get(_PENALIZED)
    if known is not None:
        of, version, of_index, penalized = known
        if of is source and version == source._version and of_index is index:
            return penalized
    labels = graphs.labels if has_repeats else source
    mask = (labels == 0) | (labels == -1)
    if has_repeats:
        mask |= source != 0
    penalized = (~mask).to(torch.uint8)
    graphs._cache[_PENALIZED] = source, source._version, index, penalized
    return penalized


class _CtcScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, graphs, dense, num_rows: int, output_beam: float,
                penalty: float, penalized: Optional[torch.Tensor],
                use_double_scores: bool, a_scores: torch.Tensor,
                b_scores: torch.Tensor) -> torch.Tensor:
        num_columns = b_scores.shape[1]
        index = graph_index(graphs)
        _check_labels(index, num_columns)
        # The gradient of the graphs' scores adds up all frames in their order.
        all_sums = ctx.needs_input_grad[-2]
        ctx.arguments = (graphs.arcs, index.index, penalized,
                         dense.dense_fsa_vec, num_rows, penalty,
                         use_double_scores, all_sums)
        scores, *saved = _k2.mps_ctc_forward(*ctx.arguments, output_beam)
        # torch raises if a saved tensor, such as the scores, has changed.
        ctx.save_for_backward(a_scores, b_scores, *saved)
        return scores

    @staticmethod
    @first_gradient_only
    def backward(ctx, grad: torch.Tensor):
        _, _, *saved = ctx.saved_tensors
        grads = _k2.mps_ctc_backward(*ctx.arguments, saved, grad,
                                     *ctx.needs_input_grad[-2:])
        return (None,) * 7 + tuple(grads)


def ctc_scores(graphs, dense, output_beam: float, delay_penalty: float,
               use_double_scores: bool) -> Optional[torch.Tensor]:
    '''Return the total scores of the lattices of CtcLoss, without the lattices.

    Args:
      graphs:
        The k2.Fsa that CtcLoss calls decoding_graph.
      dense:
        The k2.DenseFsaVec.
      output_beam, delay_penalty, use_double_scores:
        As for CtcLoss.
    Returns:
      A 1-D tensor of torch.float32 on mps with a score for each FSA, which
      supports autograd.  None if CtcLoss must make the lattice: on other
      devices, if the host is faster, and if the lattice may exceed a limit, so
      that k2 would narrow the beam.
    '''
    if (graphs.device.type != 'mps' or dense.device.type != 'mps'
            or len(graphs.shape) != 3 or graphs.shape[0] != dense.dim0()
            or graphs.shape[0] == 0 or not output_beam > 0):
        return None
    num_rows = int(dense.duration.max()) + 1
    num_states = graphs.arcs.shape().tot_size(1)
    num_arcs = graphs.arcs.shape().tot_size(2)
    if ((num_rows + 1) * num_states > _MAX_STATES
            or (num_rows + 1) * num_arcs > _MAX_ARCS
            or not _k2.mps_prefers_ctc(num_arcs, num_rows)):
        return None
    penalized = None
    if delay_penalty > 0:
        penalized = _penalized(graphs)
        if penalized is None:
            return None
    return _CtcScores.apply(graphs, dense, num_rows, output_beam,
                            -float(delay_penalty), penalized,
                            use_double_scores, graphs.scores, dense.scores)
