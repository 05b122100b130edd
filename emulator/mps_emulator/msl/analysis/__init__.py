"""Reads kernels out of clang's AST and refuses what Metal refuses.

clang itself has already refused most of what is wrong.  What is left are rules
that C++ for OpenCL does not have: every pointer names its address space,
nothing converts from `device` to `constant`, program scope is constant,
kernels have certain parameters, nothing calls itself.
"""

from ..diagnostics import Diagnostic
from .address_spaces import AddressSpaces
from .clang_errors import ClangErrors
from .clang_types import ClangTypes
from .functions import Functions
from .kernels import Kernels


class Analysis(ClangErrors, ClangTypes, AddressSpaces, Functions, Kernels):
    """One parse of a rewritten program.

    cindex:        the module clang.cindex.
    unit:          the translation unit.
    main_file:     the name of the rewritten text.
    rewritten:     the diagnostics.RewrittenMap.
    source_map:    the diagnostics.SourceMap.
    rewriter:      the rewriter.Rewriter.
    language:      the language.Language.

    `errors`, `kernels` and `suspending_calls` are the results.
    """

    def __init__(self, cindex, unit, main_file, rewritten, source_map, text, language):
        self._cindex = cindex
        self._kinds = cindex.CursorKind
        self._types = cindex.TypeKind
        self._unit = unit
        self._main_file = main_file
        self._rewritten = rewritten
        self._source_map = source_map
        self._rewriter = text
        self._language = language
        self.errors = []
        self.kernels = []
        self.suspending_calls = []
        self._reported = set()
        self._functions = {}  # hash: _Function
        self._report_clang_errors()
        if self.errors:
            return
        self._instances = {}
        self._examine_program()
        if not self.errors:
            self._check_calls()

    def _is_users(self, cursor):
        """Whether a cursor stands in the program, not in our headers."""
        file = cursor.location.file
        return file is not None and file.name == self._main_file

    def _locate(self, offset):
        return self._source_map.locate(*self._rewritten.token_at(offset))

    def _location(self, cursor):
        return self._locate(cursor.location.offset)

    def _error(self, cursor, message):
        location = self._location(cursor)
        key = (str(location), message)
        if key not in self._reported:
            self._reported.add(key)
            self.errors.append(Diagnostic(location, message))
        return self.errors[-1]

    def _examine_program(self):
        for cursor in self._unit.cursor.get_children():
            if self._is_users(cursor):
                self._examine(cursor)
        self._find_kernels()
        # Functions that templates were instantiated to are found from their
        # callers, and may have callees of that kind themselves.
        done = set()
        while True:
            todo = [k for k in self._functions if k not in done]
            if not todo:
                break
            for key in todo:
                done.add(key)
                function = self._functions[key]
                if not function.examined:
                    function.examined = True
                    self._examine_function(function.cursor)

    def _examine(self, cursor, function=None, role=None):
        """Checks a cursor and everything in it.

        function: the _Function in whose body it stands.
        role:     "cast" for the operand of a cast, "object" for what a member
                  is called on, else None.
        """
        kind = cursor.kind
        kinds = self._kinds
        child_role = role if kind == kinds.UNEXPOSED_EXPR else None
        if kind == kinds.FUNCTION_TEMPLATE or kind in (
            kinds.FUNCTION_DECL,
            kinds.CXX_METHOD,
            kinds.CONSTRUCTOR,
            kinds.DESTRUCTOR,
            kinds.CONVERSION_FUNCTION,
        ):
            found = self._function(cursor)
            if not found.examined:
                found.examined = True
                self._examine_function(cursor)
            return
        if kind in (kinds.VAR_DECL, kinds.PARM_DECL, kinds.FIELD_DECL):
            self._examine_variable(cursor, function)
        elif kind == kinds.STATIC_ASSERT:
            self._examine_assertion(cursor)
        elif kind in (kinds.TYPEDEF_DECL, kinds.TYPE_ALIAS_DECL):
            self._check_pointers(cursor, cursor.underlying_typedef_type)
        elif kind == kinds.LAMBDA_EXPR:
            if not self._language.has_lambdas:
                self._error(cursor, "lambda expressions are not supported in Metal")
        elif kind == kinds.UNEXPOSED_EXPR:
            self._examine_conversion(cursor, role)
        elif kind in (
            kinds.CSTYLE_CAST_EXPR,
            kinds.CXX_FUNCTIONAL_CAST_EXPR,
            kinds.CXX_REINTERPRET_CAST_EXPR,
            kinds.CXX_STATIC_CAST_EXPR,
        ):
            if not self._examine_cast(cursor):
                return
            child_role = "cast"
        elif kind == kinds.MEMBER_REF_EXPR:
            child_role = "object"
        if function is not None and kind in (
            kinds.CALL_EXPR,
            kinds.DECL_REF_EXPR,
            kinds.MEMBER_REF_EXPR,
        ):
            self._note_reference(cursor, function)
        children = cursor.get_children()
        if kind == kinds.CALL_EXPR and self._is_operator_of_class(cursor):
            children = list(children)
            self._examine(children[0], function, "object")
            children = children[1:]
        for child in children:
            self._examine(child, function, child_role)

    def _is_operator_of_class(self, call):
        """Whether an operator is called whose left operand is the object."""
        referenced = call.referenced
        return (
            referenced is not None
            and referenced.kind == self._kinds.CXX_METHOD
            and referenced.spelling.startswith("operator")
            and next(call.get_children()).kind != self._kinds.MEMBER_REF_EXPR
        )

    def _examine_function(self, cursor):
        function = self._function(cursor)
        if cursor.kind not in (self._kinds.CONSTRUCTOR, self._kinds.DESTRUCTOR):
            self._check_pointers(cursor, cursor.type.get_result())
        for child in cursor.get_children():
            self._examine(child, function)

    def _examine_assertion(self, cursor):
        """Behind an explicit instantiation, leads to the instance."""
        children = list(cursor.get_children())
        if len(children) != 2:
            return
        message = children[1].spelling.strip('"')
        if not message.startswith("msl.instance:"):
            return
        number = int(message.split(":")[1])
        for inner in children[0].walk_preorder():
            if inner.kind == self._kinds.DECL_REF_EXPR:
                referenced = inner.referenced
                if referenced is not None and referenced.kind == self._kinds.FUNCTION_DECL:
                    self._instances[number] = self._definition(referenced)
                    return
