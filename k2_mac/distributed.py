"""torch.distributed for tensors on mps, on one Mac or on several::

    k2_mac.distributed.enable()
    torch.distributed.init_process_group('gloo', rank=rank, world_size=2)
    model = DistributedDataParallel(model.to('mps'))

torch names gloo as the backend of mps, but implements no collective for tensors on mps.  After
:func:`enable`, each collective waits for the GPU.  Then the collective passes tensors on the CPU to
gloo.  These tensors share the memory of the tensors on mps, so k2 copies no element.  An operation
that gloo lacks for the CPU, such as an average, is missing for mps too.

With ``async_op=True``, a collective returns before the network is done, as for tensors on the CPU.
Meanwhile the GPU can work, for example on the backward pass.  ``Work.wait()`` waits for the
network.  Kernels that are launched after ``wait()`` see the result.

For ``all_reduce``, the results of the ``Work`` and of its future are on mps.  For other
collectives, these results are tensors on the CPU, which share the memory of the tensors on mps.
The ``Work`` of an asynchronous ``all_reduce`` does not support a timeout in ``wait()``.  Its
``is_success()`` and its ``get_future()`` report failures.
"""

from collections.abc import Callable
from typing import Any

import torch

# The operators of c10d that take tensors, except allreduce_, which _all_reduce() implements.
_COLLECTIVES = (
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "barrier",
    "broadcast_",
    "gather_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "send",
)

# torch drops the implementations when this object is destroyed.
_library: torch.library.Library | None = None


def enable() -> None:
    """Makes torch.distributed's backend gloo accept tensors on mps.

    Each process must call this function before its first collective.  A second call does nothing.

    Raises:
      RuntimeError: this torch was built without torch.distributed.
    """
    global _library
    if _library is not None:
        return
    if not torch.distributed.is_available():
        raise RuntimeError("this torch was built without torch.distributed")
    _library = torch.library.Library("c10d", "IMPL", "MPS")
    for name in _COLLECTIVES:
        _library.impl(name, _on_host(getattr(torch.ops.c10d, name).default))
    _library.impl("allreduce_", _all_reduce)


def _on_host(operator: torch._ops.OpOverload) -> Callable:
    """Returns the implementation of a collective for mps: it runs the CPU's implementation on the
    memory of the tensors on mps."""

    def collective(*args: Any) -> Any:
        import k2  # a program that only reads the name of the device needs no k2

        # The GPU may still be writing the tensors that gloo sends, or using the memory that gloo
        # receives into.
        k2.mps.synchronize()
        ans = operator(*_aliases(args))
        if len(operator._schema.returns) == 1:
            return ans
        # The collective writes its result into its first argument.
        return args[0], ans[1]

    return collective


def _all_reduce(tensors: list[torch.Tensor], *args: Any) -> Any:
    """The implementation of ``allreduce_`` for mps.

    DistributedDataParallel takes the gradients from the future of the ``Work``, so the result of
    the future must be on mps.
    """
    operator = torch.ops.c10d.allreduce_.default
    _, boxed = _on_host(operator)(tensors, *args)
    work = torch.distributed.Work.unbox(boxed)
    names = [argument.name for argument in operator._schema.arguments[1:]]
    if not dict(zip(names, args)).get("async_op", True):
        work.wait()
        return tensors, boxed

    def result(future: torch.futures.Future) -> list[torch.Tensor]:
        future.wait()  # raises gloo's error, if there is one
        return tensors

    future = work.get_future().then(result)
    work = torch._C._distributed_c10d._create_work_from_future(future)
    return tensors, work.boxed()


def _aliases(value: Any) -> Any:
    """Returns arguments with each tensor on mps replaced by its _alias().

    Tensors on the CPU stay as they are.  For example, scatter() can send parts that are on the CPU
    to tensors on mps.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_aliases(v) for v in value)
    is_mps = isinstance(value, torch.Tensor) and value.is_mps
    return _alias(value) if is_mps else value


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor on the CPU that shares the memory of a tensor on mps."""
    if tensor.numel() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    storage = torch.mps._host_alias_storage(tensor.untyped_storage())
    return torch.empty(0, dtype=tensor.dtype).set_(
        storage, tensor.storage_offset(), tensor.size(), tensor.stride()
    )
