"""Rewrites MSL's own syntax as C++ for OpenCL that clang understands.

The steps work on tokens and need no types.  Line breaks stay, so that clang's line
numbers are the program's.  The steps:

``words``                  refuses words that MSL lacks, renames others;
``attributes``             brings attributes in [[ ]] into clang's AST;
``instantiations``         brings instances of kernel templates into the AST;
``methods``                gives each member function an address space, `thread`
                           by default;
``threadgroup_variables``  takes threadgroup variables from the executor;
``vectors``                turns constructors and conversions into calls of
                           functions in include/implementation/prelude.h.
"""

from .attributes import Attributes
from .edits import Edits
from .instantiations import Instantiations
from .methods import Methods
from .threadgroup_variables import ThreadgroupVariables
from .types import Types
from .vectors import Vectors
from .words import Words


class Rewriter:
    """Rewrites one list of tokens.

    The constructor runs all steps.  `errors` holds their refusals; the analysis
    and the code generation read `instantiations`.
    """

    def __init__(self, tokens, source_map):
        self._edits = edits = Edits(tokens, source_map)
        types = Types(edits)
        words = Words(edits)
        instantiations = Instantiations(edits)
        words.replace_pragmas()
        words.refuse()
        Attributes(edits).run()
        instantiations.run()
        Methods(edits).run()
        ThreadgroupVariables(edits).run()
        Vectors(edits, types).run()
        words.rename()
        self.errors = edits.errors
        self._instantiations = instantiations.found

    @property
    def instantiations(self):
        return list(self._instantiations.values())

    def emit(self, behind_instantiations=None):
        """Returns (text, RewrittenMap).

        behind_instantiations: the text behind each explicit instantiation, by
            number; by default an assertion that names the function.
        """
        behind = {}
        for index, instantiation in self._instantiations.items():
            if behind_instantiations is None:
                text = instantiation.assertion
            else:
                text = behind_instantiations[instantiation.number]
            behind[index] = (text, instantiation.token)
        return self._edits.emit(behind)

    def is_constant(self, name):
        """Whether the declaration of a variable, token `name`, says `constant`.

        The variable itself must be constant, not its pointee.
        """
        s = self._edits.structure
        stops = ("constant", "*", "&", "&&", ";", "{", "}")
        texts = map(s.text, s.backwards(name - 1))
        return next((text for text in texts if text in stops), "") == "constant"

    # ---- The repair after clang's parse

    def is_conditional(self, index):
        """Whether a token is the ? of a conditional operator."""
        return self._edits.structure.text(index) == "?"

    def take_operands_by_value(self, question):
        """Makes both results of a conditional operator, token `question`, values."""
        s = self._edits.structure
        begin = question + 1
        for _ in range(2):
            end = s.end_of_operand(begin)
            self._edits.insert_before(begin, "::__msl::value(")
            self._edits.insert_after(end - 1, ")")
            begin = end + 1

    # ---- The calls that suspend

    def mark_call(self, first, last, is_void):
        """Announces the call in tokens [first, last] to the executor."""
        token = self._edits.tokens[first]
        column = self._edits.source_map.locate(first).column
        enter = f"::__msl::target::enter_call({token.line}ul << 32 | {column})"
        if is_void:
            self._edits.insert_before(first, f"({enter}, ")
            self._edits.insert_after(last, ", ::__msl::target::leave_call())")
        else:
            self._edits.insert_before(first, f"::__msl::target::leave_call({enter}, ")
            self._edits.insert_after(last, ")")
