"""Cuts preprocessed MSL text into tokens.

clang's preprocessor has removed the comments and expanded the macros.  The preprocessor's line
markers (``# 12 "file"``) have the original file and line number of the next line.
"""

import dataclasses
import re

_PUNCTUATORS = (
    "<<=", ">>=", "...", "->*",
    "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##",
)  # fmt: skip

_TOKEN = re.compile(
    r"""
    (?P<identifier>[A-Za-z_$][A-Za-z_$0-9]*)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|['.A-Za-z0-9_])*)
  | (?P<string>(?:u8|u|U|L)?"(?:\\.|[^"\\\n])*")
  | (?P<character>(?:u8|u|U|L)?'(?:\\.|[^'\\\n])*')
  | (?P<punctuator>{}|.)
    """.format("|".join(re.escape(p) for p in _PUNCTUATORS)),
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\f\v\r\n]*")
_MARKER = re.compile(r'#(?:line)?[ \t]+(\d+)(?:[ \t]+"((?:\\.|[^"\\])*)")?')


@dataclasses.dataclass(slots=True)
class Token:
    """One token."""

    # "identifier", "number", "string", "character", "punctuator", or "directive" for a whole line
    # that begins with #.
    kind: str
    text: str
    space: str  # the white space before the token, including line breaks
    # The token's place in the text before preprocessing.
    file: str
    line: int


def tokenize(text: str, file: str = "") -> list[Token]:
    """Returns the tokens of a preprocessed text.

    Args:
      file: the file name of the lines before the first line marker.
    """
    tokens = []
    position = 0
    line = 1
    at_line_start = True
    while True:
        space = _SPACE.match(text, position).group()
        position += len(space)
        breaks = space.count("\n")
        line += breaks
        at_line_start = at_line_start or breaks > 0
        if position == len(text):
            return tokens
        if at_line_start and text[position] == "#":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            directive = text[position:end]
            tokens.append(Token("directive", directive, space, file, line))
            marker = _MARKER.match(directive)
            if marker is not None:
                # The number in a marker is the number of the line after the marker.
                line = int(marker[1]) - 1
                if marker[2] is not None:
                    file = marker[2].replace('\\"', '"').replace("\\\\", "\\")
            position = end
            continue
        match = _TOKEN.match(text, position)
        tokens.append(Token(match.lastgroup, match.group(), space, file, line))
        position = match.end()
        at_line_start = False


def columns_of_lines(text: str) -> list[list[tuple[int, str]]]:
    """Returns the column and the text of each token in each line of a text before preprocessing.

    The function treats words of comments as tokens, and a line continued with \\ as several
    lines.  This does no harm, because callers look only for tokens of the preprocessed text.
    """
    return [
        [
            (match.start() + 1, match.group())
            for match in _TOKEN.finditer(line)
            if not match.group().isspace()
        ]
        for line in text.split("\n")
    ]
