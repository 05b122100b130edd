"""Functions of torch and k2 that k2_mac.run replaces in a program's process.

A program may get the name of a device from its arguments or from a file, and passes it to torch.
Without CUDA, torch and k2 raise an error for "cuda".  Each replacement differs from the original
function only where the original function would raise an error: the replacement uses mps instead.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import distributed
from .torch_ctc import install_ctc_loss
from .translate import arguments_of_to, map_device, on_mps, translated

_MARK = "_is_of_k2_mac"
# These functions of k2 make a graph on a device.
_GRAPHS = ("ctc_graph", "ctc_topo", "levenshtein_graph", "linear_fsa", "trivial_graph")


def install() -> None:
    """Replaces the functions, if the GPU of this machine is mps."""
    if not on_mps():
        return
    install_ctc_loss()
    _replace(torch.Tensor, "to", _to)
    _replace(torch.Tensor, "cuda", _cuda)
    _replace(torch.Tensor, "double", _double)
    for module in (torch, torch.serialization):
        _replace(module, "load", _load)
    if torch.distributed.is_available():
        for module in (torch.distributed, torch.distributed.distributed_c10d):
            _replace(module, "init_process_group", _with_gloo)
            _replace(module, "new_group", _with_gloo)
        _replace(torch.nn.parallel.DistributedDataParallel, "__init__", _parallel)


def install_in_k2() -> None:
    """Makes k2 accept the devices of CUDA, if the GPU is mps."""
    import k2

    if on_mps():
        for kind in (k2.Fsa, k2.DenseFsaVec, k2.RaggedTensor):
            _replace(kind, "to", translated)
        for name in _GRAPHS:
            _replace(k2, name, translated)
        _replace(k2.RaggedTensor, "__init__", translated)
        _replace(k2.ragged, "create_ragged_tensor", translated)
        # A program that asks whether k2 can use the GPU.
        k2.with_cuda = k2.with_mps


def _replace(owner: Any, name: str, replacement: Callable) -> None:
    """Replaces ``owner.name`` by a function that calls ``replacement(original, ...)``."""
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(replaced, _MARK, True)
    setattr(owner, name, replaced)


def _to(original: Callable, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    tensor, args, kwargs = arguments_of_to(tensor, args, kwargs)
    return original(tensor, *args, **kwargs)


def _cuda(
    original: Callable,
    tensor: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    return tensor.to("cuda", non_blocking=non_blocking, memory_format=memory_format)


def _double(original: Callable, tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return tensor.float(**kwargs) if tensor.is_mps else original(tensor, **kwargs)


def _load(original: Callable, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    if map_location is None:
        map_location = _restored
    return original(f, map_device(map_location), *args, **kwargs)


def _restored(storage: torch.UntypedStorage, location: str) -> Any:
    return torch.serialization.default_restore_location(storage, map_device(location))


def _with_gloo(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Starts a group of processes, with gloo instead of nccl."""
    distributed.enable()
    args = tuple(_gloo(value) for value in args)
    if "backend" in kwargs:
        kwargs["backend"] = _gloo(kwargs["backend"])
    # Only nccl starts earlier if it knows the device.
    kwargs.pop("device_id", None)
    return original(*args, **kwargs)


def _gloo(value: Any) -> Any:
    """Returns 'gloo' for 'nccl', and for several backends with nccl, like 'cpu:gloo,cuda:nccl'."""
    if isinstance(value, str):
        backends = [backend.rpartition(":")[2] for backend in value.lower().split(",")]
        return "gloo" if "nccl" in backends else value
    return value


def _parallel(
    original: Callable,
    self: Any,
    module: torch.nn.Module,
    device_ids: Any = None,
    output_device: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Makes a DistributedDataParallel.  A process of any rank uses mps:0."""
    if any(parameter.is_mps for parameter in module.parameters()):
        device_ids = device_ids and [0]
    original(self, module, device_ids, output_device, *args, **kwargs)
