"""Loads the emulator into torch."""

import atexit
import contextlib
import ctypes
import glob
import os
import re
import sys
import time

from . import _torch_functions
from ._paths import library_path

_library = None


def load() -> ctypes.CDLL:
    """Makes the emulated device torch's mps device.

    torch calls this function at the end of `import torch` (backend autoload).  Later calls do not
    load the library again.

    Returns:
      The library libmps_emulator.so.
    Raises:
      RuntimeError: the system is macOS, where torch has the real mps device; or torch has looked
        for an mps device before this call.  torch looks only once.
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
            "mps-emulator was loaded too late: torch has looked for an mps device "
            "already, and does not look again. Import mps_emulator before the first "
            "use of torch.backends.mps, or leave torch's backend autoload on."
        )
    library.mps_emulator_use_python(os.fsencode(sys.executable))
    _let_storages_be_made(torch)
    _torch_functions.install(torch, library)
    atexit.register(_let_autograd_finish)
    _library = library
    return library


def _let_storages_be_made(torch) -> None:
    """Lets torch.UntypedStorage(size, device="mps") allocate on the emulated device.

    In torch's builds for Linux, the constructor of UntypedStorage refuses mps.  torch.load(),
    pickle and deepcopy call this constructor.
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
    """Waits without the GIL until torch's backward threads sleep, but at most 5 seconds.

    A backward thread takes the GIL shortly after backward() returned, to drop objects.  While the
    interpreter is finalizing, Python ends any thread that takes the GIL.  A thread that is ended
    inside of C++ code ends the whole process.  torch has this problem with every device that has
    a backward thread.
    """
    deadline, calm = time.monotonic() + 5, 0
    # During the sleep between two checks, a thread that waits for the GIL takes the GIL, or the
    # system marks the thread as ready to run.
    while calm < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
        calm = 0 if _backward_is_ready() else calm + 1


def _backward_is_ready() -> bool:
    """Whether a backward thread runs, or could run if a processor were free."""
    for path in glob.glob("/proc/self/task/*/stat"):
        # The file of a thread that has ended meanwhile is gone.
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            if re.search(r"\(pt_autograd.*\) R", file.read()):
                return True
    return False
