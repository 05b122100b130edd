"""Errors in the format of Metal's compiler, with places in the original text."""

import bisect
import dataclasses
import re
import typing

from . import lexer

# Words of clang's messages, and their names in MSL.
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


def in_metal_words(message):
    """A message of clang with the names of MSL."""
    for pattern, replacement in _VOCABULARY:
        message = pattern.sub(replacement, message)
    return message


class Location(typing.NamedTuple):
    """A place in the original text; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self):
        return f"{self.file}:{self.line}:{self.column}"


@dataclasses.dataclass
class Diagnostic:
    """One error with its notes."""

    location: Location
    message: str
    severity: str = "error"
    notes: list["Diagnostic"] = dataclasses.field(default_factory=list)

    def add_note(self, location, message):
        self.notes.append(Diagnostic(location, message, "note"))


class SourceMap:
    """Finds the original place of a token.

    The preprocessor keeps lines; the original texts give the columns.

    files:  the known original texts, {name: text}.
    """

    def __init__(self, tokens, files):
        self._tokens = tokens
        self._texts = files
        self._columns = {}
        self._by_line = {}
        for index, token in enumerate(tokens):
            if token.kind != "directive":
                key = (token.file, token.line)
                self._by_line.setdefault(key, []).append(index)

    def text_line(self, location):
        """The original line, or None."""
        text = self._texts.get(location.file)
        if text is None:
            return None
        lines = text.split("\n")
        if not 1 <= location.line <= len(lines):
            return None
        return lines[location.line - 1]

    def locate(self, index, at_end=False):
        """The Location of token number `index`, or of its end."""
        token = self._tokens[index]
        if token.kind == "directive":
            return Location(token.file, token.line, 1)
        column = self._column(index) + (len(token.text) if at_end else 0)
        return Location(token.file, token.line, column)

    def _column(self, index):
        token = self._tokens[index]
        original = self._original_line(token.file, token.line)
        # The n-th token of this spelling in the preprocessed line stands for
        # the n-th in the original line.  A token that came out of a macro gets
        # the line's first column.
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
    """Maps a place in the rewritten text, an offset in bytes, to a token.

    offsets: ascending.
    origins: for each offset (number of the token that begins there, whether the
             white space before this token begins there).
    """

    def __init__(self, offsets, origins):
        self._offsets = offsets
        self._origins = origins

    def shifted(self, by):
        """The map of the same text after a prefix of `by` bytes."""
        offsets = [offset + by for offset in self._offsets]
        return RewrittenMap(offsets, self._origins)

    def token_at(self, offset):
        """(number of a token, whether the place is its end)."""
        position = max(bisect.bisect_right(self._offsets, offset) - 1, 0)
        token, is_space = self._origins[position]
        if is_space and self._offsets[position] == offset:
            return token - 1, True
        return token, False


def render(diagnostics, source_map):
    """The text that the compiler prints; it ends with a line break."""
    lines = []
    errors = 0
    for diagnostic in diagnostics:
        errors += diagnostic.severity == "error"
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
