"""Makes the results of ?: values where clang cannot find their common type.

In MSL the results may be objects of a class in two address spaces.  In C++ for
OpenCL these are two types.  The tokens do not show the types of the results, so
the rewriter alone cannot know which conditional operators need the change.
clang refuses the others where they stand, and every refusal has a place.  The
repair reads this place alone, not clang's words: they belong to one release.
"""


class Repairs:
    """The repairs made in a `rewriter` so far."""

    def __init__(self, rewriter):
        self._rewriter = rewriter
        self._tried = set()  # numbers of tokens

    def apply(self, unit, main_file, rewritten_map):
        """Repairs the conditional operators that clang refuses; returns whether there are any.

        An operator that clang refuses again has another mistake.
        """
        places = {
            rewritten_map.token_at(found.location.offset)[0]
            for found in unit.diagnostics
            if found.location.file is not None and found.location.file.name == main_file
        }
        repaired = {place for place in places if self._rewriter.is_conditional(place)} - self._tried
        for place in repaired:
            self._rewriter.take_operands_by_value(place)
        self._tried |= repaired
        return bool(repaired)
