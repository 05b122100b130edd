"""Takes text from the emulator's library."""

import ctypes


def take_text(pointer: int | None) -> str | None:
    """Returns the text that a function of the library returned, and frees the text's memory.

    Args:
      pointer: what the function returned, as ctypes.c_void_p; None, for a null pointer, stays None.
    """
    if not pointer:
        return None
    text = ctypes.string_at(pointer).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(pointer))
    return text
