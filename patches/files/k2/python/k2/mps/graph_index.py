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
'''The index of a graph that kernels need beside its arcs, made once for each
graph.'''
import threading
from typing import Optional
from typing import Tuple
from typing import Union

import torch
import _k2

# The key of the GraphIndex of an Fsa, in the Fsa's cache.  The key has no
# "score" in it, so the entry stays if scores change.
_NAME = 'mps_graph_index'

# For more arcs, k2 reserves no memory, and one dispatch would be too slow.
_MAX_ARCS = 1 << 20

_lock = threading.Lock()


class GraphIndex:
    '''The ``_k2.MpsGraphIndex`` of an FsaVec, filled when it is needed.

    Attributes:
      index:
        The ``_k2.MpsGraphIndex``.
    '''

    def __init__(self, fsas, by_host: bool):
        '''
        Args:
          fsas:
            A k2.Fsa on mps with 3 axes and arcs.
          by_host:
            True to reserve memory for the host, which waits for the GPU; the
            host fills it later.  False if the GPU fills it now.
        '''
        self._version = _version(fsas)
        self._labels: Optional[Tuple[int, int]] = None
        self._copy: Optional[torch.Tensor] = None
        self._is_filled = not by_host
        make = (_k2.mps_reserve_graph_index
                if by_host else _k2.mps_graph_index)
        self.index = make(fsas.arcs)

    def is_of(self, fsas) -> bool:
        '''Return whether the labels have not changed since the index was
        made.'''
        return self._version == _version(fsas)

    def fill(self, fsas) -> None:
        '''Let the host fill the index, if the index is not filled yet.'''
        # Once a kernel uses the memory, no other thread may fill it again.
        with _lock:
            if not self._is_filled:
                self._labels = self.index.fill(fsas.arcs)
                self._is_filled = True

    def labels(self) -> Optional[Tuple[int, int]]:
        '''Return the lowest and the highest label; None as long as the GPU,
        which fills the index, is not done.'''
        if self._labels is None and self._copy is None:
            self._copy = self.index.labels.to('cpu', non_blocking=True)
            self._event = _new_event()
            self._event.record()
        elif self._labels is None and self._event.query():
            self._labels = (int(self._copy.min()), int(self._copy.max()))
        return self._labels


def _new_event() -> Union[torch.Event, torch.mps.Event]:
    '''Return an event for the current stream.'''
    # From 2.15 on torch has other streams, which only torch.Event takes.
    has_streams = hasattr(torch.mps, 'Stream')
    return torch.Event('mps') if has_streams else torch.mps.Event()


def _version(fsas) -> int:
    return fsas._tensor_attr['labels']._version


def renew(fsas) -> None:
    '''Forget the index of an Fsa, and reserve memory for another.

    The host has just read the arcs, so no pending kernel writes them. The host
    can then fill the memory without a wait when a kernel needs it.

    Args:
      fsas:
        A k2.Fsa, on any device.
    '''
    fsas._cache.pop(_NAME, None)
    if (fsas.device.type == 'mps' and fsas.arcs.num_axes() == 3
            and 0 < fsas.num_arcs <= _MAX_ARCS):
        fsas._cache[_NAME] = GraphIndex(fsas, by_host=True)


def graph_index(fsas) -> GraphIndex:
    '''Return the index of an FsaVec.

    The host makes the index if the host has read the arcs since they last
    changed, or if there are more than _MAX_ARCS arcs; in the second case the
    host waits for the GPU.  Otherwise one dispatch makes the index.

    Args:
      fsas:
        A k2.Fsa on mps with 3 axes and arcs.
    '''
    ans = fsas._cache.get(_NAME)
    if ans is None or not ans.is_of(fsas):
        ans = GraphIndex(fsas, by_host=fsas.num_arcs > _MAX_ARCS)
        fsas._cache[_NAME] = ans
    ans.fill(fsas)
    return ans
