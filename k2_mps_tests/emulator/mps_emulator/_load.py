"""Loading the emulator into torch."""

import ctypes
import sys

from ._paths import library_path

_library = None


def load() -> ctypes.CDLL:
    """Make torch's mps device the emulated one; returns the library.

    torch calls this at the end of `import torch` (its backend autoload).
    Calling it again does nothing.

    Raises:
      RuntimeError: on macOS, where torch has the real mps device, or where
        torch asked for its mps device before.
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
    torch._C._has_mps = True
    if not torch._C._mps_is_available():
        raise RuntimeError(
            "mps-emulator came too late: torch looked for its mps device "
            "before the emulator was loaded, and keeps that answer. Import "
            "mps_emulator (or leave torch's backend autoload on) before "
            "anything asks torch.backends.mps."
        )
    _library = library
    return library
