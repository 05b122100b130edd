"""Gives member functions the keyword for the address space of their object.

In MSL, the word after the parameters of a member function selects the objects that have
the function:

    nothing, thread   objects in `thread` memory
    device            objects in `device` memory
    constant          objects in `constant` memory
    threadgroup       objects in `threadgroup` memory

C++ for OpenCL has other keywords.  In C++ for OpenCL, a member function without a keyword is for
objects in any memory.  `device` and `constant` have the same keyword.  So of two member functions
that differ only in these two words, the second one becomes a comment.
"""

from . import names
from .edits import Step
from .structure import CLOSING, OPENING


class Methods(Step):
    """Rewrites the member functions of all classes."""

    def run(self) -> None:
        for scope in self._structure.scopes:
            if scope.kind == "class":
                self._rewrite_class(scope)

    def _rewrite_class(self, scope):
        s = self._structure
        self._heads = set()  # the texts of the class's member functions, without their bodies
        index = scope.brace + 1
        end = s.match.get(scope.brace, len(self._tokens))
        while index < end:
            if s.text(index) in ("public", "private", "protected"):
                index += 2
            index = self._read_member(scope, index, end)

    def _read_member(self, scope, begin, end):
        """Reads one member; returns the index of the next member."""
        s = self._structure
        index = begin
        is_static = False
        while index < end:
            text = s.text(index)
            if text == ";":
                return index + 1
            if text == "{":
                return s.end_of_bracket(index)
            if text in ("=", "static_assert"):
                return s.end_of_statement(index) + 1
            if text in ("static", "friend", "typedef"):
                is_static = True
                index += 1
            elif text in ("decltype", "alignas", "__attribute__"):
                index = s.end_of_bracket(index + 1)
            elif text == "[":
                index = s.end_of_bracket(index)
            elif text == "<":
                after = s.end_of_template_arguments(index)
                index = index + 1 if after is None else after
            elif text == "operator":
                parameters = index + 1
                if s.text(parameters) == "(":
                    parameters += 2
                while s.text(parameters) != "(" and parameters < end:
                    parameters += 1
                return self._qualify(scope, begin, index, parameters, is_static)
            elif text == "(":
                return self._qualify(scope, begin, index - 1, index, is_static)
            else:
                index += 1
        return end

    def _end_of_function(self, index):
        """Returns the index of the first token after a member function.

        Args:
          index: the index of the first token after the function's parameters.
        """
        s = self._structure
        while index < len(self._tokens):
            text = s.text(index)
            if text == ";":
                return index + 1
            if text == "{":
                index = s.end_of_bracket(index)
                # The first braces may belong to a member initializer.
                if s.text(index) in (",", "{"):
                    continue
                return index
            if text in OPENING:
                index = s.end_of_bracket(index)
            elif text in CLOSING:
                return index
            else:
                index += 1
        return index

    # ---- Keywords

    def _qualify(self, scope, begin, name, parameters, is_static):
        """Rewrites a member function; returns the index of the first token after the function.

        Args:
          begin: the index of the function's first token.
          name: the index of the first token of the function's name.
          parameters: the index of the ( before the parameters.
          is_static: whether the function has no object, so that it needs no keyword.
        """
        s = self._structure
        after = s.end_of_bracket(parameters)
        end = self._end_of_function(after)
        if is_static:
            return end
        is_constructor = s.joined(name, parameters) == scope.name or s.text(name - 1) == "~"
        words = names.CONSTRUCTOR_SPACES if is_constructor else names.METHOD_SPACES
        has_space = False
        index = after
        while s.text(index) in (*names.METHOD_SPACES, "const", "volatile"):
            if s.text(index) in words:
                has_space = True
                self._edits.claimed.add(index)
                self._edits.replace(index, words[s.text(index)])
            index += 1
        if has_space:
            keyword = " ".join(words.get(s.text(i), s.text(i)) for i in range(after, index))
            head = (s.joined(begin, after), keyword)
            if head in self._heads:
                self._edits.insert_before(begin, "/*")
                self._edits.insert_after(end - 1, "*/")
                return end
            self._heads.add(head)
        # A constructor without a keyword is for objects in any memory, in MSL as in clang.
        if not (has_space or is_constructor):
            self._edits.insert_after(index - 1, " __private")
        return end
