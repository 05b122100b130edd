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
'''intersect_dense on mps, and the incoming arcs and the state batches of its
lattices.'''
from typing import Callable
from typing import Optional
from typing import Tuple

import torch
import _k2
import k2

from .graph_index import graph_index
from . import not_taken
from .sums import intersect_gradients

# The cache of an Fsa has, under this key, the _k2.MpsFramedLattice that the Fsa
# was made from.
_LATTICE = 'mps_lattice'


def _make(a_fsas, b_fsas, a_to_b_map: Optional[torch.Tensor],
          output_beam: float, max_states: int, max_arcs: int):
    '''Return a _k2.MpsLattice, or None if the host intersects.

    The host intersects if the host is faster, or if there are no FSAs or no
    arcs.  If k2 does not accept the input, the host's code raises the error.
    '''
    if (a_fsas.device.type != 'mps' or b_fsas.device.type != 'mps'
            or len(a_fsas.shape) != 3 or not output_beam > 0):
        return None
    num_fsas, num_seqs = a_fsas.shape[0], b_fsas.dim0()
    if num_fsas == 0:
        return None
    if a_to_b_map is None:
        if num_fsas != num_seqs:
            return None
    elif (a_to_b_map.shape != (num_fsas,) or a_to_b_map.dtype != torch.int32
          or a_to_b_map.device.type != 'mps'):
        return None
    num_rows = int(b_fsas.duration.max()) + 1
    not_taken.note('intersect_dense')
    if not _k2.mps_prefers_intersect_dense(a_fsas.arcs, num_rows):
        return None
    index = graph_index(a_fsas).index
    if a_to_b_map is None:
        a_to_b_map = index.every_fsa
    else:
        seqs = a_to_b_map.to('cpu')
        if (seqs[1:] < seqs[:-1]).any() or seqs[0] < 0 or seqs[-1] >= num_seqs:
            not_taken.note('intersect_dense',
                           'a_to_b_map is not in ascending order')
            return None
        # The backward pass reads the map, too.  Until then, the caller may
        # write to the tensor.
        a_to_b_map = a_to_b_map.clone()
    return _k2.mps_intersect_dense(
        a_fsas.arcs, index, b_fsas.dense_fsa_vec, num_rows, a_to_b_map,
        output_beam, max_states, max_arcs)


def intersect_dense(a_fsas, b_fsas, a_to_b_map: Optional[torch.Tensor],
                    output_beam: float, max_states: int,
                    max_arcs: int) -> Tuple:
    '''Intersect as :func:`k2.intersect_dense` does, without gradients.

    Args:
      a_fsas, b_fsas, a_to_b_map, output_beam, max_states, max_arcs:
        As for :func:`k2.intersect_dense`.
    Returns:
      The lattice; its arc maps to ``a_fsas`` and to ``b_fsas.scores``; and
      the ``_k2.MpsLattice`` if the GPU of mps has made the lattice, else None.
    '''
    made = _make(a_fsas, b_fsas, a_to_b_map, output_beam, max_states, max_arcs)
    if made is None:
        arcs, arc_map_a, arc_map_b = _k2.intersect_dense(
            a_fsas.arcs, b_fsas.dense_fsa_vec, a_to_b_map, output_beam,
            max_states, max_arcs)
        return k2.Fsa(arcs), arc_map_a, arc_map_b, None
    properties = made.properties if made.properties >= 0 else None
    ans = k2.Fsa(made.fsas, properties=properties)
    keep(ans, made)
    return ans, made.arc_map_a, made.arc_map_b, made


def keep(fsa, made) -> None:
    '''Keep in an Fsa the _k2.MpsFramedLattice that it was made from.'''
    fsa._cache[_LATTICE] = made


def made_by_metal(fsa) -> bool:
    '''Return whether an Fsa is a lattice that the GPU has made.

    incoming_arcs() and state_batches() take only such a lattice.
    '''
    return _LATTICE in fsa._cache


def incoming_arcs(fsa) -> k2.RaggedTensor:
    '''Return what Fsa._get_incoming_arcs returns.'''
    return _cached(fsa, 'incoming_arcs')


def state_batches(fsa) -> k2.RaggedTensor:
    '''Return what Fsa._get_state_batches returns.'''
    return _cached(fsa, 'state_batches')


def _cached(fsa, name: str) -> k2.RaggedTensor:
    # If the GPU has failed since the result was made, it may be wrong.
    key = f'{name}_{_k2.mps_num_failures()}'
    cache = fsa._cache
    if key not in cache:
        cache[key] = getattr(cache[_LATTICE], name)()
    return cache[key]


def select_arcs(value: torch.Tensor, arc_map: torch.Tensor,
                made) -> torch.Tensor:
    '''Return ``value[arc_map]``.  If the GPU has made the map, the GPU selects
    the values, else the host does.

    Args:
      value:
        An attribute of arcs.
      arc_map, made:
        An arc map and the ``_k2.MpsLattice`` or None that
        :func:`intersect_dense` returned.
    '''
    if made is None:
        return _k2.index_select(value, arc_map)
    return value.index_select(0, arc_map)


def gradients(ctx, grad: torch.Tensor
              ) -> Tuple[Optional[torch.Tensor], Optional[torch.Tensor]]:
    '''Return the gradients of a_fsas.scores and b_fsas.scores.

    Args:
      ctx:
        The context of the forward pass.  The attribute ``lattice`` of the
        context is the ``_k2.MpsLattice`` or None that :func:`intersect_dense`
        returned.
      grad:
        The gradient of the lattice's scores.
    '''
    if ctx.lattice is None:
        return intersect_gradients(ctx, grad)
    a_scores, b_scores = ctx.saved_tensors
    grad = grad.contiguous()
    return (_sums(ctx.lattice.graph_grad, grad, a_scores),
            _sums(ctx.lattice.dense_grad, grad, b_scores))


def _sums(add_up: Callable, grad: torch.Tensor,
          scores: torch.Tensor) -> Optional[torch.Tensor]:
    if not scores.requires_grad:
        return None
    ans = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)
    add_up(grad, ans)
    return ans
