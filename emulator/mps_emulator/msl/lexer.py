"""Tokens of preprocessed MSL text.

clang's preprocessor has removed the comments and expanded the macros.  Line
markers (``# 12 "file"``) give the original place of each line.
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
    """One token.

    kind:    "identifier", "number", "string", "character", "punctuator", or
             "directive" for a whole line that begins with #.
    space:   the white space before the token, line breaks included.
    file, line:  the token's place before preprocessing.
    """

    kind: str
    text: str
    space: str
    file: str
    line: int


def tokenize(text, file=""):
    """Returns the tokens of `text` as a list."""
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
                # The marker gives the number of the line after it.
                line = int(marker[1]) - 1
                if marker[2] is not None:
                    file = marker[2].replace('\\"', '"').replace("\\\\", "\\")
            position = end
            continue
        match = _TOKEN.match(text, position)
        tokens.append(Token(match.lastgroup, match.group(), space, file, line))
        position = match.end()
        at_line_start = False


def columns_of_lines(text):
    """Maps each line of unpreprocessed `text` to [(column, spelling), ...].

    Words of comments count as tokens, and a continued line as several lines.
    Callers look up only the columns of known spellings.
    """
    return [
        [
            (match.start() + 1, match.group())
            for match in _TOKEN.finditer(line)
            if not match.group().isspace()
        ]
        for line in text.split("\n")
    ]
