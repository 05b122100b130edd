"""Loading the emulator into torch."""

import atexit
import contextlib
import ctypes
import glob
import os
import re
import sys
import time

from . import _shaders
from ._paths import library_path

_library = None


def load() -> ctypes.CDLL:
    """Makes the emulated device torch's mps device; returns the library, a ctypes.CDLL.

    torch calls this function at the end of `import torch` (backend autoload).
    A second call does nothing.

    Raises:
      RuntimeError: the system is macOS, where torch has the real mps device; or
        torch looked for its mps device before this call, and keeps the answer.
    """
    global _library
    if _library is not None:
        return _library
    if sys.platform == "darwin":
        raise RuntimeError(
            "mps-emulator is for Linux: on macOS torch has the real mps "
            "device. Run: pip uninstall mps-emulator"
        )

    import torch

    library = ctypes.CDLL(library_path(), mode=ctypes.RTLD_GLOBAL)
    library.mps_emulator_use()
    torch._C._has_mps = True
    if not torch._C._mps_is_available():
        raise RuntimeError(
            "mps-emulator was loaded too late: torch looked for its mps device "
            "before, and keeps the answer. Import mps_emulator (or leave torch's "
            "backend autoload on) before anything asks torch.backends.mps."
        )
    library.mps_emulator_use_python(os.fsencode(sys.executable))
    _let_storages_be_made(torch)
    _shaders.install(torch, library)
    atexit.register(_let_autograd_finish)
    _library = library
    return library


def _let_storages_be_made(torch) -> None:
    """Lets torch.UntypedStorage(size, device="mps") allocate on the emulated device.

    The constructor of UntypedStorage knows mps only in builds for macOS.
    torch.load(), pickle and deepcopy call this constructor for storages.
    """
    make = torch.UntypedStorage.__new__

    def make_on_any_device(cls, *args, device=None, **kwargs):
        if device is None or torch.device(device).type != "mps":
            if device is not None:
                kwargs["device"] = device
            return make(cls, *args, **kwargs)
        if kwargs or len(args) > 1:
            raise TypeError("UntypedStorage on mps takes one size or sequence")
        contents = args[0] if args else 0
        if isinstance(contents, int):
            tensor = torch.empty(contents, dtype=torch.uint8, device=device)
        else:
            tensor = torch.tensor(contents, dtype=torch.uint8, device=device)
        return tensor.untyped_storage()

    torch.UntypedStorage.__new__ = make_on_any_device


def _let_autograd_finish() -> None:
    """Releases the GIL until torch's backward threads rest.

    A backward thread takes the GIL shortly after backward() returned, to drop objects.  When the
    interpreter is finalizing, Python ends a thread that takes the GIL, and C++ then ends the
    process.  torch has this problem with every device whose backward runs in its own thread.
    """
    deadline, calm = time.monotonic() + 5, 0
    # Between two checks, a thread that waits for the GIL gets it, or becomes ready to run.
    while calm < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
        calm = 0 if _backward_is_ready() else calm + 1


def _backward_is_ready() -> bool:
    """Whether a backward thread runs, or waits only for a processor."""
    for path in glob.glob("/proc/self/task/*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            if re.search(r"\(pt_autograd.*\) R", file.read()):
                return True
    return False
