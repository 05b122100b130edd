"""Collects the errors of a program, with their places in the original text."""

from collections.abc import Iterable

from clang.cindex import Cursor, SourceLocation
from clang.cindex import Diagnostic as ClangDiagnostic

from ..diagnostics import Diagnostic, Location, RewrittenMap, SourceMap, in_metal_words


class Report:
    """The errors of a program.

    Args:
      main_file: the file name of the rewritten text in libclang's locations.
    Attributes:
      errors: the errors, each once.
    """

    def __init__(self, main_file: str, rewritten: RewrittenMap, source_map: SourceMap):
        self._main_file = main_file
        self._rewritten = rewritten
        self._source_map = source_map
        self._reported = {}  # {(place, message): Diagnostic}
        self.errors: list[Diagnostic] = []

    def is_of_program(self, location: SourceLocation) -> bool:
        """Whether a location of libclang is in the program, not in the emulator's headers."""
        return location.file is not None and location.file.name == self._main_file

    def token_at(self, offset: int) -> int:
        """Returns the number of the token at an offset in the rewritten text."""
        return self._rewritten.token_at(offset)[0]

    def locate(self, location: SourceLocation) -> Location:
        """Returns the place in the original text of a location of libclang in the program."""
        return self._source_map.locate(*self._rewritten.token_at(location.offset))

    def error(self, cursor: Cursor, message: str) -> Diagnostic:
        """Adds an error at a cursor, unless the same error is already there; returns the error."""
        return self._add(self.locate(cursor.location), message)[0]

    def refuse(self, cursor: Cursor, message: str) -> None:
        """Adds an error and returns None, for callers that return None after an error."""
        self.error(cursor, message)

    def _add(self, place, message):
        """Adds an error; returns the error, and whether it is new."""
        key = (str(place), message)
        is_new = key not in self._reported
        if is_new:
            self._reported[key] = Diagnostic(place, message)
            self.errors.append(self._reported[key])
        return self._reported[key], is_new

    # ---- clang's errors

    def add_clang_errors(self, diagnostics: Iterable[ClangDiagnostic]) -> None:
        """Adds the errors that clang has found."""
        for found in diagnostics:
            if found.severity >= found.Error or self._is_cplusplus17_only(found):
                self._add_clang_error(found)

    def _is_cplusplus17_only(self, found):
        """Whether a warning is about a C++17 feature that Metal's compiler refuses.

        The front end's clang reads every program as C++17, and warns of each feature of C++17.
        Metal's compiler reads C++14, and accepts some of these features as extensions.
        """
        return (
            found.option == "-Wpre-c++17-compat"
            and self.is_of_program(found.location)
            and (
                "class template argument deduction" in found.spelling
                or "template parameters declared with" in found.spelling
            )
        )

    def _add_clang_error(self, found):
        if "__msl_instance" in found.spelling and self.errors:
            # clang has refused an instance of a kernel template already.  This error is in the
            # rewriter's assertion, which names the same instance.
            return
        in_program = [
            (self.locate(part.location), part.spelling)
            for part in [found, *found.children]
            if self.is_of_program(part.location)
            and not part.spelling.startswith("in file included from")
        ]
        if not in_program:
            # If several errors are in a header, clang gives the place in the program only for the
            # first error.  The error "too many errors" has no place.
            if self.errors or found.location.file is None:
                return
            raise AssertionError(
                "the emulator's own headers do not compile: "
                f"{found.location.file}:{found.location.line}: {found.spelling}"
            )
        message = in_metal_words(_without_requirement(found.spelling))
        diagnostic, is_new = self._add(in_program[0][0], message)
        if not is_new:
            return
        for place, spelling in in_program:
            if spelling == found.spelling or str(place) == str(diagnostic.location):
                continue
            if "__msl" in spelling:
                spelling = "required from here"
            diagnostic.add_note(place, in_metal_words(spelling))


def _without_requirement(message):
    """Removes the condition from clang's message for a failed static assertion."""
    if message.startswith("static assertion failed"):
        _, separator, text = message.partition("': ")
        return text if separator and text else "static assertion failed"
    return message
