"""Finds the tokens of types that may be vectors.

The rewriter needs these types because constructors and conversions of vectors have other
meanings in clang than in MSL.
"""

from . import names
from .edits import Edits


class Types:
    """Recognizes types in a program from its tokens alone."""

    def __init__(self, edits: Edits):
        self._tokens = edits.tokens
        self._structure = edits.structure
        self._template_parameters = set()
        self._type_aliases = set()
        self._collect_types()

    def _collect_types(self):
        """Collects the names of types that may be vectors."""
        s = self._structure
        for index, token in enumerate(self._tokens):
            if token.text == "template" and s.text(index + 1) == "<":
                self._collect_template_parameters(index + 1)
            elif token.text == "using" and s.text(index + 2) == "=":
                end = s.end_of_statement(index)
                self._note_alias(s.text(index + 1), index + 3, end)
            elif token.text == "typedef":
                end = s.end_of_statement(index)
                if s.is_identifier(end - 1):
                    self._note_alias(s.text(end - 1), index + 1, end - 1)

    def _collect_template_parameters(self, angle):
        s = self._structure
        end = s.end_of_template_arguments(angle) or angle
        for index in range(angle, end):
            if s.text(index) in ("typename", "class"):
                name = index + 1
                if s.text(name) == "...":
                    name += 1
                if s.is_identifier(name):
                    self._template_parameters.add(s.text(name))

    def _note_alias(self, name, begin, end):
        """Notes that `name` is an alias of the type in tokens [begin, end)."""
        s = self._structure
        if s.text(end - 1) == "&":
            return  # A vector made from the referenced vector would be a copy.
        for index in range(begin, end):
            text = s.text(index)
            if (
                text in names.VECTOR_NAMES
                or text in names.SMALL_FLOATS
                or text in ("vec", "decltype")
                or text in self._template_parameters
                or text in self._type_aliases
            ):
                self._type_aliases.add(name)
                return

    def end_of_type(self, index: int) -> int | None:
        """Returns the index after a type that begins at `index` and may be a vector, or None.

        These types may be vectors: names like float2, vec<...>, template parameters, aliases of
        these types, and `typename ...`.  half and bfloat count as vectors here.
        """
        s = self._structure
        if s.text(s.previous(index)) in (".", "->", "::"):
            return None
        if s.text(index) == "::":
            index += 1
        if s.text(index) == "metal" and s.text(index + 1) == "::":
            index += 2
        text = s.text(index)
        if text == "typename":
            return self._end_of_dependent_name(index + 1)
        if text in names.VECTOR_NAMES or text in names.SMALL_FLOATS:
            return index + 1
        if text == "vec" and s.text(index + 1) == "<":
            return s.end_of_template_arguments(index + 1)
        if text in self._template_parameters or text in self._type_aliases:
            if s.text(index + 1) == "<":
                return s.end_of_template_arguments(index + 1)
            return None if s.text(index + 1) == "::" else index + 1
        return None

    def _end_of_dependent_name(self, index):
        s = self._structure
        while True:
            if s.text(index) == "::":
                index += 1
            if s.text(index) == "template":
                index += 1
            if not s.is_identifier(index):
                return None
            index += 1
            if s.text(index) == "<":
                index = s.end_of_template_arguments(index)
                if index is None:
                    return None
            if s.text(index) != "::":
                return index

    def is_type(self, begin: int, end: int) -> bool:
        """Whether tokens [begin, end) are a type, so that parentheses around them are a cast."""
        after = self.end_of_type(begin)
        if after is not None:
            return all(token.text in ("*", "&", "const") for token in self._tokens[after:end])
        return begin < end and all(
            token.text in names.SCALAR_WORDS
            or token.text in names.ADDRESS_SPACES
            or token.text in ("const", "volatile", "*", "&")
            for token in self._tokens[begin:end]
        )

    def end_of_name(self, index: int) -> int:
        """Returns the index after a name like a::b<c>::d that begins at `index`."""
        s = self._structure
        while True:
            if s.text(index) == "::":
                index += 1
            if not s.is_identifier(index):
                return index
            index += 1
            if s.text(index) == "<":
                index = s.end_of_qualifying_arguments(index) or index
            if s.text(index) != "::":
                return index
