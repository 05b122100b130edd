"""The front end's errors: of the program, and of the tools."""


class Refused(Exception):
    """Metal's compiler would refuse the program.

    diagnostics: a list of diagnostics.Diagnostic.
    source_map:  the diagnostics.SourceMap of the program.
    """

    def __init__(self, diagnostics, source_map):
        super().__init__("refused")
        self.diagnostics = diagnostics
        self.source_map = source_map


class ToolError(Exception):
    """A tool that the front end needs is missing or failed."""
