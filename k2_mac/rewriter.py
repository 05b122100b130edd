"""Makes changes in the syntax tree of a program, and the same changes in its text, for rules.py.

A changed node keeps the line and the column of the node that it replaces.
"""

import ast
import collections
from typing import NamedTuple

from .syntax import aliases, all_names, dotted


class Edit(NamedTuple):
    """Replaces a part of the text, given by lines and columns as in the syntax tree."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def edited(source: str, edits: list[Edit]) -> str:
    """Makes the edits; ignores an edit inside another edit."""
    content = source.encode()
    starts = [0]
    # bytes.splitlines() splits at the same line ends as Python's parser; str.splitlines() would
    # split at other characters, too.
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def byte(position: tuple[int, int]) -> int:
        line, column = position
        return starts[line - 1] + column

    def order(span: tuple[int, int, str]) -> tuple[int, bool, int]:
        # If two edits begin at the same byte, an insertion comes before a replacement, and a
        # longer replacement before a shorter one.
        start, end, _ = span
        return start, end > start, -end

    spans = [(byte(edit.start), byte(edit.end), edit.text) for edit in edits]
    parts, at = [], 0
    for start, end, text in sorted(spans, key=order):
        if start >= at:
            parts += [content[at:start], text.encode()]
            at = end
    return b"".join([*parts, content[at:]]).decode()


class Rewriter(ast.NodeTransformer):
    """The ways to change a program's syntax tree; each of them also notes the edit of the text.

    The first statement that uses k2_mac.gpu gets an import of this module before it.

    Attributes:
      edits: the edits of the text so far.
      kinds: how often each kind of change was made.
      ours: the name that k2_mac.gpu has in the changed program.
    """

    def __init__(self, tree: ast.Module, source: str):
        self.edits: list[Edit] = []
        self.kinds: collections.Counter = collections.Counter()
        self.ours = "_gpu"
        if self.ours in source:
            names = all_names(tree)
            while self.ours in names:
                self.ours += "_"
        self._aliases = aliases(tree)
        self._is_used = False  # whether the changed program names our module

    def name(self, node: ast.AST) -> str:
        """Returns the name of a function of torch or k2 by its module, such as "torch.autocast".

        For other expressions, the result is "".
        """
        first, dot, rest = dotted(node).partition(".")
        whole = self._aliases.get(first)
        return whole + dot + rest if whole else ""

    def function(self, name: str, old: ast.AST) -> ast.Attribute:
        """Returns the expression `_gpu.name`, with the line and columns of another expression."""
        self._is_used = True
        ours = ast.copy_location(ast.Name(self.ours, ast.Load()), old)
        return ast.copy_location(ast.Attribute(ours, name, ast.Load()), old)

    def swap(self, old: ast.AST, name: str, kind: str) -> ast.Attribute:
        """Replaces an expression by `_gpu.name`."""
        self._edit(kind, _start_of(old), _end_of(old), f"{self.ours}.{name}")
        return self.function(name, old)

    def wrap(self, old: ast.AST, name: str, kind: str) -> ast.Call:
        """Replaces an expression by a call of `_gpu.name` with the expression."""
        self._edit(kind, _start_of(old), _start_of(old), f"{self.ours}.{name}(")
        self.edits.append(Edit(_end_of(old), _end_of(old), ")"))
        return ast.copy_location(ast.Call(self.function(name, old), [old], []), old)

    def replace(self, new: ast.AST, old: ast.AST, kind: str) -> ast.AST:
        """Replaces an expression by another, which Python writes as text."""
        for node in ast.walk(new):
            if not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        self._edit(kind, _start_of(old), _end_of(old), ast.unparse(new))
        return new

    def replace_statement(self, new: list[ast.stmt], old: ast.stmt, kind: str) -> list[ast.stmt]:
        """Replaces a statement by simple statements, which get its line and columns."""
        for statement in new:
            for node in ast.walk(statement):
                ast.copy_location(node, old)
        self._edit(kind, _start_of(old), _end_of(old), "; ".join(map(ast.unparse, new)))
        return new

    def _edit(self, kind: str, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        self.kinds[kind] += 1
        self.edits.append(Edit(start, end, text))

    def visit_Module(self, node: ast.Module) -> ast.Module:
        body = []
        is_imported = False
        last_line = 0
        for statement in node.body:
            new = self.visit(statement)
            if self._is_used and not is_imported:
                # Most programs have imported torch before this statement.  So this import does not
                # import torch too early, before the program has set torch's variables.
                body.append(self._import_before(statement, last_line))
                is_imported = True
            body += new if isinstance(new, list) else [new]
            last_line = statement.end_lineno
        node.body = body
        return node

    def _import_before(self, statement: ast.stmt, last_line: int) -> ast.Import:
        """Returns an import of our module, which stands before a statement.

        Args:
          last_line: the line on which the statement before this one ends.
        """
        decorators = getattr(statement, "decorator_list", ())
        line = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        ours = ast.copy_location(ast.Import([ast.alias("k2_mac.gpu", self.ours)]), statement)
        ours.lineno = ours.end_lineno = line
        ast.copy_location(ours.names[0], ours)
        at, end = (line, 0), "\n"
        if line == last_line:  # as in `import torch; torch.cuda.synchronize()`
            at, end = _start_of(statement), "; "
        self.edits.append(Edit(at, at, ast.unparse(ours) + end))
        return ours

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        # Before Python 3.12, the parser does not give the positions of expressions in f-strings.
        before = len(self.edits)
        self.generic_visit(node)
        if self.edits[before:]:
            self.edits[before:] = [Edit(_start_of(node), _end_of(node), ast.unparse(node))]
        return node


def _start_of(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end_of(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset
