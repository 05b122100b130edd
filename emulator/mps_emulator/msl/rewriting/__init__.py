"""Translates MSL's own syntax to C++ for OpenCL, which clang understands.

The steps work on tokens, without knowledge of types.  The steps keep all line breaks, so that
clang's line numbers are the line numbers of the program.  The steps:

``words``                  refuses words of C++ that MSL lacks, and renames words that are
                           reserved in C++ for OpenCL;
``attributes``             replaces attributes in [[ ]] with annotations, which appear in
                           clang's AST;
``instantiations``         adds assertions that name the instances of kernel templates in
                           clang's AST;
``methods``                gives each member function the keyword for the address space
                           of its object, `thread` by default;
``array_parameters``       replaces parameters like `T a[]` with pointers to `thread` memory;
``threadgroup_variables``  replaces threadgroup variables with references to memory
                           that the executor allocates;
``vectors``                replaces constructors and conversions with calls of functions
                           in include/implementation/prelude.h.
"""

from ..diagnostics import RewrittenMap, SourceMap
from ..lexer import Token
from .array_parameters import ArrayParameters
from .attributes import Attributes
from .edits import Edits
from .instantiations import Instantiation, Instantiations
from .methods import Methods
from .threadgroup_variables import ThreadgroupVariables
from .types import Types
from .vectors import Vectors
from .words import Words


class Rewriter:
    """Rewrites a program.  The constructor runs all steps.

    Attributes:
      errors: the errors that the steps have found.
    """

    def __init__(self, tokens: list[Token], source_map: SourceMap):
        self._edits = edits = Edits(tokens, source_map)
        types = Types(edits)
        words = Words(edits)
        instantiations = Instantiations(edits)
        words.replace_pragmas()
        words.refuse()
        Attributes(edits).run()
        instantiations.run()
        Methods(edits).run()
        ArrayParameters(edits).run()
        ThreadgroupVariables(edits).run()
        Vectors(edits, types).run()
        words.rename()
        self.errors = edits.errors
        self._instantiations = instantiations.found

    @property
    def instantiations(self) -> list[Instantiation]:
        """The explicit instantiations of kernel templates."""
        return list(self._instantiations.values())

    def emit(self, after_instantiations: dict[int, str] | None = None) -> tuple[str, RewrittenMap]:
        """Returns the rewritten text and its map.

        Args:
          after_instantiations: {number of an explicit instantiation: the text to put after it}.
            If None, the inserted texts are the assertions that name the instances.
        """
        after = {}
        for index, instantiation in self._instantiations.items():
            if after_instantiations is None:
                text = instantiation.assertion
            else:
                text = after_instantiations[instantiation.number]
            after[index] = (text, instantiation.token)
        return self._edits.emit(after)

    def is_constant(self, name: int) -> bool:
        """Whether the variable that is declared at token `name` has the qualifier `constant`.

        False if only the variable's pointee has this qualifier.
        """
        s = self._edits.structure
        stops = ("constant", "*", "&", "&&", ";", "{", "}")
        texts = map(s.text, s.backwards(name - 1))
        return next((text for text in texts if text in stops), "") == "constant"

    # ---- The repair after clang's parse

    def is_conditional(self, index: int) -> bool:
        """Whether token `index` is the ? of a conditional operator."""
        return self._edits.structure.text(index) == "?"

    def take_operands_by_value(self, question: int) -> None:
        """Makes copies of both results of the conditional operator whose ? is token `question`.

        The copies are in no address space, so they have the same type.
        """
        s = self._edits.structure
        begin = question + 1
        for _ in range(2):
            end = s.end_of_operand(begin)
            self._edits.insert_before(begin, "::__msl::value(")
            self._edits.insert_after(end - 1, ")")
            begin = end + 1

    # ---- Calls of functions that suspend their thread

    def mark_call(self, first: int, last: int, is_void: bool) -> None:
        """Adds calls that tell the executor when the call in tokens [first, last] begins and ends.

        Args:
          is_void: whether the called function returns void.
        """
        token = self._edits.tokens[first]
        column = self._edits.source_map.locate(first).column
        enter = f"::__msl::target::enter_call({token.line}ul << 32 | {column})"
        if is_void:
            self._edits.insert_before(first, f"({enter}, ")
            self._edits.insert_after(last, ", ::__msl::target::leave_call())")
        else:
            self._edits.insert_before(first, f"::__msl::target::leave_call({enter}, ")
            self._edits.insert_after(last, ")")
