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
``k2.DecodeStateInfo`` if the host does. Once the host decodes a stream, it
keeps the stream.
'''
from typing import List
from typing import Optional
from typing import Tuple

import torch
import _k2
import k2


def on_gpu(graph, num_streams: int, *options):
    '''Return a _k2.MpsPrunedStreams, or None if the GPU cannot decode.

    Args:
      graph, num_streams, options:
        The arguments of :class:`k2.OnlineDenseIntersecter`, in its order.
    '''
    if graph.device.type != 'mps' or graph.arcs.num_axes() != 3:
        return None
    return _k2.MpsPrunedStreams(graph.arcs, num_streams, *options)


def decode(intersecter, dense_fsas, states: List) -> Optional[Tuple]:
    '''Decode as ``intersecter.decode``; return None if the host decodes.'''
    if intersecter.on_gpu is None or dense_fsas.device.type != 'mps':
        return None
    streams = []
    for state in states:
        if isinstance(state, _k2.MpsPrunedStream):
            streams.append(state)
        elif _k2.mps_is_new_stream(state):
            streams.append(None)
        else:
            return None
    made = intersecter.on_gpu.decode(dense_fsas.dense_fsa_vec,
                                     dense_fsas.duration.tolist(), streams)
    if made is None:
        return None
    return _lattice(intersecter.decoding_graph, made), made.streams


def to_host(intersecter, states: List) -> List:
    '''Return the streams for the host, as they are after their last chunk.'''
    if intersecter.on_gpu is None:
        return states
    return [
        intersecter.on_gpu.to_host(state)
        if isinstance(state, _k2.MpsPrunedStream) else state
        for state in states
    ]


def _lattice(graph, made):
    '''Return the result of k2.utils.fsa_from_unary_function_tensor(). Only
    ragged attributes make the host wait for the arc map.'''
    ans = k2.Fsa(made.fsas, properties=made.properties)
    arc_map = made.arc_map
    is_none = arc_map < 0
    places = arc_map.clamp(min=0)
    for name, value in graph.named_tensor_attr(include_scores=False):
        if isinstance(value, torch.Tensor):
            value = value.index_select(0, places)
            # As k2.index_select().
            filler = graph.get_filler(name) if value.ndim == 1 else 0
            value = value.masked_fill(
                is_none.view(-1, *[1] * (value.ndim - 1)), filler)
        else:
            value, _ = value.index(arc_map, axis=0, need_value_indexes=False)
        setattr(ans, name, value)
    for name, value in graph.named_non_tensor_attr():
        setattr(ans, name, value)
    k2.autograd_utils.phantom_index_select_scores(ans, graph.scores, arc_map)
    return ans
