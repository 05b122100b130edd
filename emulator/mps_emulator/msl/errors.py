"""The front end's exceptions, for errors in a program and for errors of a tool."""

from .diagnostics import render


class Refused(Exception):
    """Metal's compiler refuses the program.

    The exception's text is the diagnostics in the format of Metal's compiler.

    diagnostics: a list of diagnostics.Diagnostic.
    source_map:  the diagnostics.SourceMap of the program.
    """

    def __init__(self, diagnostics, source_map):
        super().__init__(render(diagnostics, source_map))


class ToolError(Exception):
    """A tool that the front end needs is missing or failed."""


class NoKernelError(Exception):
    """A Metal library has no kernel of the name."""
