"""Rewrites code that Metal accepts and C++ for OpenCL refuses because of its types.

clang's errors give the places.  MSL has these rules, C++ for OpenCL does not:

- A scalar operand beside a vector is converted to the vector's component type,
  as in `half4 * 2.0f`.  OpenCL refuses a scalar type of the greater rank.
- The results of ?: may be objects of a class in two address spaces.
- A list in braces may be shorter than the vector that it initialises, and may
  be an argument for a parameter that is a vector.
- A `thread const T &` may refer to a temporary, which is in `thread` memory.
- An object that converts to a number may be added to a pointer.
"""

import re

from .rewriting import names

_QUALIFIER = re.compile(r"\b(const|volatile|__\w+)\b ?")
_LIST_FOR_A_VECTOR = re.compile(r"cannot convert initializer list argument to '.*vec<\w+, \d>")
# A note of clang on a candidate whose parameter cannot refer to a temporary.
_TEMPORARY = re.compile(
    r"in default address space to object in address space '__private'"
    r"|make '(const )?__private .*' equal "
    r"|could not match '(const )?__private "
)
# Parts of clang's messages that show a vector type.
_VECTOR = re.compile(r"vector of|vec<|ext_vector_type")


class Repairs:
    """The repairs made in a `rewriter` so far."""

    def __init__(self, rewriter):
        self._rewriter = rewriter
        self._tried = set()  # {(number of a token, repair)}

    def apply(self, unit, main_file, text, rewritten_map):
        """Repairs the errors that it can; returns whether it repaired any.

        text: the program that clang parsed as `main_file`, in bytes.
        """
        repaired = set()
        for found in unit.diagnostics:
            location = found.location
            if location.file is None or location.file.name != main_file:
                continue
            error = _Error(found, text, rewritten_map)
            # All instances of a template report their errors in the same place.
            if error.token not in repaired and self._repair(error):
                repaired.add(error.token)
        return bool(repaired)

    def _repair(self, error):
        for pattern, repair in self._REPAIRS:
            match = pattern.match(error.message)
            if match is None:
                continue
            # If the error is back after a repair, the repair does not help.
            place = (error.token, repair)
            if place not in self._tried and repair(self, error, match):
                self._tried.add(place)
                return True
        return False

    def _convert_scalar(self, error, match):
        if len(error.ranges) != 2:
            return False
        vector, scalar = error.ranges
        if _VECTOR.search(match["left"]) is None:
            scalar, vector = error.ranges
        self._rewriter.convert_beside(*error.tokens(scalar), error.spelling(vector))
        return True

    def _take_by_value(self, error, match):
        groups = match.groupdict()
        if groups:
            left, right = (
                _unqualified(groups[side + "_alias_of"] or groups[side])
                for side in ("left", "right")
            )
            if left != right:
                return False
        self._rewriter.take_operands_by_value(error.token)
        return True

    def _fill_list(self, error, match):
        missing = int(match["wanted"]) - int(match["given"])
        self._rewriter.fill_list(error.token, missing)
        return True

    def _make_vectors(self, error, match):
        return error.has_note(_LIST_FOR_A_VECTOR) and (
            self._rewriter.make_vectors_of_lists(error.token)
        )

    def _pass_arguments(self, error, match):
        return error.has_note(_TEMPORARY) and (self._rewriter.pass_temporaries(error.token))

    def _pass_operands(self, error, match):
        if not error.has_note(_TEMPORARY):
            return False
        return any(
            [self._rewriter.pass_temporary(*error.tokens(operand)) for operand in error.ranges]
        )

    def _convert_argument(self, error, match):
        if len(error.ranges) != 1:
            return False
        self._rewriter.convert_argument(*error.tokens(error.ranges[0]))
        return True

    def _add_to_pointer(self, error, match):
        if len(error.ranges) != 2 or (_unqualified(match["right"]) in names.SCALAR_WORDS):
            return False
        self._rewriter.add_as_number(*error.tokens(error.ranges[1]))
        return True

    _REPAIRS = (
        (
            re.compile(
                r"scalar operand type has greater rank than the type of the "
                r"vector element\. \((?P<left>.*) and '"
            ),
            _convert_scalar,
        ),
        (re.compile(r"conditional expression is ambiguous; "), _take_by_value),
        (
            re.compile(
                r"incompatible operand types \('(?P<left>[^']*)'"
                r"( \(aka '(?P<left_alias_of>[^']*)'\))? and "
                r"'(?P<right>[^']*)'( \(aka '(?P<right_alias_of>[^']*)'\))?"
            ),
            _take_by_value,
        ),
        (
            re.compile(
                r"too few elements in vector initialization "
                r"\(expected (?P<wanted>\d+) elements, have (?P<given>\d+)\)"
            ),
            _fill_list,
        ),
        (re.compile(r"no matching (member )?function for call to "), _make_vectors),
        (re.compile(r"no matching (member )?function for call to "), _pass_arguments),
        (re.compile(r"invalid operands to binary expression "), _pass_operands),
        (
            re.compile(
                r"reference of type 'const __private .*' cannot bind to a "
                r"temporary object because of address space mismatch"
                r"|binding reference of type 'const __private .*' to value of "
                r"type '.*' changes address space"
            ),
            _convert_argument,
        ),
        (
            re.compile(
                r"invalid operands to binary expression \('[^']*\*[^']*'.* and "
                r"'(?P<right>[^'*]*)'"
            ),
            _add_to_pointer,
        ),
    )


class _Error:
    """An error of clang.

    token:  the number of the token at its place.
    ranges: the ranges of the operands that it names, in bytes.
    """

    def __init__(self, found, text, rewritten_map):
        self.message = found.spelling
        self.token, _ = rewritten_map.token_at(found.location.offset)
        self.ranges = [(r.start.offset, r.end.offset) for r in found.ranges]
        self._notes = [note.spelling for note in found.children]
        self._text = text
        self._map = rewritten_map

    def has_note(self, pattern):
        return any(pattern.search(note) for note in self._notes)

    def tokens(self, place):
        """The (first, last) token of a range."""
        first, _ = self._map.token_at(place[0])
        last, _ = self._map.token_at(place[1] - 1)
        return first, last

    def spelling(self, place):
        """The text of a range, on one line."""
        text = self._text[place[0] : place[1]].decode(errors="replace")
        return " ".join(text.split())


def _unqualified(type_name):
    return _QUALIFIER.sub("", type_name)
