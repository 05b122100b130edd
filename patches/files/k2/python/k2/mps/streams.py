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
'''OnlineDenseIntersecter on mps: the GPU or the host decodes a chunk.

A stream is a ``_k2.MpsPrunedStream`` if the GPU decodes it, and a
``k2.DecodeStateInfo`` if the host decodes it.  After the host has decoded a
chunk of a stream, the host decodes all later chunks of the stream too.
'''
from typing import List
from typing import Optional
from typing import Tuple

import torch
import _k2
import k2

from . import not_taken
from .pruned import select_or_fill


def gpu_decoder(graph, num_streams: int, *options):
    '''Return a _k2.MpsPrunedStreams, or None if the GPU cannot decode with
    this graph.

    Args:
      graph, num_streams, options:
        The arguments of :class:`k2.OnlineDenseIntersecter`, in the same order.
    '''
    if graph.device.type != 'mps' or graph.arcs.num_axes() != 3:
        return None
    return _k2.MpsPrunedStreams(graph.arcs, num_streams, *options)


def decode(intersecter, dense_fsas, states: List) -> Optional[Tuple]:
    '''Decode a chunk of each stream on the GPU.

    Args:
      intersecter:
        A :class:`k2.OnlineDenseIntersecter`.
      dense_fsas, states:
        The arguments of ``intersecter.decode``.
    Returns:
      What ``intersecter.decode`` returns, or None if the host must decode.
    '''
    if intersecter.gpu_decoder is None or dense_fsas.device.type != 'mps':
        return None
    streams = []
    for state in states:
        if isinstance(state, _k2.MpsPrunedStream):
            streams.append(state)
        elif state is None or _k2.mps_is_new_stream(state):
            streams.append(None)
        else:
            return None
    made, reason = intersecter.gpu_decoder.decode(
        dense_fsas.dense_fsa_vec, dense_fsas.duration.tolist(), streams)
    not_taken.note('intersect_dense_pruned', reason)
    if made is None:
        return None
    return _lattice(intersecter.decoding_graph, made), made.streams


def to_host(intersecter, states: List) -> List:
    '''Return the state of each stream after its last chunk, as a
    k2.DecodeStateInfo.'''
    if intersecter.gpu_decoder is None:
        return states
    return [
        intersecter.gpu_decoder.to_host(state)
        if isinstance(state, _k2.MpsPrunedStream) else state
        for state in states
    ]


def _lattice(graph, made):
    '''Return the lattice as a k2.Fsa with the attributes of the graph.

    The result equals that of k2.utils.fsa_from_unary_function_tensor().  The
    host waits for the arc map only if the graph has a ragged attribute.
    '''
    ans = k2.Fsa(made.fsas, properties=made.properties)
    arc_map = made.arc_map
    is_none = arc_map < 0
    places = arc_map.clamp(min=0)
    for name, value in graph.named_tensor_attr(include_scores=False):
        if isinstance(value, torch.Tensor):
            # Like k2.index_select(), use the filler for 1-D tensors only.
            filler = graph.get_filler(name) if value.ndim == 1 else 0
            value = select_or_fill(value, places, is_none, filler)
        else:
            value, _ = value.index(arc_map, axis=0, need_value_indexes=False)
        setattr(ans, name, value)
    for name, value in graph.named_non_tensor_attr():
        setattr(ans, name, value)
    k2.autograd_utils.phantom_index_select_scores(ans, graph.scores, arc_map)
    return ans
