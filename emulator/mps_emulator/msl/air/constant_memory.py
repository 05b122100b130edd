"""Moves pointers to `constant` memory to the address space of this memory."""

import re

from ..errors import ToolError
from .module import CONSTANT, DEVICE

_IN_DEVICE = f"ptr addrspace({DEVICE})"
_IN_CONSTANT = f"ptr addrspace({CONSTANT})"
_NAMED_POINTER = re.compile(rf"{re.escape(_IN_DEVICE)} (%[\w.]+|@[\w.$]+)")
# An expression, not an instruction, that computes a pointer from one to `constant` memory.
_COMPUTED_POINTER = re.compile(
    rf"{re.escape(_IN_DEVICE)}"
    rf" (getelementptr (?:inbounds )?\([^()]*{re.escape(_IN_CONSTANT)})"
)


def move_constants(lines: list[str], constants: set[str], kernel: str) -> list[str]:
    """Returns the lines of a function with each pointer to `constant` memory in its address space.

    clang's passes do not distinguish `constant` from `device` memory, so all these pointers are in
    the address space of `device` memory before.

    Args:
      constants: the names of the global variables and parameters in `constant` memory.
      kernel: the name of the kernel, for an error.
    Raises:
      ToolError: a pointer may point to `constant` or to `device` memory.
    """
    while True:
        lines = [_with_constants(line, constants) for line in lines]
        # The results of these instructions are in the same memory as their operands.
        computed = {
            line.split()[0]
            for line in lines
            if _IN_CONSTANT in line
            and re.match(r"\s*%\S+ = (getelementptr|phi|select|freeze) ", line)
        }
        if computed <= constants:
            break
        constants = constants | computed
    for line in lines:
        if _may_be_either(line, constants):
            raise ToolError(f"{kernel}: a pointer to device or to constant memory: {line}")
    return lines


def _with_constants(line, constants):
    """Returns a line in which the pointers `constants` are in the address space of `constant`."""
    line = _NAMED_POINTER.sub(
        lambda found: f"{_IN_CONSTANT} {found[1]}" if found[1] in constants else found[0], line
    )
    line = _COMPUTED_POINTER.sub(rf"{_IN_CONSTANT} \1", line)
    if " = phi ptr " in line and constants & set(re.findall(r"[%@][\w.$]+", line)):
        line = line.replace(_IN_DEVICE, _IN_CONSTANT)
    return line


def _may_be_either(line, constants):
    """Whether a line makes a pointer that may be to `device` memory or to `constant` memory."""
    if _IN_CONSTANT not in line:
        return False
    if _IN_DEVICE in line and "call" not in line:
        return True
    operands = re.findall(r"\[ (\S+),", line) if " = phi ptr " in line else []
    return any(name[0] == "%" and name not in constants for name in operands)
