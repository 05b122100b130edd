"""Collects changes of a list of tokens, and writes the changed text."""

from collections.abc import Iterable

from ..diagnostics import Diagnostic, RewrittenMap, SourceMap
from ..lexer import Token
from . import names
from .structure import Structure


class Edits:
    """The changes that the steps of the rewriting make.

    Attributes:
      tokens: the program.
      source_map: the map of the tokens.
      structure: the structure of the tokens.
      errors: the errors that the steps have found.
      claimed: the numbers of the tokens that an earlier step has rewritten.  The last step,
        Words.rename(), does not change these tokens.
      replaced: for each token the text that replaces it, or None.
    """

    def __init__(self, tokens: list[Token], source_map: SourceMap):
        self.tokens = tokens
        self.source_map = source_map
        self.structure = Structure(tokens)
        self.errors: list[Diagnostic] = []
        self.claimed: set[int] = set()
        self.replaced: list[str | None] = [None] * len(tokens)
        self._prefixes = {}  # {index: [text, ...]}
        self._suffixes = {}  # {index: [(text, index of the origin), ...]}

    def error(self, index: int, message: str) -> None:
        """Adds an error at token `index`."""
        location = self.source_map.locate(index)
        self.errors.append(Diagnostic(location, message))

    def replace(self, index: int, text: str) -> None:
        """Replaces a token, which a later step may replace again."""
        self.replaced[index] = text

    def erase(self, begin: int, end: int) -> None:
        """Removes tokens [begin, end)."""
        for index in range(begin, end):
            self.replaced[index] = ""
            self.claimed.add(index)

    def insert_before(self, index: int, text: str) -> None:
        """Inserts text before a token, and before all texts that are already inserted there."""
        self._prefixes.setdefault(index, []).append(text)

    def insert_after(self, index: int, text: str, origin: int | None = None) -> None:
        """Inserts text after a token, and after all texts that are already inserted there.

        Args:
          origin: the token whose place is reported for errors in `text`; by default token `index`.
        """
        origin = index if origin is None else origin
        self._suffixes.setdefault(index, []).append((text, origin))

    def spelling(self, indices: Iterable[int]) -> str:
        """Returns the text of the tokens `indices` with all words renamed, on one line."""
        words = []
        for index in indices:
            text = self.structure.text(index)
            if self.structure.kind(index) == "identifier":
                text = names.renamed(text) or text
            words.append(text)
        return " ".join(words)

    def emit(self, after: dict[int, tuple[str, int]]) -> tuple[str, RewrittenMap]:
        """Returns the changed text and its map.

        Args:
          after: {index: (text, origin)}, more texts to insert as insert_after() does.
        """
        pieces = []
        offsets = []
        origins = []
        length = 0

        def add(text, origin, is_space=False):
            nonlocal length
            if text:
                offsets.append(length)
                # White space begins where the token before it ends.
                origins.append((origin, is_space and origin > 0))
                pieces.append(text)
                # libclang's offsets count bytes, not characters.
                length += len(text.encode(errors="surrogateescape"))

        for index, token in enumerate(self.tokens):
            add(token.space, index, is_space=True)
            for prefix in reversed(self._prefixes.get(index, ())):
                add(prefix, index)
            replaced = self.replaced[index]
            add(token.text if replaced is None else replaced, index)
            for suffix, origin in self._suffixes.get(index, ()):
                add(suffix, origin)
            if index in after:
                add(*after[index])
        add("\n", max(len(self.tokens) - 1, 0))
        return "".join(pieces), RewrittenMap(offsets, origins)


class Step:
    """One step of the rewriting."""

    def __init__(self, edits: Edits):
        self._edits = edits
        self._tokens = edits.tokens
        self._structure = edits.structure
