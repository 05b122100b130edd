"""Replaces attributes in [[ ]] with annotations, because clang's AST has only annotations."""

from ..lexer import Token
from . import names
from .edits import Edits, Step
from .structure import Structure


class Attributes(Step):
    """Rewrites the attributes of kernels and of their parameters; removes the others."""

    def __init__(self, edits: Edits):
        super().__init__(edits)
        self._values = 0  # the number of enumerators so far

    def run(self) -> None:
        s = self._structure
        index = 0
        while index < len(self._tokens):
            if (
                s.text(index) == "["
                and s.text(index + 1) == "["
                and s.kind(index) == "punctuator"
                and s.match.get(index) == s.match.get(index + 1, -2) + 1
            ):
                end = s.end_of_bracket(index)
                self._rewrite_attribute_list(index, end)
                index = end
            else:
                index += 1

    def _rewrite_attribute_list(self, begin, end):
        attributes = parse_attributes(self._structure, begin, end)
        given = [name for name, _, _ in attributes]
        if not names.FUNCTION_ATTRIBUTES.isdisjoint(given):
            self._rewrite_function_attributes(begin, end, attributes)
            return
        annotations = []
        keep = []
        for name, at, arguments in attributes:
            annotation = self._parameter_annotation(name, at, arguments, begin)
            if annotation is not None:
                annotations.append(names.annotate_parameter(annotation))
            elif name in names.STANDARD_ATTRIBUTES or "::" in name:
                keep.append(name)
        if keep and not annotations:
            return
        self._edits.erase(begin, end)
        if annotations:
            self._edits.replace(begin, " ".join(annotations))

    def _rewrite_function_attributes(self, begin, end, attributes):
        self._edits.erase(begin, end)
        words = []
        for name, at, arguments in attributes:
            if name == "kernel":
                words.append(names.annotate("kernel"))
            elif name == "host_name":
                host_name = string_argument(self._tokens, arguments)
                words.append(names.annotate("host_name:" + host_name))
            elif name == "max_total_threads_per_threadgroup":
                value = self._value(at, arguments, self._body_after(end))
                words.append(names.annotate("max_total_threads:" + value))
        self._edits.replace(begin, " ".join(words))

    def _parameter_annotation(self, name, at, arguments, begin):
        """Returns the text of the annotation for a parameter's attribute, or None.

        Args:
          name, at, arguments: the attribute, as `parse_attributes` returns it.
          begin: the index of the first [ of the list of attributes.
        """
        if name in names.BUILTINS:
            return "builtin:" + name
        if name in ("buffer", "threadgroup"):
            if arguments is None:
                self._edits.error(at, f"'{name}' attribute takes one argument")
                return None
            body = self._body_of_parameter(begin)
            return name + ":" + self._value(at, arguments, body)
        if name == "function_constant":
            self._edits.error(at, "the emulator does not support Metal's function constants")
            return None
        return None

    def _value(self, at, arguments, body):
        """Returns an attribute's number as text: a literal, or the name of a new enumerator.

        If the argument is an expression, its value can depend on template parameters.  So this
        method adds an enumerator with this value to the body of the program's function, where
        clang evaluates the expression.

        Args:
          at, arguments: the attribute, as `parse_attributes` returns it.
          body: the index of the { of the function's body, or None for a declaration.
        """
        begin, end = arguments or (at, at)
        if end - begin == 1 and self._tokens[begin].kind == "number":
            return self._tokens[begin].text.rstrip("uUlL")
        if body is None:
            return "0"  # a declaration: only the value in the function's definition is used
        name = f"__msl_value_{self._values}"
        self._values += 1
        text = self._structure.joined(begin, end)
        self._edits.insert_after(body, f" enum : long {{ {name} = ({text}) }};")
        return name

    def _body_of_parameter(self, index):
        """Returns the index of the { of a function's body, or None for a declaration.

        Args:
          index: a token in the function's parameters.
        """
        s = self._structure
        opening = None
        for position in s.backwards(index):
            if s.text(position) == "(":
                opening = position
            elif s.text(position) in ("{", ";"):
                break
        if opening is None:
            return None
        after = s.end_of_bracket(opening)
        return after if s.text(after) == "{" else None

    def _body_after(self, index):
        """Returns the index of the { of a function's body, or None for a declaration.

        Args:
          index: a token of the function before its body.
        """
        s = self._structure
        for position in s.forwards(index, len(self._tokens)):
            if s.text(position) in (";", "{"):
                return position if s.text(position) == "{" else None
        return None


def parse_attributes(
    structure: Structure, begin: int, end: int
) -> list[tuple[str, int, tuple[int, int] | None]]:
    """Reads the attributes in [[ ]], tokens [begin, end).

    Returns:
      For each attribute its name, the index of the name, and the (begin, end) of the tokens of its
      arguments, or None.
    """
    found = []
    index = begin + 2
    while index < end - 2:
        name = structure.text(index)
        at = index
        index += 1
        while structure.text(index) == "::":
            name += "::" + structure.text(index + 1)
            index += 2
        arguments = None
        if structure.text(index) == "(":
            arguments = (index + 1, structure.match.get(index, index + 1))
            index = structure.end_of_bracket(index)
        found.append((name, at, arguments))
        while index < end - 2 and structure.text(index) != ",":
            index += 1
        index += 1
    return found


def string_argument(tokens: list[Token], arguments: tuple[int, int] | None) -> str:
    """Returns the text of an attribute's string argument, without quotes.

    Args:
      arguments: the (begin, end) of the argument's tokens, or None.
    """
    begin, end = arguments or (0, 0)
    parts = [token.text[1:-1] for token in tokens[begin:end] if token.kind == "string"]
    return "".join(parts)
