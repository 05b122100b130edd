"""Reads the kernels from clang's AST, and refuses programs that Metal's compiler refuses.

clang itself refuses most wrong programs.  The analysis checks the rules of MSL that C++
for OpenCL does not have: every pointer names its address space, no `device` pointer is
converted to a `constant` pointer, variables at program scope are constant, only some types
are allowed for a kernel's parameters, and no function is recursive.
"""

from clang.cindex import CursorKind, TranslationUnit

from ..diagnostics import RewrittenMap, SourceMap
from ..kernel import Kernel
from ..rewriting import Rewriter
from .address_spaces import check_cast, check_conversion, check_pointers, check_variable
from .clang_types import annotations_of
from .functions import CALLABLE, Call, Functions, definition_of
from .kernels import read_kernel
from .report import Report

_FUNCTIONS = (*CALLABLE, CursorKind.FUNCTION_TEMPLATE, CursorKind.DESTRUCTOR)
_CASTS = (
    CursorKind.CSTYLE_CAST_EXPR,
    CursorKind.CXX_FUNCTIONAL_CAST_EXPR,
    CursorKind.CXX_REINTERPRET_CAST_EXPR,
    CursorKind.CXX_STATIC_CAST_EXPR,
)
_VARIABLES = (CursorKind.VAR_DECL, CursorKind.PARM_DECL, CursorKind.FIELD_DECL)
_REFERENCES = (CursorKind.CALL_EXPR, CursorKind.DECL_REF_EXPR, CursorKind.MEMBER_REF_EXPR)


class Analysis:
    """Analyses a rewritten program.  The constructor does the whole analysis.

    Args:
      unit: libclang's translation unit of the program.
      main_file: the file name of the rewritten text in the unit.
    Attributes:
      errors: the errors.  If there are errors, the other attributes are not complete.
      kernels: the program's kernels.
      suspending_calls: the calls of functions that suspend their thread.
    """

    def __init__(
        self,
        unit: TranslationUnit,
        main_file: str,
        rewritten: RewrittenMap,
        source_map: SourceMap,
        rewriter: Rewriter,
    ):
        self._rewriter = rewriter
        self._report = Report(main_file, rewritten, source_map)
        self._functions = Functions(self._report)
        self._instances = {}  # {Instantiation.number: cursor of the function}
        self.errors = self._report.errors
        self.kernels: list[Kernel] = []
        self.suspending_calls: list[Call] = []
        self._report.add_clang_errors(unit.diagnostics)
        if not self.errors:
            self._examine_program(unit)
        if not self.errors:
            self._functions.check_calls()
            self.suspending_calls = self._functions.suspending_calls()
            for kernel in self.kernels:
                kernel.suspends = self._functions.of(kernel.cursor).suspends

    def _examine_program(self, unit):
        for cursor in unit.cursor.get_children():
            if self._report.is_of_program(cursor.location):
                self._examine(cursor)
        self._find_kernels()
        # The loop examines instances of function templates.  A call in one instance can lead to
        # other instances, so the loop repeats until it finds no new instance.
        while todo := [f for f in self._functions.all() if not f.examined]:
            for function in todo:
                self._examine_function(function)

    def _find_kernels(self):
        found = [
            (function, None)
            for function in self._functions.all()
            if function.is_kernel and not function.is_template and function.cursor.is_definition()
        ]
        for instantiation in self._rewriter.instantiations:
            cursor = self._instances.get(instantiation.number)
            if cursor is None:
                continue
            if "kernel" in annotations_of(cursor):
                found.append((self._functions.of(cursor), instantiation))
            else:
                self._report.error(cursor, "this function is not a kernel")
        by_name = {}
        for function, instantiation in found:
            self._examine_function(function)
            kernel = read_kernel(self._report, function, instantiation)
            other = by_name.setdefault(kernel.name, kernel)
            if other is not kernel:
                error = self._report.error(
                    kernel.cursor, f"two kernels have the name '{kernel.name}'"
                )
                error.add_note(self._report.locate(other.cursor.location), "the other one is here")
            self.kernels.append(kernel)

    # ---- The walk over the program

    def _examine_function(self, function):
        if function.examined:
            return
        function.examined = True
        cursor = function.cursor
        if cursor.kind not in (CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR):
            check_pointers(self._report, cursor, cursor.type.get_result())
        for child in cursor.get_children():
            self._examine(child, function)

    def _examine(self, cursor, function=None, role=None):
        """Checks a cursor and all cursors in it.

        Args:
          function: the function whose body contains the cursor, or None.
          role: "cast" if the cursor is the operand of a cast, "object" if the cursor is the object
            of a member call, None otherwise.
        """
        kind = cursor.kind
        if kind in _FUNCTIONS:
            self._examine_function(self._functions.of(cursor))
            return
        child_role = None
        if kind in _VARIABLES:
            check_variable(self._report, cursor, function, self._rewriter.is_constant)
        elif kind == CursorKind.STATIC_ASSERT:
            self._find_instance(cursor)
        elif kind in (CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL):
            check_pointers(self._report, cursor, cursor.underlying_typedef_type)
        elif kind == CursorKind.UNEXPOSED_EXPR:
            check_conversion(self._report, cursor, role)
            child_role = role
        elif kind in _CASTS:
            if not check_cast(self._report, cursor):
                return
            child_role = "cast"
        elif kind == CursorKind.MEMBER_REF_EXPR:
            child_role = "object"
        if function is not None and kind in _REFERENCES:
            self._functions.note_reference(cursor, function)
        children = list(cursor.get_children())
        if kind == CursorKind.CALL_EXPR and _is_operator_of_class(cursor):
            self._examine(children.pop(0), function, "object")
        for child in children:
            self._examine(child, function, child_role)

    def _find_instance(self, cursor):
        """Notes the kernel instance that a static assertion of the rewriter names.

        The rewriter has put such an assertion after each explicit instantiation of a kernel.

        Args:
          cursor: a static assertion, of the rewriter or of the program.
        """
        children = list(cursor.get_children())
        if len(children) != 2:
            return
        prefix, _, number = children[1].spelling.strip('"').partition("msl.instance:")
        if prefix or not number:
            return
        for inner in children[0].walk_preorder():
            if inner.kind == CursorKind.DECL_REF_EXPR:
                referenced = inner.referenced
                if referenced is not None and referenced.kind == CursorKind.FUNCTION_DECL:
                    self._instances[int(number)] = definition_of(referenced)
                    return


def _is_operator_of_class(call):
    """Whether the cursor is an expression like `a + b` that calls a member function of `a`."""
    referenced = call.referenced
    return (
        referenced is not None
        and referenced.kind == CursorKind.CXX_METHOD
        and referenced.spelling.startswith("operator")
        and next(call.get_children()).kind != CursorKind.MEMBER_REF_EXPR
    )
