"""Converts bfloats, which NumPy lacks.  An array of bfloats has the dtype uint16."""

import numpy as np


def from_floats(x: np.ndarray) -> np.ndarray:
    """Returns the bfloats nearest to floats, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def to_floats(bfloats: np.ndarray) -> np.ndarray:
    """Returns the values of bfloats, which are floats."""
    return (bfloats.astype(np.uint32) << 16).view(np.float32)
