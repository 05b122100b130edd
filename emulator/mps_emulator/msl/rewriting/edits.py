"""Changes to a list of tokens, and the resulting text."""

from ..diagnostics import Diagnostic, RewrittenMap
from . import names
from .structure import Structure


class Edits:
    """The changes that the steps of the rewriting make.

    tokens:     a list of lexer.Token.
    source_map: a diagnostics.SourceMap of them.
    structure:  the Structure of them.
    errors:     the refusals, a list of diagnostics.Diagnostic.
    claimed:    numbers of the tokens that the last step, Words.rename(), must
                leave alone.
    """

    def __init__(self, tokens, source_map):
        self.tokens = tokens
        self.source_map = source_map
        self.structure = Structure(tokens)
        self.errors = []
        self.claimed = set()
        self.replaced = [None] * len(tokens)
        self._prefixes = {}  # {index: [text, ...]}
        self._suffixes = {}  # {index: [(text, index of the origin), ...]}

    def error(self, index, message):
        """Refuses the program because of token `index`."""
        location = self.source_map.locate(index)
        self.errors.append(Diagnostic(location, message))

    def replace(self, index, text):
        self.replaced[index] = text

    def erase(self, begin, end):
        """Removes tokens [begin, end)."""
        for index in range(begin, end):
            self.replaced[index] = ""
            self.claimed.add(index)

    def insert_before(self, index, text):
        """Inserts text before a token, and before the texts inserted earlier."""
        self._prefixes.setdefault(index, []).append(text)

    def insert_after(self, index, text, origin=None):
        """Inserts text after a token, and after the texts inserted earlier.

        origin: the token whose place errors in `text` get.
        """
        origin = index if origin is None else origin
        self._suffixes.setdefault(index, []).append((text, origin))

    def spelling(self, indices):
        """The rewritten text of tokens, on one line."""
        words = []
        for index in indices:
            text = self.structure.text(index)
            if self.structure.kind(index) == "identifier":
                text = names.renamed(text) or text
            words.append(text)
        return " ".join(words)

    def emit(self, behind):
        """Returns (text, RewrittenMap).

        behind: {token: (text, token whose place errors in it get)}, put after
            all other text at a token.
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
                # libclang counts bytes.
                length += len(text.encode(errors="surrogateescape"))

        for index, token in enumerate(self.tokens):
            add(token.space, index, is_space=True)
            for prefix in reversed(self._prefixes.get(index, ())):
                add(prefix, index)
            replaced = self.replaced[index]
            add(token.text if replaced is None else replaced, index)
            for suffix, origin in self._suffixes.get(index, ()):
                add(suffix, origin)
            if index in behind:
                add(*behind[index])
        add("\n", max(len(self.tokens) - 1, 0))
        return "".join(pieces), RewrittenMap(offsets, origins)


class Step:
    """One step of the rewriting."""

    def __init__(self, edits):
        self._edits = edits
        self._tokens = edits.tokens
        self._structure = edits.structure
