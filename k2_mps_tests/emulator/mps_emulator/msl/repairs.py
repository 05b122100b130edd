"""Programs that Metal accepts and C++ for OpenCL does not, where types matter.

Beside a vector, MSL converts a scalar to the vector's component type, as in
`half4 * 2.0f`; OpenCL does not where the scalar's type has the greater rank.
clang says where that is, and the program is rewritten there.
"""

import re

_GREATER_RANK = re.compile(
    r"scalar operand type has greater rank than the type of the vector "
    r"element\. \((?P<left>.*) and '"
)
# How clang's messages show that a type is a vector's.
_VECTOR = re.compile(r"vector of|vec<|ext_vector_type")


def apply(unit, main_file, text, rewriter, rewritten_map):
    """Repairs what it can in `rewriter`; returns whether there was anything.

    text: the bytes of the program that clang parsed, `main_file`.
    """
    done = set()
    for found in unit.diagnostics:
        match = _GREATER_RANK.match(found.spelling)
        if match is None:
            continue
        ranges = [(r.start.offset, r.end.offset) for r in found.ranges]
        if len(ranges) != 2 or not _is_in(found.location, main_file):
            continue
        vector, scalar = ranges
        if _VECTOR.search(match["left"]) is None:
            scalar, vector = ranges
        # Instances of a template have their errors in the same place.
        if scalar in done:
            continue
        done.add(scalar)
        first, _ = rewritten_map.token_at(scalar[0])
        last, _ = rewritten_map.token_at(scalar[1] - 1)
        other = text[vector[0]:vector[1]].decode(errors="replace")
        rewriter.convert_beside(first, last, " ".join(other.split()))
    return bool(done)


def _is_in(location, main_file):
    return location.file is not None and location.file.name == main_file
