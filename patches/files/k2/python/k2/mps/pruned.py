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
'''intersect_dense_pruned on mps: the GPU or the host makes the lattice.'''
from typing import Callable
from typing import Tuple

import torch
import _k2
import k2

from . import lattice
from . import not_taken


def _make(a_fsas, b_fsas, *options):
    '''Return a _k2.MpsFramedLattice, or None if the host intersects.'''
    if a_fsas.device.type != 'mps' or b_fsas.device.type != 'mps':
        return None
    num_rows = int(b_fsas.duration.max()) + 1
    made, reason = _k2.mps_intersect_dense_pruned(
        a_fsas.arcs, b_fsas.dense_fsa_vec, num_rows, *options)
    not_taken.note('intersect_dense_pruned', reason)
    return made


def intersect_dense_pruned(a_fsas, b_fsas, search_beam: float,
                           output_beam: float, min_active_states: int,
                           max_active_states: int,
                           allow_partial: bool) -> Tuple:
    '''Intersect as :func:`k2.intersect_dense_pruned` does, without gradients.

    Args:
      a_fsas, b_fsas, search_beam, output_beam, min_active_states,
      max_active_states, allow_partial:
        As for :func:`k2.intersect_dense_pruned`.
    Returns:
      The lattice; its arc maps to ``a_fsas`` and to ``b_fsas.scores``; and a
      function that takes values and an arc map, and returns what
      ``_k2.index_select`` returns.
    '''
    options = (search_beam, output_beam, min_active_states, max_active_states,
               allow_partial)
    made = _make(a_fsas, b_fsas, *options)
    if made is None:
        arcs, arc_map_a, arc_map_b = _k2.intersect_dense_pruned(
            a_fsas.arcs, b_fsas.dense_fsa_vec, *options)
        return k2.Fsa(arcs), arc_map_a, arc_map_b, _k2.index_select
    ans = k2.Fsa(made.fsas, properties=made.properties)
    lattice.keep(ans, made)
    return ans, made.arc_map_a, made.arc_map_b, _selector(allow_partial)


def _selector(allow_partial: bool) -> Callable:
    '''Return a function that selects on the GPU, so that the host does not
    wait for the map.

    Args:
      allow_partial:
        Whether a map can contain -1, for which the function selects 0.
    '''

    def select(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if not allow_partial:
            return values.index_select(0, index)
        return select_or_fill(values, index.clamp(min=0), index < 0, 0)

    return select


def select_or_fill(values: torch.Tensor, index: torch.Tensor,
                   is_none: torch.Tensor, filler: float) -> torch.Tensor:
    '''Return ``values[index]``, but with the filler in the rows in which
    ``is_none`` is true.'''
    ans = values.index_select(0, index)
    return ans.masked_fill(is_none.view(-1, *[1] * (values.ndim - 1)), filler)
