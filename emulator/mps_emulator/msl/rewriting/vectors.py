"""Replaces constructors and conversions of vectors with calls of functions."""

from . import names
from .edits import Edits, Step
from .structure import OPENING
from .types import Types


class Vectors(Step):
    """Rewrites constructors and conversions of types that may be vectors."""

    def __init__(self, edits: Edits, types: Types):
        super().__init__(edits)
        self._types = types

    def run(self) -> None:
        s = self._structure
        for index, token in enumerate(self._tokens):
            if token.kind == "identifier":
                if token.text == "static_cast":
                    self._rewrite_static_cast(index)
                    continue
                end = self._types.end_of_type(index)
                if end is None:
                    continue
                following = s.text(end)
                if following == "(":
                    self._rewrite_construction(index, end)
                elif following == "{" and self._is_vector(index, end):
                    self._rewrite_braced_construction(index, end)
                elif s.is_identifier(end) and s.text(end + 1) == "(":
                    self._rewrite_initialization(index, end)
            elif token.text == "(" and token.kind == "punctuator":
                end = self._types.end_of_type(index + 1)
                if end is not None and s.text(end) == ")":
                    self._rewrite_cast(index, end)

    def _is_vector(self, begin, end):
        words = [self._structure.text(i) for i in range(begin, end)]
        return any(word in names.VECTOR_NAMES or word == "vec" for word in words)

    def _rewrite_construction(self, begin, end):
        s = self._structure
        before = s.text(s.previous(begin))
        if before in ("operator", "~"):
            return
        if s.is_identifier(s.previous(begin)) and before not in ("return", "else", "do"):
            return  # a declaration: float4 (x)
        if self._is_declarator(end):
            return
        function = "make"
        if self._is_condition(end):
            function = "make_from_condition"
        self._edits.insert_before(begin, f"::__msl::{function}<")
        self._edits.insert_after(end - 1, ">")

    def _is_declarator(self, opening):
        """Whether the parentheses are part of a declaration like T (*f)(...) or T (&x)[4]."""
        s = self._structure
        close = s.match.get(opening)
        return (
            close is not None
            and s.text(opening + 1) in ("*", "&", "&&")
            and s.text(close + 1) in ("(", "[")
        )

    def _is_condition(self, opening):
        """Whether the parentheses contain only one argument: a comparison or a logical operation.

        For vectors, these operations give 0 or 1 in MSL, and 0 or -1 in clang.
        """
        s = self._structure
        close = s.match.get(opening, opening)
        index = opening + 1
        found = False
        while index < close:
            text = s.text(index)
            if s.kind(index) != "punctuator":
                index += 1
                continue
            if text in (",", "?"):
                return False
            if text in OPENING:
                index = s.end_of_bracket(index)
                continue
            if text == "<" and s.is_identifier(index - 1):
                after = s.end_of_qualifying_arguments(index)
                if after is not None:
                    index = after
                    continue
            if text in ("<", ">", "<=", ">=", "==", "!=", "&&", "||", "!"):
                found = True
            index += 1
        # The whole argument may be in a second pair of parentheses.
        if not found and s.text(opening + 1) == "(":
            if s.match.get(opening + 1) == close - 1:
                return self._is_condition(opening + 1)
        return found

    def _rewrite_braced_construction(self, begin, end):
        s = self._structure
        before = s.text(s.previous(begin))
        if before == "->" or end not in s.match:
            return
        self._edits.insert_before(begin, "::__msl::make<")
        self._edits.insert_after(end - 1, ">")
        self._edits.replace(end, "(")
        self._edits.replace(s.match[end], ")")

    def _rewrite_initialization(self, begin, name):
        """Rewrites `float4 v(a, b);` as `float4 v = make<float4>(a, b);`."""
        s = self._structure
        before = s.text(s.previous(begin))
        allowed = ("constant", "constexpr")
        if s.scope[begin].in_function:
            allowed += ("{", "}", ";", "(", ":", "const", "thread")
        if before not in allowed:
            return
        if before == "(" and s.text(s.previous(s.previous(begin))) != "for":
            return
        type_text = self._edits.spelling(range(begin, name))
        while s.is_identifier(name) and s.text(name + 1) == "(":
            close = s.match.get(name + 1)
            if close is None or s.text(close + 1) not in (";", ","):
                return
            self._edits.insert_after(name, f" = ::__msl::make<{type_text}>")
            name = close + 2

    def _rewrite_static_cast(self, index):
        s = self._structure
        end = s.end_of_template_arguments(index + 1)
        if end is None:
            return
        inner = self._types.end_of_type(index + 2)
        if inner == end - 1 or s.text(index + 2) == "decltype":
            self._edits.replace(index, "::__msl::convert")

    def _rewrite_cast(self, opening, close):
        """Rewrites `(float4)x` as `convert<float4>(x)`."""
        s = self._structure
        before = s.previous(opening)
        text = s.text(before)
        if s.is_identifier(before) and text != "return":
            return  # not a cast, but an expression like sizeof(float4) or f(T)
        if text in ("]", ">") or (text == ")" and not self._is_cast_type(before)):
            return
        operand_end = self._end_of_operand(close + 1)
        if operand_end is None:
            return
        self._edits.replace(opening, "::__msl::convert<")
        self._edits.replace(close, ">(")
        self._edits.insert_after(operand_end - 1, ")")

    def _is_cast_type(self, close):
        """Whether the parentheses that end at `close` contain a type."""
        opening = self._structure.match.get(close)
        return opening is not None and self._types.is_type(opening + 1, close)

    def _end_of_operand(self, index):
        """Returns the index after the operand of a cast, or None if there is no operand."""
        s = self._structure
        while s.text(index) in ("+", "-", "!", "~", "*", "&", "++", "--"):
            index += 1
        text = s.text(index)
        if text == "(":
            close = s.match.get(index)
            if close is None:
                return None
            if self._types.is_type(index + 1, close):
                return self._end_of_operand(close + 1)
            index = close + 1
        elif s.kind(index) in ("number", "character"):
            index += 1
        elif s.kind(index) == "identifier" or text == "::":
            index = self._types.end_of_name(index)
        else:
            return None
        while True:
            text = s.text(index)
            if text in ("(", "["):
                index = s.end_of_bracket(index)
            elif text in (".", "->"):
                index = self._types.end_of_name(index + 1)
            elif text in ("++", "--"):
                index += 1
            else:
                return index
