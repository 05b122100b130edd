"""The front end's errors: of the program, and of the tools."""

from .diagnostics import render


class Refused(Exception):
    """Metal's compiler would refuse the program; the text is what the compiler prints.

    diagnostics: a list of diagnostics.Diagnostic.
    source_map:  the diagnostics.SourceMap of the program.
    """

    def __init__(self, diagnostics, source_map):
        super().__init__(render(diagnostics, source_map))


class ToolError(Exception):
    """A tool that the front end needs is missing or failed."""
