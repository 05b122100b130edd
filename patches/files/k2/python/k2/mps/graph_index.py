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
'''The index of a graph, which kernels need in addition to its arcs.  k2 makes
the index once for each graph.'''
import threading
from typing import Optional
from typing import Tuple
from typing import Union

import torch
import _k2

# An Fsa keeps its GraphIndex in its cache, under this key.  If scores change,
# the Fsa drops only the entries with "score" in their keys.
_NAME = 'mps_graph_index'

# If a graph has more arcs than this, renew() reserves no memory for an index,
# and the host makes the index, because one dispatch would be too slow.
_MAX_ARCS = 1 << 20

_lock = threading.Lock()


class GraphIndex:
    '''The ``_k2.MpsGraphIndex`` of an FsaVec.  The GPU fills the index at once,
    or the host fills the index when a kernel needs it.

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
            True to reserve memory that the host fills later.  To reserve the
            memory, the host waits for the GPU.  False to let the GPU fill the
            index now.
        '''
        self._version = _version(fsas)
        self._num_failures = _k2.mps_num_failures()
        self._labels: Optional[Tuple[int, int]] = None
        # A copy of index.labels, and the event after which it is complete.
        self._copy: Optional[torch.Tensor] = None
        self._event: Optional[Union[torch.Event, torch.mps.Event]] = None
        # The arcs that the host has yet to read.
        self._unread = fsas.arcs if by_host else None
        make = (_k2.mps_reserve_graph_index
                if by_host else _k2.mps_graph_index)
        self.index = make(fsas.arcs)

    def is_of(self, fsas) -> bool:
        '''Return whether the labels of an FsaVec are still those that the index
        was made from.  If the GPU has failed since, return False, because the
        index may be wrong.'''
        if self._num_failures != _k2.mps_num_failures():
            return False
        return self._version == _version(fsas)

    def fill(self) -> None:
        '''Let the host fill the index, if the index is not filled yet.'''
        # After this call, a kernel reads the memory.  So another thread must
        # not fill the index a second time.
        with _lock:
            if self._unread is not None:
                self._labels = self.index.fill(self._unread)
                self._unread = None

    def labels(self) -> Optional[Tuple[int, int]]:
        '''Return the lowest and the highest label, or None if the host does not
        know them yet.  If the GPU fills the index, the host knows the labels
        only after the GPU is done.'''
        with _lock:  # Threads may share the index.
            if self._labels is None and self._copy is None:
                self._copy = self.index.labels.to('cpu', non_blocking=True)
                self._event = _new_event()
                self._event.record()
            elif self._labels is None and self._event.query():
                self._labels = (int(self._copy.min()), int(self._copy.max()))
            return self._labels


def _new_event() -> Union[torch.Event, torch.mps.Event]:
    '''Return an event for the current stream.'''
    # From release 2.15 on, torch has several streams on mps.  Only torch.Event
    # supports several streams.
    has_streams = hasattr(torch.mps, 'Stream')
    return torch.Event('mps') if has_streams else torch.mps.Event()


def _version(fsas) -> int:
    return fsas._tensor_attr['labels']._version


def renew(fsas) -> None:
    '''Drop the index of an Fsa, and reserve memory for a new one.

    The caller has just read the arcs on the host, so no pending kernel writes
    the arcs, and the host can later fill the new index without a wait.

    Args:
      fsas:
        A k2.Fsa, on any device.
    '''
    fsas._cache.pop(_NAME, None)
    # With mps off, do not ask for the device, which takes a microsecond.
    if (_k2.version.with_mps and fsas.device.type == 'mps'
            and fsas.arcs.num_axes() == 3
            and 0 < fsas.num_arcs <= _MAX_ARCS):
        fsas._cache[_NAME] = GraphIndex(fsas, by_host=True)


def graph_index(fsas) -> GraphIndex:
    '''Return the index of an FsaVec.

    The host makes the index if the host has read the arcs since they last
    changed, see :func:`renew`.  The host also makes the index, and waits for
    the GPU, if there are more than _MAX_ARCS arcs.  In all other cases, one
    dispatch makes the index.

    Args:
      fsas:
        A k2.Fsa on mps with 3 axes and arcs.
    '''
    ans = fsas._cache.get(_NAME)
    if ans is None or not ans.is_of(fsas):
        ans = GraphIndex(fsas, by_host=fsas.num_arcs > _MAX_ARCS)
        fsas._cache[_NAME] = ans
    ans.fill()
    return ans
