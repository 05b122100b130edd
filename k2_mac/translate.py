"""Values that name CUDA, as values that name mps.

The functions of this file are for programs that were written for CUDA.  ``k2_mac.run`` makes the
programs call these functions.  Without mps, or with CUDA, each function does what the program did
before.
"""

from collections.abc import Callable
from typing import Any

import torch

# Whether mps was found.
_found = False

_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def on_mps() -> bool:
    """Returns whether the GPU of this machine is mps."""
    global _found
    # torch.compile cannot trace a question for a device, so the answer yes is kept.
    if not _found:
        _found = not torch.cuda.is_available() and torch.backends.mps.is_available()
    return _found


def _mapped(device: torch.device) -> torch.device:
    """Returns ``mps:0`` for a GPU that a Mac lacks, and any other device as it is."""
    # A Mac has one GPU, so an index of mps other than 0 is that of a program for CUDA.
    is_other_gpu = device.type == "cuda" or device.type == "mps" and bool(device.index)
    return torch.device("mps", 0) if is_other_gpu and on_mps() else device


def map_device(value: Any) -> Any:
    """Returns 'mps' for 'cuda', 'mps:0' for 'cuda:1' or 'mps:1', and mps:0 for a device of CUDA.

    In a dict, such as a ``map_location``, the function translates the values.  Other values are
    returned as they are.
    """
    if isinstance(value, str):
        if (value == "cuda" or value.startswith(("cuda:", "mps:"))) and on_mps():
            return "mps:0" if ":" in value else "mps"
    elif isinstance(value, torch.device):
        return _mapped(value)
    elif isinstance(value, dict):
        return {key: map_device(other) for key, other in value.items()}
    return value


def torch_device(*args: Any, **kwargs: Any) -> torch.device:
    """Like ``torch.device``, but returns ``mps:0`` for each device of CUDA.

    As ``k2_mac.pick_device``, the function gives mps an index, because the devices of tensors have
    one.
    """
    return _mapped(torch.device(*args, **kwargs))


def is_gpu(value: Any) -> bool:
    """Returns ``value.is_cuda``, or whether a value is on mps."""
    return value.is_cuda or bool(getattr(value, "is_mps", False))


def mentions_gpu(container: Any) -> bool:
    """Returns whether 'cuda' is in a text or a container, or 'mps' on a machine with mps."""
    return "cuda" in container or (on_mps() and "mps" in container)


def translated(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function with :func:`map_device` of each argument."""
    return function(
        *map(map_device, args), **{name: map_device(value) for name, value in kwargs.items()}
    )


def without_float64(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function that makes a tensor, with float32 instead of float64 if it is one on mps."""
    device = kwargs.get("device")
    if device is None:
        # Without this argument, the new tensor is on the device of the tensor it is made from, or
        # else on the default device.
        values = (getattr(function, "__self__", None), *args)
        devices = (value.device for value in values if isinstance(value, torch.Tensor))
        device = next(devices, torch.get_default_device())
    if torch.device(device).type == "mps":
        dtype = kwargs.get("dtype")
        if dtype in _NARROW:
            kwargs["dtype"] = _NARROW[dtype]
        # numpy's numbers are float64 by default.
        elif dtype is None and args and str(getattr(args[0], "dtype", "")) == "float64":
            kwargs["dtype"] = torch.float32
    return function(*args, **kwargs)


def features(extractor: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls an extractor of kaldifeat, which computes on CUDA or the CPU only.

    The samples go from mps to the CPU, and the features go back to mps.
    """
    on_gpu = [tensor for argument in args for tensor in _tensors(argument) if tensor.is_mps]
    if not on_gpu:
        return extractor(*args, **kwargs)
    results = extractor(*(_moved(argument, "cpu") for argument in args), **kwargs)
    return _moved(results, on_gpu[0].device)


def features_device(device: Any) -> Any:
    """Returns the device on which kaldifeat computes features for a model on a device."""
    return torch.device("cpu") if torch.device(map_device(device)).type == "mps" else device


def arguments_of_to(
    tensor: torch.Tensor, args: tuple, kwargs: dict
) -> tuple[torch.Tensor, tuple, dict]:
    """Translates the tensor and the arguments of ``tensor.to(...)``.

    Devices of CUDA become mps.  Where the result would be float64 on mps, it becomes float32.
    """
    if args and type(args[0]) is int and on_mps():
        args = ("mps:0", *args[1:])
    args = tuple(map(map_device, args))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": map_device(kwargs["device"])}
    values = (*args, *kwargs.values())
    given = [value for value in values if isinstance(value, torch.dtype)]
    dtype_of_result = given[0] if given else tensor.dtype
    if dtype_of_result in _NARROW and _is_mps(values, tensor):
        args = tuple(_NARROW.get(value, value) for value in args)
        kwargs = {name: _NARROW.get(value, value) for name, value in kwargs.items()}
        if tensor.dtype in _NARROW:
            tensor = tensor.type(_NARROW[tensor.dtype])
    return tensor, args, kwargs


def _is_mps(values: tuple, tensor: torch.Tensor) -> bool:
    """Returns whether ``tensor.to(*values)`` is on mps."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value.device.type == "mps"
        if isinstance(value, (str, torch.device)):
            return torch.device(value).type == "mps"
    return tensor.device.type == "mps"


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for element in value for tensor in _tensors(element)]
    return [value] if isinstance(value, torch.Tensor) else []


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(element, device) for element in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value
