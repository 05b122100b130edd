"""Finds brackets, template arguments and scopes in a list of tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..lexer import Token

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {")": "(", "]": "[", "}": "{"}

CLASS_KEYS = ("struct", "class", "union")

# Keywords after which a { begins a block of statements.
_BLOCK_INTRODUCERS = ("else", "do", "try")


class Structure:
    """The brackets and the scopes of a list of tokens.

    Attributes:
      tokens: the list.
      match: match[i] is the index of the bracket that matches the bracket at index i.
      scope: scope[i] is the innermost scope that contains token i.
      scopes: all scopes with braces.
    """

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.match: dict[int, int] = {}
        self._match_brackets()
        self.scope: list[Scope] = [None] * len(tokens)
        self.scopes: list[Scope] = []
        self._find_scopes()

    def text(self, index: int) -> str:
        """Returns the text of token `index`, or "" if there is no such token."""
        if 0 <= index < len(self.tokens):
            return self.tokens[index].text
        return ""

    def kind(self, index: int) -> str:
        """Returns the kind of token `index`, or "" if there is no such token."""
        if 0 <= index < len(self.tokens):
            return self.tokens[index].kind
        return ""

    def joined(self, begin: int, end: int) -> str:
        """Returns the texts of the tokens [begin, end), joined with spaces."""
        return " ".join(token.text for token in self.tokens[begin:end])

    def is_identifier(self, index: int) -> bool:
        return self.kind(index) == "identifier"

    def previous(self, index: int) -> int:
        """Returns the index of the last token before `index` that is not a directive."""
        index -= 1
        while index >= 0 and self.tokens[index].kind == "directive":
            index -= 1
        return index

    # ---- Walks outside of brackets

    def forwards(self, begin: int, end: int) -> Iterator[int]:
        """Yields the indices in [begin, end), but jumps from each opening bracket to the index
        after its closing bracket."""
        index = begin
        while index < end:
            yield index
            index = self.end_of_bracket(index) if self.text(index) in OPENING else index + 1

    def backwards(self, index: int) -> Iterator[int]:
        """Yields the indices from `index` down to 0, but jumps from each closing bracket to the
        index before its opening bracket.

        So the indices include the opening brackets around token `index`.
        """
        while index >= 0:
            yield index
            index = min(index, self.match.get(index, index)) - 1

    # ---- Brackets

    def _match_brackets(self):
        stack = []
        for index, token in enumerate(self.tokens):
            if token.kind != "punctuator":
                continue
            if token.text in OPENING:
                stack.append(index)
            elif token.text in CLOSING:
                # An unbalanced bracket gets no partner.  clang will report the error.
                if stack and self.text(stack[-1]) == CLOSING[token.text]:
                    opening = stack.pop()
                    self.match[opening] = index
                    self.match[index] = opening

    def end_of_bracket(self, index: int) -> int:
        """Returns the index after the closing bracket for the opening bracket at `index`."""
        return self.match.get(index, len(self.tokens) - 1) + 1

    def end_of_template_arguments(self, index: int) -> int | None:
        """Returns the index after the > that closes the < at `index`.

        Returns None if the < is an operator.  Also returns None if one token >> closes this < and
        an earlier <, because the end is then inside of the token.
        """
        steps = {"<": 1, ">": -1, ">>": -2}
        depth = 0
        for position in self.forwards(index, len(self.tokens)):
            text = self.text(position)
            if text in ("{", ";") or text in CLOSING:
                return None
            depth += steps.get(text, 0)
            if text in (">", ">>") and depth <= 0:
                return position + 1 if depth == 0 else None
        return None

    def end_of_qualifying_arguments(self, index: int) -> int | None:
        """Returns the index after the template arguments that begin with the < at `index`.

        Returns None if the < is an operator, or if the token after the arguments is not
        (, { or ::.
        """
        after = self.end_of_template_arguments(index)
        return after if after is not None and self.text(after) in ("(", "{", "::") else None

    def end_of_statement(self, index: int) -> int:
        """Returns the index of the ; that ends the statement with token `index`."""
        end = len(self.tokens)
        ends = (i for i in self.forwards(index, end) if self.text(i) in (";", *CLOSING))
        return next(ends, end)

    # ---- Expressions

    def end_of_operand(self, index: int) -> int:
        """Returns the index after the call's argument, or operand of ?:, that begins at `index`."""
        nested = 0
        while index < len(self.tokens):
            text = self.text(index)
            if self.kind(index) != "punctuator":
                index += 1
            elif text in OPENING:
                index = self.end_of_bracket(index)
            elif text == "<" and self.is_identifier(index - 1):
                index = self.end_of_qualifying_arguments(index) or index + 1
            elif text == "?":
                nested += 1
                index += 1
            elif text == ":" and nested:
                nested -= 1
                index += 1
            elif text in (",", ";", ":") or text in CLOSING:
                return index
            else:
                index += 1
        return index

    # ---- Scopes

    def _find_scopes(self):
        stack = [Scope("namespace", -1, None)]
        for index, token in enumerate(self.tokens):
            self.scope[index] = stack[-1]
            if token.kind != "punctuator":
                continue
            if token.text == "{":
                kind, name = self._classify(index, stack[-1])
                scope = Scope(kind, index, stack[-1], name)
                self.scopes.append(scope)
                stack.append(scope)
            elif token.text == "}" and len(stack) > 1:
                stack.pop()
                self.scope[index] = stack[-1]

    def _head(self, brace):
        """Returns the indices of the tokens between the previous statement and a {.

        Of a pair of brackets and its contents, the list has only the opening bracket.  The list
        also lacks a leading `template <...>`.
        """
        head = []
        index = self.previous(brace)
        while index >= 0:
            text = self.text(index)
            if text in (";", "{", "}"):
                break
            if text in CLOSING and index in self.match:
                index = self.match[index]
            head.append(index)
            index = self.previous(index)
        head.reverse()
        return self._without_template_heads(head)

    def _without_template_heads(self, head):
        while head and self.text(head[0]) == "template":
            if len(head) < 2 or self.text(head[1]) != "<":
                return head[1:]
            end = self.end_of_template_arguments(head[1])
            if end is None:
                return head
            head = [index for index in head if index >= end]
        return head

    def _classify(self, brace, outer):
        """Returns the kind and the name of the Scope that a { begins, from the text before the {.

        Args:
          outer: the scope around the {.
        """
        head = self._head(brace)
        texts = [self.text(index) for index in head]
        before = self.text(self.previous(brace))
        if before in ("=", ",", "(", "[", "return") and texts:
            return "initializer", ""
        if "namespace" in texts or texts[:1] == ["extern"]:
            if "(" not in texts:
                return "namespace", ""
        if "enum" in texts and "(" not in texts:
            return "enum", ""
        name = self._class_name(head)
        if name is not None:
            return "class", name
        if outer.kind in ("namespace", "class"):
            return ("function" if "(" in texts else "initializer"), ""
        if before == ")" or before in _BLOCK_INTRODUCERS:
            return "function", ""
        if before in ("const", "mutable") or before in (";", "{", "}", ":"):
            return "function", ""
        if "->" in texts and "[" in texts:
            return "function", ""
        return "initializer", ""

    def _class_name(self, head):
        """Returns the name of the class that a head declares, "" for a class without a name.

        Returns None if the head does not declare a class.
        """
        for number, index in enumerate(head):
            text = self.text(index)
            if text not in CLASS_KEYS:
                continue
            name = ""
            rest = head[number + 1 :]
            skip = -1
            for position in rest:
                if position < skip:
                    continue
                text = self.text(position)
                if text in ("__attribute__", "alignas", "["):
                    following = position + (text != "[")
                    skip = self.end_of_bracket(following)
                elif text == "(":
                    return None  # a function that returns `struct Name`
                elif text == ":":
                    break
                elif self.is_identifier(position) and not name:
                    name = text
            return name
        return None


@dataclasses.dataclass(eq=False)
class Scope:
    """The text in a pair of braces, or the whole text."""

    # "namespace", "class", "enum", "initializer", or "function" for a function's body and for each
    # block in it.
    kind: str
    brace: int  # the index of the {, -1 for the whole text
    outer: Scope | None  # the innermost scope around this one, None for the whole text
    name: str = ""  # the name of a class

    @property
    def in_function(self) -> bool:
        """Whether the scope is a function's body, or in such a body and in no class there."""
        scope = self
        while scope is not None:
            if scope.kind == "function":
                return True
            if scope.kind == "class":
                return False
            scope = scope.outer
        return False
