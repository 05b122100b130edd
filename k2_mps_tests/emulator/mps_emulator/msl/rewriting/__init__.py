"""Rewrites MSL's own syntax as C++ for OpenCL that clang understands.

Only what needs no types is done here, token by token; line breaks stay, so
that clang's line numbers do.  The steps:

``words``                  refuses words that MSL has not, renames others;
``attributes``             has attributes in [[ ]] appear in clang's AST;
``function_constants``     gives function constants their values;
``instantiations``         has instances of kernel templates appear in the AST;
``methods``                member functions are for objects in `thread` memory
                           where they name no address space;
``threadgroup_variables``  has the executor give their memory;
``vectors``                constructors and conversions become calls of
                           functions in include/implementation/prelude.h.
"""

from .attributes import Attributes
from .edits import Edits
from .function_constants import FunctionConstants
from .instantiations import Instantiations
from .methods import Methods
from .structure import CLOSING
from .threadgroup_variables import ThreadgroupVariables
from .types import Types
from .vectors import Vectors
from .words import Words


class Rewriter:
    """Rewrites one list of tokens.

    constant_values: of function constants, {index or name: bytes}.

    Afterwards `errors` holds what is refused already here, `constants` and
    `instantiations` what the later steps need, and `emit` gives the text.
    """

    def __init__(self, tokens, source_map, constant_values=None):
        self._edits = edits = Edits(tokens, source_map)
        types = Types(edits)
        function_constants = FunctionConstants(edits, constant_values or {})
        words = Words(edits, function_constants)
        instantiations = Instantiations(edits)
        words.replace_pragmas()
        words.refuse()
        Attributes(edits, function_constants).run()
        instantiations.run()
        Methods(edits).run()
        ThreadgroupVariables(edits).run()
        Vectors(edits, types).run()
        words.rename()
        self.errors = edits.errors
        self.constants = function_constants.constants
        self._instantiations = instantiations.found

    @property
    def instantiations(self):
        return list(self._instantiations.values())

    def emit(self, behind_instantiations=None):
        """Returns (text, RewrittenMap).

        behind_instantiations: what stands behind each explicit instantiation,
            by number; by default an assertion that leads to the function.
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
        """Whether the variable whose name is token `name` says `constant`.

        That is the variable itself, not what it points to.
        """
        s = self._edits.structure
        index = name - 1
        while index >= 0:
            text = s.text(index)
            if text == "constant":
                return True
            if text in ("*", "&", "&&", ";", "{", "}"):
                return False
            if text in CLOSING and index in s.match:
                index = s.match[index]
            index -= 1
        return False

    def convert_beside(self, first, last, other):
        """Converts the operand in tokens [first, last] to a component of
        `other`, the vector expression on the other side of an operator."""
        self._edits.insert_before(
            first, "::__msl::beside<decltype(::__msl::plain(%s))>(" % other
        )
        self._edits.insert_after(last, ")")

    def mark_call(self, first, last, is_void):
        """Tells the executor of a call, in tokens [first, last]."""
        token = self._edits.tokens[first]
        column = self._edits.source_map.locate(first).column
        enter = "::__msl::target::enter_call(%dul << 32 | %d)" % (
            token.line,
            column,
        )
        if is_void:
            self._edits.insert_before(first, "(%s, " % enter)
            self._edits.insert_after(last, ", ::__msl::target::leave_call())")
        else:
            self._edits.insert_before(
                first, "::__msl::target::leave_call(%s, " % enter
            )
            self._edits.insert_after(last, ")")
