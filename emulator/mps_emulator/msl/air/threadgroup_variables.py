"""Gives a module's threadgroup variables memory of the executor."""

import re

from ..errors import ToolError
from .module import split

_GLOBAL = re.compile(
    r"^(?P<name>@\S+) = .*?addrspace\(3\) global (?P<type>.+?) (?:undef|poison|zeroinitializer)"
    r"(?:, align (?P<align>\d+))?.*$",
    re.M,
)
# An expression that is a constant, and that contains no other such expression.
_CONSTANT = r"(?:getelementptr(?: inbounds)?(?: nuw)?|ptrtoint|bitcast|inttoptr) \([^()]*\)"
# {type of LLVM: its size and its alignment, in bytes}.
_SIZES = {"half": 2, "bfloat": 2, "float": 4, "ptr": 8}


def find(text):
    return [
        {
            "line": found[0],
            "name": found["name"],
            "type": found["type"],
            "align": int(found["align"] or 16),
        }
        for found in _GLOBAL.finditer(text)
    ]


def size(module):
    """Returns the size of the module's threadgroup variables, in bytes."""
    return sum(_layout(variable["type"], module.text)[0] for variable in find(module.text))


def use_executors_memory(text, variables):
    """Replaces threadgroup variables with calls of the executor at the begin of each function."""
    if not variables:
        return text
    slots = {variable["name"]: slot for slot, variable in enumerate(variables)}
    pattern = re.compile("|".join(re.escape(name) + r"(?![\w.$])" for name in slots))
    pieces = re.split(r"(^define .*\{$\n(?:[\w.$-]+:.*\n)?)", text, flags=re.M)
    for index in range(2, len(pieces), 2):
        body, end, rest = pieces[index].partition("\n}\n")
        first = []
        while found := next(
            (found for found in re.finditer(_CONSTANT, body) if pattern.search(found[0])), None
        ):
            # The operand is no constant any more, so the expression becomes an instruction.
            value = f"%constant.{len(first)}"
            operation, _, operands = found[0].partition("(")
            first.append(f"{value} = {operation}{operands[:-1]}")
            body = body.replace(found[0], value)
        used = sorted(set(pattern.findall(body + " ".join(first))), key=slots.get)
        for name in used:
            variable = variables[slots[name]]
            size = f"ptrtoint (ptr getelementptr ({variable['type']}, ptr null, i64 1) to i64)"
            first.insert(
                0,
                f"%threadgroup.{slots[name]} = call ptr @air.threadgroup_variable("
                f"i32 {slots[name]}, i64 {size}, i64 {variable['align']})",
            )
        pieces[index] = "\n".join([*first, body]) + end + rest
        replaced = lambda found: f"%threadgroup.{slots[found[0]]}"  # noqa: E731
        pieces[index] = pattern.sub(replaced, pieces[index])
    return "".join(pieces) + "\ndeclare ptr @air.threadgroup_variable(i32, i64, i64)\n"


def _layout(type, text):
    """Returns (size, alignment) of a type of LLVM, in bytes.  `text` defines the structures."""
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
