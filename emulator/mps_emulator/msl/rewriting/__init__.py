"""Rewrites MSL's own syntax as C++ for OpenCL that clang understands.

The steps work on tokens and need no types.  Line breaks stay, so that clang's line
numbers are the program's.  The steps:

``words``                  refuses words that MSL lacks, renames others;
``attributes``             brings attributes in [[ ]] into clang's AST;
``function_constants``     gives function constants their values;
``instantiations``         brings instances of kernel templates into the AST;
``methods``                gives each member function an address space, `thread`
                           by default;
``threadgroup_variables``  takes threadgroup variables from the executor;
``vectors``                turns constructors and conversions into calls of
                           functions in include/implementation/prelude.h.
"""

from .attributes import Attributes
from .edits import Edits
from .function_constants import FunctionConstants
from .instantiations import Instantiations
from .methods import Methods
from .threadgroup_variables import ThreadgroupVariables
from .types import Types
from .vectors import Vectors
from .words import Words


class Rewriter:
    """Rewrites one list of tokens.

    constant_values: the values of function constants, {index or name: bytes}.

    The constructor runs all steps.  `errors` holds their refusals; the analysis
    and the code generation read `constants` and `instantiations`.
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

    # ---- The repairs after clang's parse

    def convert_beside(self, first, last, other):
        """Converts the operand in tokens [first, last] to the component type of `other`.

        other: the vector expression on the other side of the operator.
        """
        self._edits.insert_before(first, f"::__msl::beside<decltype(::__msl::plain({other}))>(")
        self._edits.insert_after(last, ")")

    def take_operands_by_value(self, question):
        """Makes both results of a conditional operator, token `question`, values."""
        s = self._edits.structure
        begin = question + 1
        for _ in range(2):
            end = s.end_of_operand(begin)
            self._wrap("value", begin, end - 1)
            begin = end + 1

    def fill_list(self, brace, missing):
        """Adds `missing` zeros to the list whose { is token `brace`."""
        close = self._edits.structure.match[brace]
        self._edits.insert_before(close, ", 0" * missing)

    def make_vectors_of_lists(self, name):
        """Converts arguments in { }, in the call of the function at token `name`.

        Returns whether there are any.
        """
        s = self._edits.structure
        found = False
        for first, last in s.arguments(name):
            if s.text(first) == "{":
                self._edits.replace(first, "::__msl::list(")
                self._edits.replace(last, ")")
                found = True
        return found

    def pass_temporaries(self, name):
        """Wraps arguments that may be temporaries, in the call of the function at `name`.

        Returns whether there are any.
        """
        arguments = self._edits.structure.arguments(name)
        return any([self.pass_temporary(*argument) for argument in arguments])

    def pass_temporary(self, first, last):
        """Wraps the operand in tokens [first, last], unless it is an lvalue."""
        s = self._edits.structure
        if s.text(first) in ("{", "&", "*", "nullptr") or s.is_place(first, last):
            return False
        self._wrap("pass", first, last)
        return True

    def convert_argument(self, first, last):
        """Wraps an argument that is passed to a reference to another type."""
        self._wrap("converted", first, last)

    def add_as_number(self, first, last):
        """Wraps an object that is added to a pointer."""
        self._wrap("offset", first, last)

    def _wrap(self, function, first, last):
        self._edits.insert_before(first, f"::__msl::{function}(")
        self._edits.insert_after(last, ")")

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
