"""A kernel and its arguments."""

import dataclasses

import bfloat
import numpy as np

# {name of a type in the names of mlx's kernels: (its name in Metal, NumPy's dtype)}.  NumPy has no
# bfloat, see bfloat.py.
TYPES = {
    "bool_": ("bool", np.bool_),
    "uint8": ("uint8_t", np.uint8),
    "uint16": ("uint16_t", np.uint16),
    "uint32": ("uint32_t", np.uint32),
    "uint64": ("uint64_t", np.uint64),
    "int8": ("int8_t", np.int8),
    "int16": ("int16_t", np.int16),
    "int32": ("int32_t", np.int32),
    "int64": ("int64_t", np.int64),
    "float16": ("half", np.float16),
    "bfloat16": ("bfloat16_t", np.uint16),
    "float32": ("float", np.float32),
}
FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = tuple(name for name in TYPES if "int" in name)
# The number of elements of a kernel that computes each element by itself.
COUNT = 257
# Floats for which implementations of a function often differ: signed zeros, halves (which round to
# even), the largest half, and floats whose exp() overflows or vanishes.
_SPECIAL = (0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5)
_SPECIAL += (np.inf, -np.inf, np.nan, 65504, 1e-7, 88, -104)


@dataclasses.dataclass
class Kernel:
    """A kernel and its arguments."""

    text: str  # an expression for the function, such as `unary_v<float, float, Exp, 1>`
    buffers: list[np.ndarray]  # the arguments
    # {index of a buffer that the kernel writes: type of mlx, if it is one of FLOATS}.
    floats: dict[int, str]
    # Sizes in threads.
    grid: tuple[int, ...]
    threadgroup: tuple[int, ...]


@dataclasses.dataclass
class Group:
    """Kernels of one text."""

    wheel: str  # the requirement of the wheel that has the .metallib
    includes: list[str]  # the headers that the text includes
    kernels: dict[str, Kernel]
    head: str = ""  # a text after the headers
    # Further texts, each a header of the wheel or (repository, tag, path).  Their own instances are
    # left out.
    sources: tuple[str | tuple[str, str, str], ...] = ()


def generator(name: str) -> np.random.Generator:
    """Returns a generator whose random numbers depend only on the name of a kernel."""
    return np.random.default_rng(list(name.encode()))


def as_type(x: np.ndarray, type: str) -> np.ndarray:
    """Converts an array of floats to one of FLOATS."""
    return bfloat.from_floats(x) if type == "bfloat16" else x.astype(TYPES[type][1])


def values(
    name: str, type: str, count: int, positive: bool = False, special: bool = True
) -> np.ndarray:
    """Returns `count` random values of a type of TYPES.

    Args:
      name: the values depend on this name.
      special: begin with zeros, infinities, a NaN and halves, if the type is one of FLOATS.
    """
    random = generator(name)
    if type == "bool_":
        return random.integers(0, 2, count).astype(np.bool_)
    if type not in FLOATS:
        low = 1 if positive else 0 if type.startswith("u") else -9
        return random.integers(low, 10, count).astype(TYPES[type][1])
    x = random.normal(size=count) * 3
    x[::7] *= 10
    if positive:
        x = abs(x)
    if special:
        x[: len(_SPECIAL)] = _SPECIAL
    return as_type(x, type)


def empty(type: str, count: int) -> np.ndarray:
    """Returns an array that no kernel leaves as it is: a bool is 0 or 1, so its byte is 7 here."""
    return np.full(count, 7, np.uint8 if type == "bool_" else TYPES[type][1])


def number(type: str, value: int) -> np.ndarray:
    """Returns the argument for a kernel's parameter that is one number.

    Args:
      type: NumPy's name of the number's type, such as "u4".
    """
    return np.array([value], type)


def if_float(index: int, type: str) -> dict[int, str]:
    """Returns the field `floats` of a kernel that writes one buffer, of any type of TYPES."""
    return {index: type} if type in FLOATS else {}
