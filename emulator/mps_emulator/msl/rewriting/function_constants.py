"""Gives function constants their values."""

import dataclasses

from . import names
from .edits import Step

# The size of a scalar, in bytes, by its name in MSL.
_SIZES = {
    **dict.fromkeys(["bool", "char", "int8_t", "uchar", "uint8_t"], 1),
    **dict.fromkeys(["short", "int16_t", "ushort", "uint16_t", "half", "bfloat"], 2),
    **dict.fromkeys(["int", "int32_t", "uint", "uint32_t", "unsigned", "unsigned int"], 4),
    **dict.fromkeys(["long", "int64_t", "ulong", "uint64_t"], 8),
    "float": 4,
}
_UNSIGNED = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}  # by size


@dataclasses.dataclass
class FunctionConstant:
    """A program-scope constant with [[function_constant(index)]].

    number: its position among the function constants of the text.
    type:   the words of its type in MSL.
    value:  its bytes, or None without a value.
    """

    number: int
    token: int
    name: str
    type: str
    index_text: str
    value: bytes | None = None


class FunctionConstants(Step):
    """values: the given values, {index or name: bytes}.

    `constants` holds a FunctionConstant for each declaration in the text.
    """

    def __init__(self, edits, values):
        super().__init__(edits)
        self.constants = []
        self._given = dict(values)

    def is_declaration(self, attribute):
        """Whether an attribute belongs to a variable at program scope."""
        scope = self._structure.scope[attribute]
        if scope.kind != "namespace":
            return False
        index = attribute
        while index >= 0 and self._structure.text(index) not in (";", "}"):
            if self._structure.text(index) == "(":
                return False
            index -= 1
        return True

    def take(self, begin, end, attributes):
        """Rewrites the variable whose attributes are tokens [begin, end)."""
        s = self._structure
        name = begin - 1
        first = name
        while first > 0 and s.text(first - 1) not in (";", "}", "{"):
            if s.kind(first - 1) == "directive":
                break
            first -= 1
        words = [
            s.text(i)
            for i in range(first, name)
            if s.text(i) not in ("constant", "const", "static", "constexpr")
        ]
        first, last = next(found for n, _, found in attributes if n == "function_constant")
        index_text = "".join(t.text for t in self._tokens[first:last])
        constant = FunctionConstant(
            len(self.constants), name, s.text(name), " ".join(words), index_text
        )
        constant.value = self._given_value(constant)
        self.constants.append(constant)
        self._edits.erase(begin, end)
        self._edits.replace(begin, names.annotate(f"function_constant:{constant.number}"))
        try:
            literal = _literal(constant.type, constant.value)
        except ValueError as error:
            self._edits.error(name, str(error))
            literal = "0"
        self._edits.insert_after(end - 1, " = " + literal)

    def _given_value(self, constant):
        if constant.name in self._given:
            return self._given[constant.name]
        try:
            index = _integer(constant.index_text)
        except ValueError:
            self._edits.error(
                constant.token,
                f"the emulator needs a plain number in function_constant({constant.index_text})",
            )
            return None
        return self._given.get(index)

    def replace_is_defined(self, index):
        s = self._structure
        name = s.text(index + 2)
        close = s.end_of_bracket(index + 1)
        for constant in self.constants:
            if constant.name == name:
                self._edits.erase(index, close)
                defined = constant.value is not None
                self._edits.replace(index, "true" if defined else "false")
                return
        self._edits.error(index + 2, f"'{name}' is not a function constant")


def _integer(text):
    """The value of an integer literal of C++."""
    digits = text.rstrip("uUlL")
    is_octal = digits.isdigit() and digits.startswith("0")
    return int(digits, 8 if is_octal else 0)


def _literal(type_name, value):
    """A function constant's value as an expression.

    value: its bytes, or None for a constant without a value, which is 0.
    """
    type_name = type_name.replace("metal :: ", "")
    count = 1
    element = type_name
    if type_name in names.VECTOR_NAMES:
        element, count = type_name[:-1], int(type_name[-1])
    if element not in _SIZES:
        raise ValueError(f"a function constant is a scalar or a vector, not '{type_name}'")
    size = _SIZES[element]
    if value is None:
        value = bytes(size * count)
    if len(value) < size * count:
        raise ValueError(
            f"the value given for a function constant of type '{type_name}' has {len(value)} "
            f"bytes instead of {size * count}"
        )
    words = [_scalar_literal(element, value[i * size : (i + 1) * size]) for i in range(count)]
    if count == 1:
        return words[0]
    return "::__msl::make<{}>({})".format(type_name, ", ".join(words))


def _scalar_literal(type_name, value):
    number = int.from_bytes(value, "little")
    if type_name == "bool":
        return f"({number} != 0)"
    return f"__builtin_bit_cast({type_name}, ({_UNSIGNED[len(value)]}){number}ul)"
