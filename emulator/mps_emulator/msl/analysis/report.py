"""The errors of one parse, with their places in the program."""

from ..diagnostics import Diagnostic, in_metal_words


class Report:
    """Collects errors.

    main_file:  the name of the rewritten text.
    rewritten:  the diagnostics.RewrittenMap.
    source_map: the diagnostics.SourceMap.
    """

    def __init__(self, main_file, rewritten, source_map):
        self._main_file = main_file
        self._rewritten = rewritten
        self._source_map = source_map
        self._reported = {}  # {(place, message): Diagnostic}
        self.errors = []

    def is_of_program(self, location):
        """Whether a place lies in the program, not in the emulator's headers."""
        return location.file is not None and location.file.name == self._main_file

    def token_at(self, offset):
        return self._rewritten.token_at(offset)[0]

    def locate(self, location):
        return self._source_map.locate(*self._rewritten.token_at(location.offset))

    def error(self, cursor, message):
        """Adds an error, once for a place and message; returns its Diagnostic."""
        return self._add(self.locate(cursor.location), message)[0]

    def refuse(self, cursor, message):
        """Adds an error and returns None, which the caller returns as its failure."""
        self.error(cursor, message)

    def _add(self, place, message):
        """Returns (the Diagnostic, whether it is new)."""
        key = (str(place), message)
        is_new = key not in self._reported
        if is_new:
            self._reported[key] = Diagnostic(place, message)
            self.errors.append(self._reported[key])
        return self._reported[key], is_new

    # ---- What clang refuses

    def add_clang_errors(self, diagnostics):
        for found in diagnostics:
            if found.severity >= found.Error or self._is_cplusplus17_only(found):
                self._add_clang_error(found)

    def _is_cplusplus17_only(self, found):
        """Whether a warning names a C++17 feature that is no extension of C++14 either.

        clang reads every program as C++17 and warns of each of its features.
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
            return  # the emulator uses an instance that clang has refused before
        in_program = [
            (self.locate(part.location), part.spelling)
            for part in [found, *found.children]
            if self.is_of_program(part.location)
            and not part.spelling.startswith("in file included from")
        ]
        if not in_program:
            # clang names the place that entered a header only once, and "too many
            # errors" has no place.
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
    """The message of a static assertion, without its condition."""
    if message.startswith("static assertion failed"):
        _, separator, text = message.partition("': ")
        return text if separator and text else "static assertion failed"
    return message
