"""Gives torch the functions for mps that it has only in builds for macOS.

In these builds, torch/csrc/mps/Module.cpp has the functions.
"""

import ctypes
import functools
from types import ModuleType

from . import _shaders

# What torch.backends.mps.get_name() and get_core_count() return.
NAME = "Emulated GPU"
CORES = 8


def install(torch: ModuleType, library: ctypes.CDLL) -> None:
    """Adds the functions that torch._C lacks."""
    for name, result in (
        ("mps_emulator_compile_shader", ctypes.c_void_p),
        ("mps_emulator_load_metallib", ctypes.c_void_p),
        ("mps_emulator_shader_names", ctypes.c_void_p),
        ("mps_emulator_shader_kernel", ctypes.c_void_p),
        ("mps_emulator_run_shader", ctypes.c_void_p),
        ("mps_emulator_release", None),
        ("mps_emulator_contents", ctypes.c_void_p),
        ("mps_emulator_wait_for_events", ctypes.c_bool),
    ):
        getattr(library, name).restype = result
    _shaders.use(torch, library)
    torch._C._mps_ShaderLibrary = _shaders._mps_ShaderLibrary
    torch._C._mps_MetalKernel = _shaders._mps_MetalKernel
    torch._C._mps_compileShader = _shaders._mps_ShaderLibrary
    # The three l are torch's.
    torch._C._mps_loadMetalllib = _shaders.load_metallib
    torch._C._mps_loadMetallibFromPath = _shaders.load_metallib_from_path
    torch._C._mps_get_name = lambda: NAME
    torch._C._mps_get_core_count = lambda: CORES
    torch._C._mps_isCaptureEnabled = lambda: False
    torch._C._mps_isCapturing = lambda: False
    torch._C._mps_startCapture = _refuse_capture
    torch._C._mps_stopCapture = lambda: None
    torch._C._mps_host_alias_storage = functools.partial(_host_alias_storage, torch, library)
    # torch.mps.Stream and its base class exist from torch 2.15 on.
    if base := getattr(torch._C, "_MPSStreamBase", None):
        _install_streams(torch, library, base)


def _install_streams(torch, library, base) -> None:
    """Gives methods to torch._C._MPSStreamBase.

    In builds for Linux, torch defines this class without any methods.
    """

    def current() -> "torch.Stream":
        return torch.accelerator.current_stream()

    def init(self, stream_id: int | None = None) -> None:
        # Without an id, torch chooses the next stream of its pool.
        fixed = {"device_index": 0, "device_type": current().device_type}
        choice = {"device": "mps"} if stream_id is None else {"stream_id": stream_id, **fixed}
        self._stream = torch.Stream(**choice)

    base.__new__ = lambda cls, **_: object.__new__(cls)
    base.__init__ = init
    base.stream_id = property(lambda self: self._stream.stream_id)
    base.synchronize = lambda self: self._stream.synchronize()
    base.__eq__ = lambda self, other: self.stream_id == getattr(other, "stream_id", None)
    base.__hash__ = lambda self: hash(self.stream_id)
    torch._C._mps_getCurrentStream = current
    torch._C._mps_setStream = lambda stream: torch.accelerator.set_stream(stream._stream)
    torch._C._mps_allocator_waitForEvents = functools.partial(_wait_for_events, library)


def _host_alias_storage(torch, library, storage):
    """Returns a CPU storage that shares memory with the host copy of an mps storage."""
    if storage.device.type != "mps" or not storage.data_ptr():
        raise RuntimeError("storage was not allocated by the MPSAllocator")
    address = library.mps_emulator_contents(ctypes.c_void_p(storage.data_ptr()))
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(address)
    memory.owner = storage  # frombuffer() keeps `memory`
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def _wait_for_events(library, handles):
    """Waits for torch's stream if the stream has work and at least one buffer is on the device.

    Args:
      handles: the data pointers of the buffers.
    Returns:
      Whether the function waited.
    """
    wait = library.mps_emulator_wait_for_events
    return wait((ctypes.c_void_p * len(handles))(*handles), ctypes.c_size_t(len(handles)))


def _refuse_capture(_):
    raise RuntimeError(
        "the emulator captures no trace for Xcode: "
        "torch.mps.profiler.is_metal_capture_enabled() returns False"
    )
