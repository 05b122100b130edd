"""The front end's exceptions, for errors in a program and for errors of a tool."""

from collections.abc import Sequence

from .diagnostics import Diagnostic, SourceMap, render


class Refused(Exception):
    """Metal's compiler refuses the program.

    The exception's text is the diagnostics in the format of Metal's compiler.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic], source_map: SourceMap):
        super().__init__(render(diagnostics, source_map))


class ToolError(Exception):
    """A tool that the front end needs is missing or failed."""


class NoKernelError(Exception):
    """A Metal library has no kernel of the name."""
