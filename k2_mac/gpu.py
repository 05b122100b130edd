"""The functions of torch.cuda that recipes call, for CUDA and for mps.

The names are those of ``torch.cuda`` and ``torch.cuda.amp``.  ``ctc_loss`` is torch's function; if
torch has no CTC kernel for mps, k2 computes the loss on mps.  ``spawn`` is like the function of
``torch.multiprocessing``::

    from k2_mac import gpu
    device = gpu.pick_device(rank)
    with gpu.autocast(enabled=params.use_fp16):

With CUDA, each function calls CUDA's function.  On a Mac, each function does for mps what CUDA's
function does for CUDA.  Without a GPU, ``pick_device()`` returns the CPU, and the other functions
do what CUDA's functions do without a GPU: ``autocast`` casts nothing, ``GradScaler`` scales
nothing, and the amounts of memory are 0.
"""

import contextlib
import os
import platform
from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import distributed, faults
from .torch_ctc import gpu_ctc_loss as ctc_loss  # noqa: F401
from .translate import (  # noqa: F401
    features,
    features_device,
    is_gpu,
    map_device,
    mentions_gpu,
    torch_device,
    translated,
    without_float64,
)
from .translate import on_mps as _on_mps

# ---- devices


def device_type() -> str:
    """Returns the device type for ``torch.autocast``: 'mps' if :func:`pick_device` returns mps,
    else 'cuda'."""
    return "mps" if _on_mps() else "cuda"


def is_available() -> bool:
    """Returns whether torch can use a GPU, by CUDA or by mps."""
    return torch.cuda.is_available() or _on_mps()


def cuda_is_available() -> bool:
    """Returns whether torch can use CUDA.  Unlike for :func:`is_available`, mps does not count."""
    return torch.cuda.is_available()


def pick_device(index: int = 0) -> torch.device:
    """Returns the device to compute on: a CUDA device if there is one, else mps if torch can use
    mps, else the CPU.

    For mps, the result has the index 0, because ``tensor.device`` has this index for a tensor on
    mps.  ``torch.device('mps')``, which has no index, does not equal ``torch.device('mps', 0)``.

    Args:
      index:
        The index of the CUDA device.  mps and the CPU ignore it: if several Macs train together,
        the process on each Mac computes on ``mps:0``.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", index)
    return torch.device("mps", 0) if _on_mps() else torch.device("cpu")


def set_device(device: Any) -> None:
    """Calls ``torch.cuda.set_device``.  Does nothing for mps, which has one device."""
    if not _on_mps():
        torch.cuda.set_device(device)


def device(device: Any) -> contextlib.AbstractContextManager:
    """Returns a context manager that chooses the GPU ``device``; mps has one."""
    return contextlib.nullcontext() if _on_mps() else torch.cuda.device(device)


def device_count() -> int:
    """Returns the number of GPUs."""
    return 1 if _on_mps() else torch.cuda.device_count()


def current_device() -> int:
    """Returns the index of the GPU that is used by default."""
    return 0 if _on_mps() else torch.cuda.current_device()


def get_device_name(device: Any = None) -> str:
    """Returns the name of the GPU; for mps, 'mps'."""
    return "mps" if _on_mps() else torch.cuda.get_device_name(device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns whether the GPU computes with bfloat16; mps always does."""
    return _on_mps() or torch.cuda.is_bf16_supported(including_emulation)


def double() -> torch.dtype:
    """Returns ``torch.float32`` on mps, which lacks float64, else ``torch.float64``."""
    return torch.float32 if _on_mps() else torch.float64


def synchronize(device: Any = None) -> None:
    """Waits until the GPU has done all work that was launched."""
    if _on_mps():
        torch.mps.synchronize()
    elif torch.cuda.is_available():
        torch.cuda.synchronize(device)


# ---- processes


def dist_backend() -> str:
    """Returns the backend for ``torch.distributed.init_process_group``: 'nccl' with CUDA, else
    'gloo'.

    Without CUDA, this function calls :func:`k2_mac.distributed.enable`, so that gloo takes tensors
    on mps.
    """
    if torch.cuda.is_available():
        return "nccl"
    distributed.enable()
    return "gloo"


