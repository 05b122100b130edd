"""What clang refuses, in Metal's words."""

from ..diagnostics import Diagnostic, in_metal_words


class ClangErrors:
    """Makes clang's errors the program's."""

    def _report_clang_errors(self):
        for found in self._unit.diagnostics:
            is_error = found.severity >= self._cindex.Diagnostic.Error
            if not is_error and not self._is_cplusplus17_only(found):
                continue
            self._report_clang_error(found)

    def _is_cplusplus17_only(self, found):
        """What clang would not accept even as an extension of C++14."""
        if self._language.is_cplusplus17:
            return False
        return (
            found.option == "-Wpre-c++17-compat"
            and not self._is_in_header(found.location)
            and (
                "class template argument deduction" in found.spelling
                or "template parameters declared with" in found.spelling
            )
        )

    def _is_in_header(self, location):
        return location.file is None or location.file.name != self._main_file

    def _report_clang_error(self, found):
        if "__msl_instance" in found.spelling and self.errors:
            return  # our own use of an instance that has been refused
        places = [(found.location, found.spelling)]
        places += [(note.location, note.spelling) for note in found.children]
        in_program = [
            (location, spelling)
            for location, spelling in places
            if not self._is_in_header(location) and not spelling.startswith("in file included from")
        ]
        if not in_program:
            # clang says only once from where our headers were entered, and
            # "too many errors" comes from nowhere.
            if self.errors or found.location.file is None:
                return
            where = f"{found.location.file}:{found.location.line}"
            raise AssertionError(
                f"the emulator's own headers do not compile: {where}: {found.spelling}"
            )
        message = in_metal_words(_without_requirement(found.spelling))
        first = in_program[0][0]
        diagnostic = Diagnostic(self._locate(first.offset), message)
        key = (str(diagnostic.location), message)
        if key in self._reported:
            return
        self._reported.add(key)
        for location, spelling in in_program:
            place = self._locate(location.offset)
            if spelling == found.spelling or str(place) == str(diagnostic.location):
                continue
            if "__msl" in spelling:
                spelling = "required from here"
            diagnostic.add_note(place, in_metal_words(spelling))
        self.errors.append(diagnostic)


def _without_requirement(message):
    """What a static assertion says, without the condition in C++."""
    if message.startswith("static assertion failed"):
        _, separator, text = message.partition("': ")
        return text if separator and text else "static assertion failed"
    return message
