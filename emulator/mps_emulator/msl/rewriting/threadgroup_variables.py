"""Replaces threadgroup variables with references to memory that the executor allocates."""

from . import names
from .edits import Edits, Step


class ThreadgroupVariables(Step):
    """Rewrites the declarations of threadgroup variables in the bodies of functions."""

    def __init__(self, edits: Edits):
        super().__init__(edits)
        self._slots = 0  # the number of variables so far

    def run(self) -> None:
        s = self._structure
        for index, token in enumerate(self._tokens):
            if (
                token.text == "threadgroup"
                and index not in self._edits.claimed
                and s.scope[index].in_function
                and self._begins_statement(index)
            ):
                self._rewrite(index)

    def _begins_statement(self, index):
        s = self._structure
        before = s.previous(index)
        while s.text(before) in ("static", "const", "volatile"):
            before = s.previous(before)
        if s.text(before) == ")":
            # alignas(16) threadgroup float x;
            opening = s.match.get(before, before)
            if s.text(s.previous(opening)) != "alignas":
                return False
            before = s.previous(s.previous(opening))
        return s.text(before) in ("{", "}", ";", ":") or before < 0

    def _rewrite(self, keyword):
        s = self._structure
        end = self._structure.end_of_statement(keyword)
        name = self._declared_name(keyword + 1, end)
        if name is None:
            return
        begin = keyword
        while begin > 0 and s.text(s.previous(begin)) not in ("{", "}", ";", ":"):
            begin = max(s.previous(begin), 0)
        alignment = self._take_alignment(begin, end)
        for index in range(begin, name):
            if s.text(index) == "static":
                self._edits.erase(index, index + 1)
        self._edits.replace(keyword, "typedef")
        self._edits.claimed.add(keyword)
        specifiers = [
            i for i in range(begin, name) if i != keyword and self._edits.replaced[i] != ""
        ]
        declarators = self._declarators(name, end)
        for number, (first, last) in enumerate(declarators):
            slot = self._slots
            self._slots += 1
            self._take_initializer(first, last)
            variable = s.text(first)
            self._edits.replace(first, f"__msl_type_{slot}")
            self._edits.claimed.add(first)
            if number > 0:
                comma = first - 1
                self._edits.replace(comma, "; typedef " + self._edits.spelling(specifiers) + " ")
            self._edits.insert_after(end, f" MSL_THREADGROUP __msl_type_{slot} &", first)
            self._edits.insert_after(end, names.declared(variable), first)
            # A type that is passed as a template argument loses its alignment.  So the alignment is
            # a separate template argument.
            aligned = alignment or f"alignof(__msl_type_{slot})"
            self._edits.insert_after(
                end,
                f" {names.annotate(f'threadgroup:{slot}')} = "
                f"__msl::target::threadgroup_variable<__msl_type_{slot}, {slot}, ({aligned})>();",
                first,
            )

    def _take_initializer(self, name, end):
        """Removes the initializer of the variable in tokens [name, end), `= ...` or `{...}`.

        Metal's compiler accepts initializers of threadgroup variables, and kernels that run on Macs
        have such initializers.  Metal's documentation does not promise that an initializer writes
        to the memory, so in the emulator an initializer does not write.
        """
        s = self._structure
        begins = (i for i in s.forwards(name, end) if s.text(i) in ("=", "{"))
        self._edits.erase(next(begins, end), end)

    def _declared_name(self, index, end):
        """Returns the index of the first variable's name in a declaration.

        Returns None if the variable is a pointer or a reference.
        """
        s = self._structure
        while index < end:
            text = s.text(index)
            if text in ("*", "&", "&&", "("):
                return None
            if text == "<":
                index = s.end_of_template_arguments(index) or index + 1
                continue
            if text in ("alignas", "decltype", "__attribute__"):
                index = s.end_of_bracket(index + 1)
                continue
            if s.is_identifier(index):
                following = s.text(index + 1)
                if following in ("[", ",", "=", "{", "__attribute__") or index + 1 == end:
                    return index
            index += 1
        return None

    def _take_alignment(self, begin, end):
        """Removes alignas(...) from tokens [begin, end); returns its argument as text, or ""."""
        s = self._structure
        for index in range(begin, end):
            if s.text(index) == "alignas":
                close = s.end_of_bracket(index + 1)
                self._edits.erase(index, close)
                return s.joined(index + 2, close - 1)
        return ""

    def _declarators(self, name, end):
        """Returns the (begin, end) of the tokens of each declarator in a declaration.

        Args:
          name: the index of the first variable's name.
          end: the index of the ; after the declaration.
        """
        s = self._structure
        commas = [i for i in s.forwards(name, end) if s.text(i) == ","]
        return list(zip([name, *(comma + 1 for comma in commas)], [*commas, end]))
