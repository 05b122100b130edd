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
from typing import List
from typing import Optional
from typing import Tuple
from typing import Union

import torch
import _k2

from ..first_gradient import first_gradient_only
from .lattice import entering_arcs

# The limits with which k2.ctc_loss calls intersect_dense.
_MAX_STATES = 15000000
_MAX_ARCS = 1 << 30

# (event, label on the CPU, number of columns) of calls whose labels are not yet
# checked.
_unchecked = deque()


def _graphs(graphs,
            num_columns: int) -> Tuple[List[torch.Tensor], torch.Tensor]:
    '''Return the members of CtcGraphs of k2/csrc/mps/ctc.h after the FSAs, and
    a label without a column, if there is one.

    torch's operators compute them on the GPU: if the host read arcs, it would
    have to wait for the GPU.
    '''
    entering_begins, entering, state = entering_arcs(graphs)
    fsa = torch.searchsorted(graphs.arcs.shape().row_splits(1), state,
                             right=True, out_int32=True) - 1
    label = graphs.arcs.values()[:, 2]
    lowest, highest = label.aminmax()
    # A label without a column, if there is one.
    worst = torch.where(lowest < -1, lowest, highest)
    is_bad = (worst < -1) | (worst > num_columns - 2)
    # All labels without a column sort alike.
    columns = label.clamp(-1, num_columns - 1) + 1
    key = fsa.to(torch.int64) * (num_columns + 1) + columns
    by_label = torch.sort(key, stable=True).indices
    return [entering_begins, entering, by_label.to(torch.int32), fsa,
            is_bad.to(torch.uint8).reshape(1)], worst


def _new_event() -> Union[torch.Event, torch.mps.Event]:
    '''Return an event for the current stream.'''
    # From 2.15 on torch has other streams, which only torch.Event takes.
    has_streams = hasattr(torch.mps, 'Stream')
    return torch.Event('mps') if has_streams else torch.mps.Event()


def _check_labels(worst: torch.Tensor, num_columns: int) -> None:
    '''Raise if an earlier call had a bad label; a later call checks `worst`.

    A check of this call's label would have to wait for the GPU.
    '''
    while _unchecked and _unchecked[0][0].query():
        _, label, columns = _unchecked.popleft()
        if not -1 <= label.item() <= columns - 2:
            raise RuntimeError(
                'An earlier k2.ctc_loss on mps, whose loss is NaN, had a '
                f'decoding graph with label {label.item()}, which is not '
                f'within [-1, {columns - 2}]: dense_fsa_vec has {columns} '
                'columns of scores. Was the graph made for a model with more '
                'symbols?')
    event = _new_event()
    label = worst.to('cpu', non_blocking=True)
    event.record()
    _unchecked.append((event, label, num_columns))


def _penalized(graphs) -> Optional[torch.Tensor]:
    '''Return which arcs CtcLoss gives a delay penalty.

    Returns:
      A 1-D tensor of torch.uint8; or None if the graph lacks an attribute, so
      that CtcLoss raises its own error.
    '''
    if hasattr(graphs, '_is_repeat_token_'):
        repeats = graphs._is_repeat_token_
        if not isinstance(repeats, torch.Tensor):
            return None
        mask = (graphs.labels == 0) | (graphs.labels == -1) | (repeats != 0)
    else:
        labels = getattr(graphs, 'aux_labels', None)
        if not isinstance(labels, torch.Tensor):
            return None
        mask = (labels == 0) | (labels == -1)
    return (~mask).to(torch.uint8)


class _CtcScores(torch.autograd.Function):

    @staticmethod
    def forward(ctx, graphs, dense, num_rows: int, output_beam: float,
                penalty: float, penalized: Optional[torch.Tensor],
                use_double_scores: bool, a_scores: torch.Tensor,
                b_scores: torch.Tensor) -> torch.Tensor:
        num_columns = b_scores.shape[1]
        tensors, worst = _graphs(graphs, num_columns)
        _check_labels(worst, num_columns)
        # The gradient of the graphs' scores adds up all frames in their order.
        all_sums = ctx.needs_input_grad[-2]
        ctx.arguments = (graphs.arcs, tensors, penalized, dense.dense_fsa_vec,
                         num_rows, penalty, use_double_scores, all_sums)
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
