"""Writes errors in the format of Metal's compiler, with places in the original text."""

import bisect
import dataclasses
import re
import typing
from collections.abc import Sequence

from . import lexer

# (pattern of words in clang's messages, replacement in words of MSL).
_VOCABULARY = (
    (re.compile(r"__global_device\b ?"), "device "),
    (re.compile(r"\bconst __global\b ?"), "constant "),
    (re.compile(r"__global\b ?"), "constant "),
    (re.compile(r"__local\b ?"), "threadgroup "),
    (re.compile(r"([*&]) ?__private\b ?"), r"\1"),
    (re.compile(r"__private\b ?"), "thread "),
    (re.compile(r"__generic\b ?"), ""),
    (re.compile(r"__constant\b ?"), "constant "),
    (re.compile(r"__msl_user_(\w+)"), r"\1"),
    (re.compile(r"__msl_(atomic_\w+)"), r"\1"),
    (re.compile(r"__msl::vec<"), "vec<"),
    (re.compile(r"__msl::bool_vector<(\d)>"), r"bool\1"),
    (re.compile(r"\b_atomic<"), "atomic<"),
    (re.compile(r"(device|constant|threadgroup|thread) '"), r"\1'"),
)


def in_metal_words(message: str) -> str:
    """Replaces the names that clang uses in a message with the names of MSL."""
    for pattern, replacement in _VOCABULARY:
        message = pattern.sub(replacement, message)
    return message


class Location(typing.NamedTuple):
    """A place in the original text.  Lines and columns are counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclasses.dataclass
class Diagnostic:
    """One error with its notes."""

    location: Location
    message: str
    severity: str = "error"
    notes: list["Diagnostic"] = dataclasses.field(default_factory=list)

    def add_note(self, location: Location, message: str) -> None:
        self.notes.append(Diagnostic(location, message, "note"))


class SourceMap:
    """Finds the place of a token in the original text.

    The preprocessor reports the original line of a token, but not the column.  So the
    column comes from a search in the original line.

    Args:
      tokens: the preprocessed program.
      files: {file name: original text}, for the files that could be read.
    """

    def __init__(self, tokens: Sequence[lexer.Token], files: dict[str, str]):
        self._tokens = tokens
        self._texts = files
        self._columns = {}
        self._by_line = {}
        for index, token in enumerate(tokens):
            if token.kind != "directive":
                key = (token.file, token.line)
                self._by_line.setdefault(key, []).append(index)

    def text_line(self, location: Location) -> str | None:
        """Returns the original text of a location's line, or None if the file is not known."""
        text = self._texts.get(location.file)
        if text is None:
            return None
        lines = text.split("\n")
        if not 1 <= location.line <= len(lines):
            return None
        return lines[location.line - 1]

    def locate(self, index: int, at_end: bool = False) -> Location:
        """Returns the place where token `index` begins, or where it ends if `at_end` is True."""
        token = self._tokens[index]
        if token.kind == "directive":
            return Location(token.file, token.line, 1)
        column = self._column(index) + (len(token.text) if at_end else 0)
        return Location(token.file, token.line, column)

    def _column(self, index):
        token = self._tokens[index]
        original = self._original_line(token.file, token.line)
        # A line can have several tokens with the same text.  The n-th such token of the
        # preprocessed line is assumed to be the n-th such token of the original line.  If the
        # original line has fewer than n such tokens, the token comes from a macro.  Then this
        # method returns the column of the first token in the line.
        same = [
            i for i in self._by_line[(token.file, token.line)] if self._tokens[i].text == token.text
        ]
        columns = [column for column, text in original if text == token.text]
        number = same.index(index)
        if number < len(columns):
            return columns[number]
        return original[0][0] if original else 1

    def _original_line(self, file, line):
        if file not in self._columns:
            text = self._texts.get(file)
            self._columns[file] = [] if text is None else lexer.columns_of_lines(text)
        lines = self._columns[file]
        return lines[line - 1] if 1 <= line <= len(lines) else []


class RewrittenMap:
    """Maps offsets in the rewritten text, in bytes, to tokens of the program.

    The text is a sequence of pieces: tokens, and the white space before a token.

    Args:
      offsets: where each piece begins, in ascending order.
      origins: for each piece the number of its token, and whether the piece is the white space
        before this token.
    """

    def __init__(self, offsets: Sequence[int], origins: Sequence[tuple[int, bool]]):
        self._offsets = offsets
        self._origins = origins

    def shifted(self, by: int) -> "RewrittenMap":
        """Returns the map of the text after `by` bytes have been put before the text."""
        offsets = [offset + by for offset in self._offsets]
        return RewrittenMap(offsets, self._origins)

    def token_at(self, offset: int) -> tuple[int, bool]:
        """Returns the number of the token at an offset, and whether the offset is its end."""
        position = max(bisect.bisect_right(self._offsets, offset) - 1, 0)
        token, is_space = self._origins[position]
        if is_space and self._offsets[position] == offset:
            return token - 1, True
        return token, False


def render(diagnostics: Sequence[Diagnostic], source_map: SourceMap) -> str:
    """Returns the text of diagnostics in the format of Metal's compiler, with a final line break.

    Args:
      source_map: has the original lines.
    """
    lines = []
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    for diagnostic in diagnostics:
        for part in [diagnostic] + diagnostic.notes:
            lines.append(f"{part.location}: {part.severity}: {part.message}")
            text = source_map.text_line(part.location)
            if text is not None:
                text = text.rstrip("\r")
                lines.append(text)
                margin = text[: part.location.column - 1]
                lines.append(re.sub(r"\S", " ", margin) + "^")
    if errors:
        lines.append(f"{errors} error{'' if errors == 1 else 's'} generated.")
    return "\n".join(lines) + "\n"