def is_nccl_available() -> bool:
    """Returns whether nccl is available, or gloo can take its place on mps."""
    return torch.distributed.is_nccl_available() or (
        _on_mps() and torch.distributed.is_gloo_available()
    )


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Calls ``torch.multiprocessing.spawn``, unless torchrun started this program.

    If torchrun started this process, the function spawns no process and returns ``fn(rank,
    *args)``.  The rank is that of this process among all processes that torchrun started, on one
    machine or on several.

    Raises:
      ValueError: torchrun started a number of processes other than ``nprocs``.
    """
    if not torch.distributed.is_torchelastic_launched():
        return torch.multiprocessing.spawn(fn, args, nprocs, join, daemon, start_method)
    started = int(os.environ["WORLD_SIZE"])
    if started != nprocs:
        raise ValueError(f"torchrun started {started} processes, but the program needs {nprocs}")
    return fn(int(os.environ["RANK"]), *args)


# ---- memory


def memory_allocated(device: Any = None) -> int:
    """Returns how many bytes tensors and k2's objects occupy on the GPU."""
    if _on_mps():
        return torch.mps.current_allocated_memory()
    return torch.cuda.memory_allocated(device)


def max_memory_allocated(device: Any = None) -> int:
    """Returns the peak of :func:`memory_allocated`, in bytes.

    Old releases of torch record no peak for mps.  With these releases, the result is that of
    :func:`memory_reserved`.
    """
    if _on_mps():
        try:
            return torch.accelerator.max_memory_allocated()
        except RuntimeError:
            # This torch records no peak for mps.
            return torch.mps.driver_allocated_memory()
    return torch.cuda.max_memory_allocated(device)


def memory_reserved(device: Any = None) -> int:
    """Returns how many bytes the driver has given to the process, including torch's cache."""
    if _on_mps():
        return torch.mps.driver_allocated_memory()
    return torch.cuda.memory_reserved(device)


def max_memory_reserved(device: Any = None) -> int:
    """Returns the peak of :func:`memory_reserved`; on mps, which records no peak, the result of
    :func:`memory_reserved`."""
    if _on_mps():
        return torch.mps.driver_allocated_memory()
    return torch.cuda.max_memory_reserved(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Resets the peak of :func:`max_memory_allocated`, if torch records it."""
    if _on_mps():
        with contextlib.suppress(RuntimeError):  # This torch records no peak for mps.
            torch.accelerator.reset_peak_memory_stats()
    elif torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats(device)


def empty_cache() -> None:
    """Gives the unused memory in torch's cache back to the driver."""
    if _on_mps():
        torch.mps.empty_cache()
    else:
        torch.cuda.empty_cache()


# ---- autocast and scaling


def autocast(
    enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
) -> torch.autocast:
    """Like ``torch.cuda.amp.autocast``."""
    return torch.autocast(device_type(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def is_autocast_enabled() -> bool:
    """Returns whether autocast is on for the GPU.

    Without an argument, ``torch.is_autocast_enabled`` answers for CUDA only.
    """
    return torch.is_autocast_enabled(device_type())


def get_autocast_dtype() -> torch.dtype:
    """Like ``torch.get_autocast_gpu_dtype``."""
    return torch.get_autocast_dtype(device_type())


class GradScaler(torch.amp.GradScaler):
    """Like ``torch.cuda.amp.GradScaler``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # torch.amp.GradScaler, but not torch.cuda.amp.GradScaler, has this argument.
        kwargs.pop("device", None)
        super().__init__(device_type(), *args, **kwargs)


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable:
    """Like ``torch.cuda.amp.custom_fwd``."""
    return torch.amp.custom_fwd(fwd, device_type=device_type(), cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable) -> Callable:
    """Like ``torch.cuda.amp.custom_bwd``."""
    return torch.amp.custom_bwd(bwd, device_type=device_type())


# ---- random numbers


def manual_seed(seed: int) -> None:
    """Sets the seed of the GPU's random numbers."""
    if _on_mps():
        torch.mps.manual_seed(seed)
    else:
        torch.cuda.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Sets the seed of the random numbers of all GPUs."""
    if _on_mps():
        torch.mps.manual_seed(seed)
    else:
        torch.cuda.manual_seed_all(seed)


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    """Returns the state of the GPU's random numbers."""
    return torch.mps.get_rng_state() if _on_mps() else torch.cuda.get_rng_state(device)


def get_rng_state_all() -> list[torch.Tensor]:
    """Returns the states of the random numbers of all GPUs."""
    return [torch.mps.get_rng_state()] if _on_mps() else torch.cuda.get_rng_state_all()


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    """Sets the state of the GPU's random numbers."""
    if _on_mps():
        torch.mps.set_rng_state(new_state)
    else:
        torch.cuda.set_rng_state(new_state, device)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of the random numbers of all GPUs; mps takes the first."""
    if _on_mps():
        torch.mps.set_rng_state(next(iter(new_states)))
    else:
        torch.cuda.set_rng_state_all(new_states)


if torch.backends.mps.is_available():
    faults.warn_of_faults(torch.__version__, platform.mac_ver()[0])
