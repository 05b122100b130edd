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
'''The values of the argument `boundary` of RNN-T losses.  The host reads these
values once for all losses.'''
import weakref
from typing import List, Optional

import torch

# A weak reference to the last boundary on mps, its version and its values.
_last = None


def boundary_rows(boundary: torch.Tensor) -> List[List[int]]:
    '''Return the values of a boundary as ``boundary.tolist()`` does.

    Before the host reads values from mps, the host must wait for the GPU.  All
    losses of a training step get the same boundary, so k2 keeps the values of
    the last boundary until this boundary changes in place.  k2 does not notice
    a change through ``boundary.data``.

    Args:
      boundary:
        A tensor of torch.int64, of shape ``[B][4]``.
    Returns:
      The rows ``[s_begin, t_begin, s_end, t_end]``.
    '''
    global _last
    if boundary.is_inference():  # A tensor of inference mode has no version.
        return boundary.tolist()
    last, version = _last, boundary._version
    if last is None or last[0]() is not boundary or last[1] != version:
        last = weakref.ref(boundary), version, boundary.tolist()
        _last = last
    return last[2]


def know_boundary(boundary: torch.Tensor, values: torch.Tensor) -> None:
    '''Give k2 the values of a boundary on mps, so that no function has to wait
    for the GPU and then read these values.

    If the lengths are on the CPU, a program can make the boundary on the CPU,
    copy it to mps, and give k2 both tensors::

        boundary = on_cpu.to('mps', non_blocking=True)
        k2.mps.know_boundary(boundary, on_cpu)

    k2 does not check that ``values`` and ``boundary`` are equal.  k2 forgets
    the values when ``boundary`` changes in place, or when a function gets
    another boundary.

    Args:
      boundary:
        The boundary that the losses get, torch.int64 of shape ``(B, 4)``.
      values:
        The same numbers on the CPU, of the same shape and dtype.
    Raises:
      ValueError: ``values`` is not on the CPU, or has another shape or dtype.
    '''
    global _last
    if (values.device.type != 'cpu' or values.shape != boundary.shape
            or values.dtype != boundary.dtype):
        raise ValueError(
            f'values must be a tensor on the CPU, of shape '
            f'{tuple(boundary.shape)} and {boundary.dtype}.  Given: '
            f'{values.device}, {tuple(values.shape)}, {values.dtype}')
    if not boundary.is_inference():
        _last = weakref.ref(boundary), boundary._version, values.tolist()


def check_boundary(boundary: Optional[torch.Tensor], B: int, S: int, T: int,
                   may_lack_paths: bool) -> None:
    '''If a boundary is wrong, raise the AssertionError that the losses of RNN-T
    raise on other devices.

    Args:
      boundary:
        The argument ``boundary`` of the losses: a tensor on mps, or None.
      B, S, T:
        The numbers of sequences, symbols and frames.
      may_lack_paths:
        Whether a sequence with more symbols than frames is allowed.
    '''
    rows = [[0, 0, S, T]]
    if boundary is not None:
        assert boundary.dtype == torch.int64, boundary.dtype
        assert boundary.shape == (B, 4), (boundary.shape, B)
        rows = boundary_rows(boundary)
    for s_begin, t_begin, s_end, t_end in rows:
        assert 0 <= s_begin <= s_end <= S, (s_begin, s_end, S)
        assert 0 <= t_begin <= t_end <= T, (t_begin, t_end, T)
        assert may_lack_paths or t_end >= s_end, (
            f'Modified transducer requires T >= S, but got T={t_end} and '
            f'S={s_end}')
