"""Mutants: copies of a file's text in which one operator, number, call or clause is changed."""

import io
import random
import re
import tokenize
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# A binary operator has a space on both sides here, so that templates and pointers do not match.
_SWAPS = {
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " == ": " != ",
    " != ": " == ",
    " + ": " - ",
    " - ": " + ",
    " && ": " || ",
    " || ": " && ",
    " and ": " or ",
    " or ": " and ",
    " not ": " ",
    " += ": " -= ",
    "max(": "min(",
    "min(": "max(",
    "any(": "all(",
    "all(": "any(",
    "true": "false",
    "false": "true",
    "True": "False",
    "False": "True",
    "continue": "break",
    # Whole statements.
    "threadgroup_barrier(mem_flags::mem_threadgroup);": ";",
    "simdgroup_barrier(mem_flags::mem_none);": ";",
}
_SWAP = re.compile("|".join(re.escape(old) for old in sorted(_SWAPS, key=len, reverse=True)))
# What joins the clauses of a condition.
_JOIN = re.compile(r"\s(?:&&|\|\||and|or)\s+")
# The tokens at which _clauses() looks for the end of a clause: brackets, separators, and words such
# as `or`.  Only in Python, a line ends a clause; a clause that goes on in the next line is cut
# there, and then rarely compiles.
_TOKEN = re.compile(r"\s(?:&&|\|\||and|or|if|else|for)\s|[;,?()\[\]{}]|(?<!:):(?!:)|\n")
# An integer that is not part of a name or of a float.
_NUMBER = re.compile(r"(?<![\w.\"'])\d+(?![\w.\"'])")
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*#[^\n]*", re.DOTALL | re.MULTILINE)


class Mutant(NamedTuple):
    """One change of a file.

    Attributes:
      path: the file, relative to the tree.
      line: the number of the changed line, from 1 on.
      old: the text that is replaced.
      new: the text that replaces it.
      text: the whole file with the change.
    """

    path: str
    line: int
    old: str
    new: str
    text: str


def of(path: str, text: str) -> Iterator[Mutant]:
    """Yields the mutants of a file, from its beginning to its end."""
    code = _code_of_python(text) if path.endswith(".py") else _code_of_c(text)
    spans = [(match.span(), _SWAPS[match[0]]) for match in _SWAP.finditer(code)]
    spans += [(match.span(), str(int(match[0]) + 1)) for match in _NUMBER.finditer(code)]
    spans += [(span, "") for span in _clauses(code, path.endswith(".py"))]
    for (begin, end), new in sorted(spans):
        if not _is_name(code, begin, end):
            mutated = text[:begin] + new + text[end:]
            yield Mutant(path, text.count("\n", 0, begin) + 1, text[begin:end], new, mutated)


def shuffled(files: Sequence[tuple[str, str]], seed: int) -> Iterator[Mutant]:
    """Yields one mutant of each file in turn, in a random order that the seed gives.

    Args:
      files: pairs of a path and a text.
    """
    generator = random.Random(seed)
    waiting = []
    for path, text in files:
        mutants = list(of(path, text))
        generator.shuffle(mutants)
        waiting.append(mutants)
    generator.shuffle(waiting)
    while any(waiting):
        for mutants in waiting:
            if mutants:
                yield mutants.pop()


def _clauses(code: str, is_python: bool) -> Iterator[tuple[int, int]]:
    """Yields, for each clause after the first of a condition, where `and` and the clause are."""
    for join in _JOIN.finditer(code):
        depth = 0
        for match in _TOKEN.finditer(code, join.end()):
            token = match[0].strip() or "\n"
            if token in "([{":
                depth += 1
            elif depth == 0 and (token != "\n" or is_python):
                yield join.start(), match.start()
                break
            elif token in ")]}":
                depth -= 1


def _is_name(code: str, begin: int, end: int) -> bool:
    """Returns whether a match is only the end or the beginning of a longer name."""
    before, first, last = code[begin - 1 : begin], code[begin], code[end - 1]
    is_end = first.isalpha() and (before.isalnum() or before == "_")
    after = code[end : end + 1]
    return is_end or (last.isalpha() and (after.isalnum() or after == "_"))


def _blank(text: str, begin: int, end: int) -> str:
    return text[:begin] + re.sub(r"[^\n]", "\0", text[begin:end]) + text[end:]


def _code_of_c(text: str) -> str:
    """Returns the text, in which NUL characters replace comments and directives."""
    for match in _C_COMMENT.finditer(text):
        text = _blank(text, *match.span())
    return text


def _code_of_python(text: str) -> str:
    """Returns the text, in which NUL characters replace comments and strings."""
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    left_out = {tokenize.COMMENT, tokenize.STRING}
    left_out.update(getattr(tokenize, name, -1) for name in ("FSTRING_START", "FSTRING_MIDDLE"))
    found = text
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in left_out:
            (row, column), (last_row, last_column) = token.start, token.end
            found = _blank(found, begins[row - 1] + column, begins[last_row - 1] + last_column)
    return found
