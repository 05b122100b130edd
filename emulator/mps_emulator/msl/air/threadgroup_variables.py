"""Gives a module's threadgroup variables memory of the executor."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ToolError
from .module import Module, split

_GLOBAL = re.compile(
    r"^(?P<name>@\S+) = .*?addrspace\(3\) global (?P<type>.+?) (?:undef|poison|zeroinitializer)"
    r"(?:, align (?P<align>\d+))?.*$",
    re.M,
)
# An expression that is a constant, and that contains no other such expression.
_CONSTANT = r"(?:getelementptr(?: inbounds)?(?: nuw)?|ptrtoint|bitcast|inttoptr) \([^()]*\)"
# {type of LLVM: its size and its alignment, in bytes}.
_SIZES = {"half": 2, "bfloat": 2, "float": 4, "ptr": 8}


class Variable(NamedTuple):
    """A threadgroup variable of a module."""

    line: str  # the line that defines the variable
    name: str  # with the @
    type: str  # the type of LLVM
    alignment: int  # in bytes


def find(text: str) -> list[Variable]:
    """Returns the threadgroup variables that the text of a module defines."""
    return [
        Variable(found[0], found["name"], found["type"], int(found["align"] or 16))
        for found in _GLOBAL.finditer(text)
    ]


def size(module: Module) -> int:
    """Returns the size of the module's threadgroup variables, in bytes."""
    return sum(_layout(variable.type, module.text)[0] for variable in find(module.text))


def use_executors_memory(text: str, variables: Sequence[Variable]) -> str:
    """Replaces threadgroup variables with calls of the executor at the begin of each function.

    Args:
      text: a module without the lines that define the variables.
    """
    if not variables:
        return text
    slots = {variable.name: slot for slot, variable in enumerate(variables)}
    pattern = re.compile("|".join(re.escape(name) + r"(?![\w.$])" for name in slots))
    # A function begins with its head, and perhaps with the label of its first block.
    pieces = re.split(r"(^define .*\{$\n(?:[\w.$-]+:.*\n)?)", text, flags=re.M)
    for index in range(2, len(pieces), 2):
        body, end, rest = pieces[index].partition("\n}\n")
        body, computed = _name_constants(body, pattern)
        calls = [
            _call(slots[name], variables[slots[name]])
            for name in sorted(set(pattern.findall(body + " ".join(computed))), key=slots.get)
        ]
        function = "\n".join([*calls, *computed, body]) + end + rest
        pieces[index] = pattern.sub(lambda found: f"%threadgroup.{slots[found[0]]}", function)
    return "".join(pieces) + "\ndeclare ptr @air.threadgroup_variable(i32, i64, i64)\n"


def _name_constants(body, pattern):
    """Replaces the constant expressions that name a threadgroup variable by names.

    A call's result, which replaces the variable, is no constant.  So the expressions must become
    instructions.

    Args:
      pattern: matches the names of the variables.
    Returns:
      The body of the function; and the instructions that compute the values of the new names.
    """
    computed = []
    while found := next(
        (found for found in re.finditer(_CONSTANT, body) if pattern.search(found[0])), None
    ):
        value = f"%constant.{len(computed)}"
        operation, _, operands = found[0].partition("(")
        computed.append(f"{value} = {operation}{operands[:-1]}")
        body = body.replace(found[0], value)
    return body, computed


def _call(slot, variable):
    """Returns the instruction that gets a variable's address from the executor."""
    size = f"ptrtoint (ptr getelementptr ({variable.type}, ptr null, i64 1) to i64)"
    return (
        f"%threadgroup.{slot} = call ptr @air.threadgroup_variable("
        f"i32 {slot}, i64 {size}, i64 {variable.alignment})"
    )


def _layout(type, text):
    """Returns the size and the alignment of a type of LLVM, in bytes.

    Args:
      text: the module, which defines the structures.
    Raises:
      ToolError: the type is of an unknown kind.
    """
    type = type.strip()
    if found := re.fullmatch(r"i(\d+)", type):
        size = max(int(found[1]), 8) // 8
        return size, size
    if type in _SIZES:
        return _SIZES[type], _SIZES[type]
    if found := re.fullmatch(r"<(\d+) x (.*)>", type):
        size = int(found[1]) * _layout(found[2], text)[0]
        size = 1 << (size - 1).bit_length()
        return size, size
    if found := re.fullmatch(r"\[(\d+) x (.*)\]", type):
        size, alignment = _layout(found[2], text)
        return int(found[1]) * size, alignment
    if type.startswith("%"):
        found = re.search(rf"^{re.escape(type)} = type (.*)$", text, re.M)
        return _layout(found[1], text)
    if found := re.fullmatch(r"(<?)\{(.*)\}>?", type):
        return _layout_of_structure(found[2], bool(found[1]), text)
    raise ToolError(f"the emulator does not know the size of LLVM's type {type}")


def _layout_of_structure(members, is_packed, text):
    size, largest = 0, 1
    for member in split(members):
        bytes_, alignment = _layout(member, text)
        alignment = 1 if is_packed else alignment
        size = (size + alignment - 1) // alignment * alignment + bytes_
        largest = max(largest, alignment)
    return (size + largest - 1) // largest * largest, largest
