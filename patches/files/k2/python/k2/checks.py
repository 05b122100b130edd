# Copyright      2026  The k2-mps authors
#
# See ../../../LICENSE for clarification regarding multiple authors
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
'''Checks of arguments, with messages that say what is wrong and what to do.'''
from typing import Any
from typing import Optional

import torch
import k2


def check_dense_input(log_probs: torch.Tensor,
                      supervision_segments: torch.Tensor,
                      allow_truncate: int) -> None:
    '''Raise an AssertionError if :class:`k2.DenseFsaVec` refuses these
    arguments.'''
    assert log_probs.ndim == 3, (
        'log_probs must have 3 axes: sequences, frames and classes. Given: '
        f'{tuple(log_probs.shape)}')
    assert log_probs.dtype == torch.float32, (
        f'log_probs must be torch.float32. Given: {log_probs.dtype}. Call '
        'log_probs.float().')
    assert log_probs.shape[2] > 0, 'log_probs must have a class or more.'
    shape = tuple(supervision_segments.shape)
    assert len(shape) == 2 and shape[1] == 3, (
        'supervision_segments must have 2 axes and 3 columns: sequence, start '
        f'and duration. Given: {shape}')
    assert supervision_segments.dtype == torch.int32, (
        'supervision_segments must be torch.int32. Given: '
        f'{supervision_segments.dtype}. Call supervision_segments.int().')
    assert supervision_segments.device.type == 'cpu', (
        'supervision_segments must be on the CPU. Given: '
        f'{supervision_segments.device}. Call supervision_segments.cpu().')
    assert shape[0] > 0, 'supervision_segments must have a row or more.'
    assert allow_truncate >= 0, (
        f'allow_truncate must not be negative. Given: {allow_truncate}')
    N, T, _ = log_probs.shape
    for i, segment in enumerate(supervision_segments.tolist()):
        sequence, start, duration = segment
        row = f'Row {i} of supervision_segments is {segment}'
        assert 0 <= sequence < N, (
            f'{row}: log_probs has {N} sequences, not number {sequence}.')
        assert 0 <= start < T, (
            f'{row}: log_probs has {T} frames, not number {start}.')
        assert duration >= 0, f'{row}: the duration is negative.'
        assert start + duration <= T + allow_truncate, (
            f'{row}: it ends at frame {start + duration}, and log_probs has '
            f'{T} frames. The row is too long for '
            f'allow_truncate={allow_truncate}.')


def check_graph_and_dense(
        graph: 'k2.Fsa',
        dense: 'k2.DenseFsaVec',
        a_to_b_map: Optional[torch.Tensor] = None) -> None:
    '''Raise a RuntimeError if `graph` and `dense` are on different devices.

    `a_to_b_map` must be None, or a torch.int32 tensor on the device of `graph`
    with one number for each Fsa of `graph`.  Otherwise, raise an
    AssertionError.
    '''
    if graph.device != dense.device:
        move = f"make the DenseFsaVec of log_probs.to('{graph.device}')"
        if graph.device.type == 'cpu':
            move = f"call graph.to('{dense.device}')"
        raise RuntimeError(
            f'The decoding graph is on {graph.device} and the DenseFsaVec is '
            f'on {dense.device}: {move}.')
    if a_to_b_map is None:
        return
    size = graph.shape[0] if len(graph.shape) == 3 else 1
    assert a_to_b_map.shape == (size,), (
        f'a_to_b_map must have {size} numbers, one for each Fsa. Given: '
        f'{tuple(a_to_b_map.shape)}')
    assert a_to_b_map.dtype == torch.int32, (
        f'a_to_b_map must be torch.int32. Given: {a_to_b_map.dtype}. Call '
        'a_to_b_map.int().')
    assert a_to_b_map.device == graph.device, (
        f'a_to_b_map must be on {graph.device}, as the FSAs are. Given: '
        f'{a_to_b_map.device}')


def check_attribute(fsa: 'k2.Fsa', name: str, value: Any) -> None:
    '''Raise an AssertionError if `value` cannot be an attribute of `fsa`.

    Args:
      name:
        The name of the attribute.
      value:
        A torch.Tensor or a k2.RaggedTensor.
    '''
    size = fsa.num_arcs
    if isinstance(value, k2.RaggedTensor):
        found = value.dim0
    else:
        assert value.ndim > 0, f'{name} must not be a number without axes.'
        found = value.shape[0]
    assert found == size, (
        f'{name} must have {size} rows, one for each arc. Given: {found}')
    # See https://github.com/k2-fsa/k2/issues/1120
    assert value.device == fsa.device, (
        f'{name} must be on {fsa.device}, as the Fsa is. Given: '
        f'{value.device}')
    dtype = {'labels': torch.int32, 'scores': torch.float32}.get(name)
    assert dtype in (None, value.dtype), (
        f'{name} must be {dtype}. Given: {value.dtype}')


def check_top_sorted(fsas: 'k2.Fsa') -> None:
    '''Raise a ValueError if k2 cannot compute scores of states of `fsas`.'''
    if fsas.arcs.num_axes() != 3:
        raise ValueError('scores need an FsaVec; k2.create_fsa_vec([fsa]) '
                         'makes an FsaVec of an Fsa')
    if not fsas.properties & k2.fsa_properties.TOPSORTED_AND_ACYCLIC:
        raise ValueError('scores need FSAs without cycles, whose states are '
                         'in topological order; k2.top_sort() sorts them')


def check_axes(function: str, fsas: 'k2.Fsa', num_axes: int) -> None:
    '''Raise an AssertionError if `fsas` does not have `num_axes` axes.

    Args:
      function:
        The name of the function whose argument is checked, for the message.
      num_axes:
        2 for a single Fsa, 3 for an FsaVec.
    '''
    kinds = {2: 'a single Fsa', 3: 'an FsaVec'}
    found = fsas.arcs.num_axes()
    assert found == num_axes, (
        f'{function} takes {kinds[num_axes]}. Given: {kinds[found]}')


def check_max_token(max_token: int, num_arcs: int) -> None:
    '''Raise an AssertionError if k2 cannot make a graph for the tokens up to
    `max_token`.

    Args:
      num_arcs:
        The number of arcs that the graph would have.
    '''
    assert max_token >= 0, f'max_token must not be negative. Given: {max_token}'
    assert num_arcs < 2**31, (
        f'max_token {max_token} is too large: {num_arcs} arcs')


def check_pair(a: 'k2.Fsa', b: 'k2.Fsa', sorted_arcs: bool) -> None:
    '''Raise an AssertionError if :func:`k2.intersect` does not accept `a` and
    `b`.

    Args:
      sorted_arcs:
        Whether the arcs of `a` and the arcs of `b` must be sorted.
    '''
    assert a.device == b.device, (
        f'a_fsa is on {a.device} and b_fsa on {b.device}')
    sizes = [fsa.shape[0] if len(fsa.shape) == 3 else 1 for fsa in (a, b)]
    assert sizes[0] == sizes[1] or 1 in sizes, (
        f'cannot intersect {sizes[0]} FSAs with {sizes[1]}')
    for name, fsa in (('a_fsa', a), ('b_fsa', b)):
        assert (not sorted_arcs or
                fsa.properties & k2.fsa_properties.ARC_SORTED), (
            f'{name} must be arc-sorted: call k2.arc_sort({name})')
