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
'''torch.distributed for tensors on mps: several processes, or several Macs::

    k2.mps.distributed.enable()
    torch.distributed.init_process_group('gloo', rank=rank, world_size=2)
    model = DistributedDataParallel(model.to('mps'))

torch names gloo as the backend of mps, but implements no collective for it.
After :func:`enable`, each collective waits for the GPU and gives gloo the
host's alias of the same memory: no element is copied.  What gloo cannot do for
the CPU, such as an average, it cannot do for mps.

A collective of ``async_op=True`` returns, like gloo's for the CPU, before the
network is done; the GPU may go on meanwhile, for example with backward.
``Work.wait()`` waits for the network; kernels that are launched after it see
the result.  The result of the work, and of its future, is on mps for
``all_reduce``; for others it is the host's alias.  The work of an asynchronous
``all_reduce`` takes no timeout in ``wait()``, and reports a failure by
``is_success()`` and ``get_future()``.
'''
from typing import Any
from typing import Callable
from typing import List
from typing import Optional

import torch

import _k2

# The operators of c10d with tensors, without allreduce_.
_COLLECTIVES = ('allgather_', '_allgather_base_', 'allgather_coalesced_',
                'allgather_into_tensor_coalesced_', 'allreduce_coalesced_',
                'alltoall_', 'alltoall_base_', 'barrier', 'broadcast_',
                'gather_', 'recv_', 'recv_any_source_', 'reduce_',
                'reduce_scatter_', '_reduce_scatter_base_',
                'reduce_scatter_tensor_coalesced_', 'scatter_', 'send')

# torch drops the implementations when this object is destroyed.
_library: Optional[torch.library.Library] = None


def enable() -> None:
    '''Let torch.distributed's gloo take tensors on mps.

    Call it in each process, at any time before the first collective.  A second
    call does nothing.

    Raises:
      RuntimeError: this torch was built without torch.distributed.
    '''
    global _library
    if _library is not None:
        return
    if not torch.distributed.is_available():
        raise RuntimeError('this torch was built without torch.distributed')
    _library = torch.library.Library('c10d', 'IMPL', 'MPS')
    for name in _COLLECTIVES:
        _library.impl(name, _on_host(getattr(torch.ops.c10d, name).default))
    _library.impl('allreduce_', _all_reduce)


def _on_host(operator: torch._ops.OpOverload) -> Callable:
    '''Return the implementation of a collective for mps: the CPU's, in the
    memory of the tensors on mps.'''

    def collective(*args: Any) -> Any:
        # The GPU may still be writing the tensors that gloo sends, or using the
        # memory that gloo receives into.
        _k2.mps_synchronize()
        ans = operator(*_aliases(args))
        if len(operator._schema.returns) == 1:
            return ans
        # The first argument is what the collective writes.
        return args[0], ans[1]

    return collective


def _all_reduce(tensors: List[torch.Tensor], *args: Any) -> Any:
    '''The implementation of ``allreduce_`` for mps.

    DistributedDataParallel takes the gradients from the future, so they must
    be on mps there.
    '''
    operator = torch.ops.c10d.allreduce_.default
    _, boxed = _on_host(operator)(tensors, *args)
    work = torch.distributed.Work.unbox(boxed)
    names = [argument.name for argument in operator._schema.arguments[1:]]
    if not dict(zip(names, args)).get('async_op', True):
        work.wait()
        return tensors, boxed

    def result(future: torch.futures.Future) -> List[torch.Tensor]:
        future.wait()  # raises gloo's error, if there is one
        return tensors

    future = work.get_future().then(result)
    work = torch._C._distributed_c10d._create_work_from_future(future)
    return tensors, work.boxed()


def _aliases(value: Any) -> Any:
    '''Return arguments in which each tensor on mps is its alias.'''
    if isinstance(value, (list, tuple)):
        return type(value)(_aliases(v) for v in value)
    is_mps = isinstance(value, torch.Tensor) and value.is_mps
    return _alias(value) if is_mps else value


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    '''Return a tensor on the CPU in the memory of one on mps.'''
    if tensor.numel() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    storage = torch.mps._host_alias_storage(tensor.untyped_storage())
    return torch.empty(0, dtype=tensor.dtype).set_(
        storage, tensor.storage_offset(), tensor.size(), tensor.stride())
