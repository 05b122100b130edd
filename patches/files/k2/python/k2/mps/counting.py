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
'''Counts of k2's dispatches, drains, waits and copies on mps.'''
import contextlib
import dataclasses
from typing import Iterator

import _k2


@dataclasses.dataclass
class Counters:
    '''The counts of a ``with`` block of :func:`counters`.

    The counts include all threads.  The bytes do not include copies that torch
    makes, for example in ``Tensor.to()``.

    Attributes:
      dispatches:
        Metal kernels of k2, which the host queued for the GPU without waiting.
      precompiled:
        The dispatches whose kernels were compiled when k2 was built.  Metal
        compiled the kernels of the other dispatches from their text.
      operators:
        Operators of torch that queued at least one command for the GPU,
        including copies and fills.  Operators that only allocate or make a view
        are not counted.  An operator that calls counted operators is not
        counted either.
      torch_waits:
        Operators of torch that make the host wait, even if the GPU is done.
        Copies between mps and the CPU, such as ``.cpu()`` and ``.tolist()``,
        wait if they are not ``non_blocking``.  Operators that return a number,
        such as ``.item()``, wait.  Operators that return a tensor whose shape
        depends on values, such as ``nonzero()``, wait.
      gates:
        How often k2 checked that the GPU was done.  If the GPU is done already,
        a gate takes less than a microsecond.
      drains:
        Gates of k2 for which the GPU had work.  The GPU has work if k2
        dispatched a kernel or torch queued a command after the last gate and
        after the last of the ``torch_waits``.  This count does not depend on
        the speed of the GPU.  Work that was queued before the block does not
        count.  k2 does not notice ``torch.mps.synchronize()``, so after such a
        call, the next gate may still count as a drain.
      waits:
        Gates at which the GPU was not done.  torch does not tell k2 which gates
        these are, so a gate counts as a wait if it took 10 microseconds or
        longer.  A gate can also take that long because the system suspended the
        thread.
      wait_nanoseconds:
        How long all waits took together.
      bytes_to_mps:
        Bytes copied from memory of the CPU to memory of mps.
      bytes_to_cpu:
        Bytes copied from memory of mps to memory of the CPU.
      bytes_within_mps:
        Bytes that the host copied within memory of mps.
    '''
    dispatches: int = 0
    precompiled: int = 0
    operators: int = 0
    torch_waits: int = 0
    gates: int = 0
    drains: int = 0
    waits: int = 0
    wait_nanoseconds: int = 0
    bytes_to_mps: int = 0
    bytes_to_cpu: int = 0
    bytes_within_mps: int = 0


@contextlib.contextmanager
def counters() -> Iterator[Counters]:
    '''Count what k2 and torch do on mps in a ``with`` block::

        with k2.mps.counters() as counted:
            loss.backward()
        print(counted.drains)

    Blocks can be nested.  Outside of blocks, k2 counts nothing and reads no
    clock.  On other devices, and in a k2 without mps, all counts are 0.

    Yields:
      A :class:`Counters`, which is filled when the block ends.
    '''
    counted = Counters()
    _k2.mps_start_counting()
    before = _k2.mps_counters()
    try:
        yield counted
    finally:
        after = _k2.mps_counters()
        _k2.mps_stop_counting()
        for name, value in after.items():
            setattr(counted, name, value - before[name])
