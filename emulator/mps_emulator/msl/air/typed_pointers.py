"""Rewrites a function's text for LLVM 14, in which a pointer's type names the type of its pointee.

AIR before version 2.8 needs such pointers.  Here, all pointers become pointers to i8, and an
instruction that needs another type converts the pointer first.
"""

import re

from .module import split

_SPACE = r"ptr(?P<space>(?: addrspace\(\d\))?)"
_VARIABLE = r"(?P<variable>@[\w.$]+)"
# A pointer that is a constant: a global variable, or an element of a global variable.
_CONSTANT = re.compile(
    rf"getelementptr (?P<inbounds>inbounds )?\((?P<type>[^()]*?), {_SPACE} (?P<base>@[\w.$]+)"
    rf"(?P<indices>(?:, [^(),]*)+)\)|{_VARIABLE}"
)
_ALLOCA = re.compile(r"(?P<result>%\S+) = alloca (?P<type>.+?)(?P<rest>, align \d+)?")
_LOAD = re.compile(rf"(?P<result>%\S+) = load (?P<type>.+?), {_SPACE} (?P<pointer>.+)")
_STORE = re.compile(rf"store (?P<value>.+), {_SPACE} (?P<pointer>.+?)(?P<rest>, align \d+)?")
_ELEMENT = re.compile(
    rf"(?P<result>%\S+) = getelementptr (?P<inbounds>inbounds )?(?P<type>.+?), {_SPACE} "
    r"(?P<rest>.+)"
)
_CALL = re.compile(r"(?P<head>.*call \S.*?@(?P<name>[\w.]+))\((?P<arguments>.*)\)")


class TypedPointers:
    """Rewrites the lines of a function.

    Args:
      structures: {name of a structure: the text of its type}.
      variables: {name of a global variable: (its type, its address space as text)}.
    """

    def __init__(self, structures: dict[str, str], variables: dict[str, tuple[str, str]]):
        self._structures = structures
        self._variables = variables
        self._count = 0

    def lines(self, line: str) -> list[str]:
        """Returns the lines of LLVM 14 for a line of the function's body."""
        for pattern, rewrite in (
            (_ALLOCA, self._alloca),
            (_LOAD, self._load),
            (_STORE, self._store),
            (_ELEMENT, self._element),
            (_CALL, self._call),
        ):
            if match := pattern.fullmatch(line):
                return rewrite(**match.groupdict())
        return [self.constants(line)]

    def constants(self, text: str) -> str:
        """Rewrites the types of pointers, and the constants that are pointers."""
        return pointers(_CONSTANT.sub(self._constant, text))

    def _constant(self, match):
        name = match["base"] or match["variable"]
        if name not in self._variables:
            return match[0]  # a function
        type, space = self._variables[name]
        variable = f"bitcast ({type}{space}* {name} to i8{space}*)"
        if match["base"] is None:
            return variable
        given = match["type"]
        inside = self._type_inside(given, split(match["indices"].removeprefix(", "))[1:])
        return (
            f"bitcast ({inside}{space}* getelementptr {match['inbounds'] or ''}({given}, "
            f"{given}{space}* bitcast ({type}{space}* {name} to {given}{space}*)"
            f"{match['indices']}) to i8{space}*)"
        )

    def _new_name(self):
        self._count += 1
        return f"%air.{self._count}"

    def _converted(self, space, pointer, type):
        """Returns the lines that convert a pointer, and the pointer to `type` with its type."""
        pointer = self.constants(pointer)
        if type == "i8":
            return [], f"i8{space}* {pointer}"
        name = self._new_name()
        line = f"{name} = bitcast i8{space}* {pointer} to {type}{space}*"
        return [line], f"{type}{space}* {name}"

    def _alloca(self, result, type, rest):
        name = self._new_name()
        return [f"{name} = alloca {type}{rest or ''}", f"{result} = bitcast {type}* {name} to i8*"]

    def _load(self, result, type, space, pointer):
        pointer, *rest = split(pointer)
        type = pointers(type)
        lines, pointer = self._converted(space, pointer, type)
        return [*lines, ", ".join([f"{result} = load {type}", pointer, *rest])]

    def _store(self, value, space, pointer, rest):
        type = pointers(leading_type(value))
        lines, pointer = self._converted(space, pointer, type)
        return [*lines, f"store {self.constants(value)}, {pointer}{rest or ''}"]

    def _element(self, result, inbounds, type, space, rest):
        pointer, *indices = split(rest)
        lines, pointer = self._converted(space, pointer, type)
        operands = ", ".join([type, pointer, *indices])
        if type == "i8":
            return [f"{result} = getelementptr {inbounds or ''}{operands}"]
        name = self._new_name()
        inside = self._type_inside(type, indices[1:])
        return [
            *lines,
            f"{name} = getelementptr {inbounds or ''}{operands}",
            f"{result} = bitcast {inside}{space}* {name} to i8{space}*",
        ]

    def _call(self, head, name, arguments):
        lines, given = [], []
        for argument in split(arguments):
            match = re.fullmatch(rf"{_SPACE} (?P<pointer>.+)", argument)
            if match and name.startswith("air."):
                space, pointer = match["space"], match["pointer"]
                converted, argument = self._converted(space, pointer, pointee(name))
                lines += converted
            given.append(self.constants(argument))
        name = re.sub(r"\.p(\d)\b", r".p\1i8", name)
        head = head[: head.rindex("@") + 1] + name
        return [*lines, f"{pointers(head)}({', '.join(given)})"]

    def _type_inside(self, type, indices):
        """Returns the type of the element that the indices of getelementptr choose."""
        for index in indices:
            type = self._structures.get(type, type)
            if array := re.fullmatch(r"[\[<]\d+ x (.*)[\]>]", type):
                type = array[1]
            else:
                type = split(type.strip("{} "))[int(index.split()[-1])]
        return type


def pointers(text: str) -> str:
    """Replaces types of pointers by pointers to i8."""
    return re.sub(r"\bptr\b( addrspace\(\d\))?", lambda found: f"i8{found[1] or ''}*", text)


def pointee(name: str) -> str:
    """Returns the type to which the pointer points that the function `name` of AIR takes."""
    if name.startswith("air.frexp."):
        return "i32"
    last = name.rpartition(".")[2]
    return {"f32": "float"}.get(last, last)


def leading_type(text: str) -> str:
    """Returns the type at the beginning of the text of a value."""
    if text[0] not in "[<{":
        return re.match(r"ptr(?: addrspace\(\d\))?|%\"[^\"]+\"|\S+", text)[0]
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "[<{") - (letter in "]>}")
        if depth == 0:
            return text[: position + 1]
    return text
