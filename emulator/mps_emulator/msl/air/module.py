"""Reads the text of a kernel's bitcode.

The text is what clang prints for bitcode, without address spaces of pointees: `ptr addrspace(1)` is
a pointer to `device` memory, 2 is `constant` and 3 is `threadgroup`.
"""

import dataclasses
import re

from .. import toolchain
from ..errors import ToolError

DEVICE, CONSTANT, THREADGROUP = 1, 2, 3

_DECLARATION = re.compile(r"^declare (?P<result>.*?) @(?P<name>air\.[\w.]+)\((?P<parameters>.*)\)")
_METADATA = re.compile(r"^(!\d+) = (?:distinct )?!\{(.*)\}$", re.M)
_ATTRIBUTES = re.compile(r"^attributes (#\d+) = \{ (.*) \}$", re.M)
_TYPE = re.compile(
    r"ptr(?: addrspace\(\d+\))?|<\d+ x \w+>|\[\d+ x [^\]]+\]|%\"[^\"]+\"|%[\w.$-]+|[a-z]\w*"
)


@dataclasses.dataclass
class Declaration:
    """A function of AIR that a module calls."""

    name: str
    # Types of LLVM without attributes, like "float" or "<2 x i32>".
    result: str
    parameters: list[str]
    attributes: set[str]  # the function's attributes that are words

    @property
    def type(self) -> str:
        """The function's type, like "float (float, float)"."""
        return f"{self.result} ({', '.join(self.parameters)})"


@dataclasses.dataclass
class Argument:
    """A parameter of a kernel, as the metadata describes it."""

    number: int  # the number of the parameter, from 0
    kind: str  # "buffer", or the name of a built-in value like "thread_position_in_grid"
    type: str  # the type of LLVM
    # The other entries of the metadata, {name without "air.": value}.  An entry without a value has
    # the value None.
    fields: dict[str, int | str | None]

    @property
    def index(self) -> int:
        """The i of [[buffer(i)]] or [[threadgroup(i)]]."""
        return self.fields["location_index"]

    @property
    def is_threadgroup(self) -> bool:
        return self.fields["address_space"] == THREADGROUP

    @property
    def is_constant(self) -> bool:
        return self.fields["address_space"] == CONSTANT


class Module:
    """The module of one kernel.

    Attributes:
      text: the text of the module.
      function: the name of the kernel's function, as the text spells it.
      arguments: the kernel's parameters.
      limits: the text of the metadata that limits the threads, if there is any.
    Raises:
      ToolError: the module has no kernel.
    """

    def __init__(self, text: str):
        self.text = text
        self._metadata = dict(_METADATA.findall(text))
        kernels = self._named("air.kernel")
        if not kernels:
            raise ToolError("the function is not a kernel")
        entry = split(self._metadata[kernels[0]])
        self.function = re.search(r'@("[^"]+"|[^\s,]+)', entry[0])[1]
        self.arguments = [self._argument(number) for number in split(self._metadata[entry[2]])]
        self.limits = [self._metadata.get(extra, "") for extra in entry[3:]]

    def _named(self, name):
        found = re.search(rf"^!{re.escape(name)} = !\{{(.*)\}}$", self.text, re.M)
        return split(found[1]) if found else []

    def _argument(self, node):
        number, kind, *rest = map(_value, split(self._metadata[node]))
        fields = {}
        while rest:
            name = rest.pop(0).removeprefix("air.")
            values = []
            while rest and not str(rest[0]).startswith("air."):
                values.append(rest.pop(0))
                if name in ("arg_type_name", "arg_name"):
                    break
            fields[name] = values[0] if values else None
        return Argument(number, kind.removeprefix("air."), self.parameter_types[number], fields)

    @property
    def parameter_types(self) -> list[str]:
        """The types of the kernel's parameters."""
        pattern = rf"^define .*@{re.escape(self.function)}\((.*)\) [^()]*\{{$"
        return [type_of(text) for text in split(re.search(pattern, self.text, re.M)[1])]

    @property
    def max_total_threads(self) -> int | None:
        """The value of [[max_total_threads_per_threadgroup]], or None."""
        for limit in self.limits:
            if found := re.search(r'"air\.max_work_group_size", i32 (\d+)', limit):
                return int(found[1])
        return None

    def declarations(self) -> list[Declaration]:
        """Returns the functions of AIR that the module declares."""
        attributes = {name: _words(text) for name, text in _ATTRIBUTES.findall(self.text)}
        found = []
        for line in self.text.splitlines():
            match = _DECLARATION.match(line)
            if match is None:
                continue
            group = re.search(r"#\d+", line[match.end() :])
            found.append(
                Declaration(
                    match["name"],
                    type_of(match["result"]),
                    [type_of(text) for text in split(match["parameters"])],
                    attributes.get(group[0], set()) if group else set(),
                )
            )
        return found


def disassemble(bitcode: bytes | memoryview, clang: str) -> str:
    """Returns the text of a module.

    Args:
      clang: the path of clang++.
    Raises:
      ToolError: clang cannot read the bitcode.
    """
    command = [clang, *"-x ir - -S -emit-llvm -o - -w --target=x86_64-linux-gnu".split()]
    # Without passes, clang changes nothing but the data layout and the target.
    command += ["-Xclang", "-disable-llvm-passes"]
    status, printed = toolchain.run(command, bytes(bitcode))
    if status != 0:
        raise ToolError("clang cannot read the bitcode:\n" + printed)
    return printed


def split(text: str) -> list[str]:
    """Splits a list of LLVM at the commas that are outside of brackets and strings."""
    parts, depth, quoted, begin = [], 0, False, 0
    for position, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    last = text[begin:].strip()
    return parts + [last] if last else parts


def type_of(text: str) -> str:
    """Returns the type in the text of a parameter or a result, without attributes.

    Raises:
      ToolError: the text has no type.
    """
    attributes = ("zeroext", "signext", "noundef", "noalias", "nonnull", "inreg", "range")
    for word in _TYPE.finditer(text):
        if word[0] not in attributes:
            return word[0]
    raise ToolError("LLVM's type cannot be read: " + text)


def _value(text):
    """Returns the value of an entry of metadata: a number, a string, or another entry's text."""
    if found := re.fullmatch(r"i\d+ (-?\d+)", text):
        return int(found[1])
    if found := re.fullmatch(r'!"(.*)"', text):
        return found[1]
    return text


def _words(attributes):
    return set(re.sub(r'"[^"]*"(="[^"]*")?', "", attributes).split())
