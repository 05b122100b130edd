"""The program's functions, and what they call and use."""

from .clang_types import _annotations


class Functions:
    """Which function calls which."""

    def _function(self, cursor):
        function = self._functions.get(cursor.hash)
        if function is None:
            function = _Function(cursor, _annotations(cursor, self._kinds))
            function.is_template = cursor.kind == self._kinds.FUNCTION_TEMPLATE
            self._functions[cursor.hash] = function
        return function

    def _note_reference(self, cursor, function):
        referenced = cursor.referenced
        if referenced is None:
            return
        kind = referenced.kind
        kinds = self._kinds
        if kind in (
            kinds.FUNCTION_DECL,
            kinds.CXX_METHOD,
            kinds.CONSTRUCTOR,
            kinds.CONVERSION_FUNCTION,
        ):
            callee = self._definition(referenced)
            if self._is_implicit(callee):
                return
            if self._is_users(callee):
                called = self._function(callee)
                if cursor.kind == kinds.CALL_EXPR:
                    function.sites.append((called, cursor))
                function.calls.setdefault(called.key, (called, cursor))
                if called.is_kernel and cursor.kind == kinds.CALL_EXPR:
                    self._error(cursor, "a kernel cannot be called from a function")
            elif "suspends" in self._header_annotations(callee):
                function.suspends = True
        elif kind == kinds.VAR_DECL and self._is_users(referenced):
            self._note_variable(referenced, function, set())

    def _is_implicit(self, cursor):
        """A member that clang wrote, at the place of its class."""
        parent = cursor.semantic_parent
        return parent is not None and cursor.location.offset == parent.location.offset

    def _definition(self, cursor):
        return cursor.get_definition() or cursor

    def _header_annotations(self, cursor):
        function = self._functions.get(cursor.hash)
        if function is None:
            return _annotations(cursor, self._kinds)
        return function.annotations

    def _note_variable(self, variable, function, seen):
        """Function constants that a program-scope variable depends on."""
        if variable.hash in seen:
            return
        seen.add(variable.hash)
        number = _annotations(variable, self._kinds).get("function_constant")
        if number is not None:
            function.function_constants.add(int(number))
            return
        if variable.semantic_parent.kind not in (
            self._kinds.TRANSLATION_UNIT,
            self._kinds.NAMESPACE,
        ):
            return
        for inner in variable.walk_preorder():
            if inner.kind == self._kinds.DECL_REF_EXPR:
                referenced = inner.referenced
                if (
                    referenced is not None
                    and referenced.kind == self._kinds.VAR_DECL
                    and self._is_users(referenced)
                ):
                    self._note_variable(referenced, function, seen)

    def _check_calls(self):
        """Recursion; what kernels reach."""
        state = {}

        def visit(function):
            state[function.key] = "open"
            for called, call in function.calls.values():
                if state.get(called.key) == "open":
                    if called is function and self._is_a_loop(function):
                        continue
                    self._error(
                        call,
                        f"recursive call of '{called.cursor.spelling}': a GPU needs a pipeline "
                        "with "
                        "a larger maxCallStackDepth for it, and the emulator "
                        "does not support it",
                    )
                elif called.key not in state:
                    visit(called)
                function.suspends = function.suspends or called.suspends
                function.function_constants |= called.function_constants
            state[function.key] = "done"

        for function in list(self._functions.values()):
            if function.key not in state:
                visit(function)
        self._find_suspending_calls()
        for kernel in self.kernels:
            function = self._function(kernel.cursor)
            kernel.suspends = function.suspends
            kernel.function_constants = [
                self._rewriter.constants[number] for number in sorted(function.function_constants)
            ]

    def _is_a_loop(self, function):
        """Whether a function calls itself as the last thing it does.

        Compilers make a loop of that, and Metal's takes it from 2.4 on.
        """
        if self._language.version < (2, 4):
            return False
        last = {cursor.hash for cursor in self._last_calls(function.cursor)}
        return all(cursor.hash in last for called, cursor in function.sites if called is function)

    def _last_calls(self, cursor):
        """The calls behind which nothing stands in a function or statement."""
        kinds = self._kinds
        children = list(cursor.get_children())
        if cursor.kind == kinds.CALL_EXPR:
            return [cursor]
        if cursor.kind == kinds.IF_STMT:
            branches = children[1:]
        elif cursor.kind in (kinds.RETURN_STMT, kinds.UNEXPOSED_EXPR) or (
            cursor.kind == kinds.COMPOUND_STMT or cursor.kind.is_declaration()
        ):
            branches = children[-1:]
        else:
            return []
        return [call for branch in branches for call in self._last_calls(branch)]

    def _find_suspending_calls(self):
        # The instances of a template share their text.
        found = {}
        for function in self._functions.values():
            for called, cursor in function.sites:
                result = self._type_kind(cursor.type)
                if not called.suspends or result in (
                    self._types.LVALUEREFERENCE,
                    self._types.RVALUEREFERENCE,
                ):
                    continue
                extent = cursor.extent
                first, _ = self._rewritten.token_at(extent.start.offset)
                last, _ = self._rewritten.token_at(extent.end.offset - 1)
                is_void = result == self._types.VOID
                call = found.setdefault((first, last), Call(first, last, is_void))
                if call.is_void != is_void:
                    call.is_void = None  # both, in different instances
        self.suspending_calls = [call for call in found.values() if call.is_void is not None]


class Call:
    """A call of a function that suspends its thread.

    first, last: the tokens of the call expression.
    is_void:     whether it has no value.
    """

    def __init__(self, first, last, is_void):
        self.first = first
        self.last = last
        self.is_void = is_void


class _Function:
    """What is known of one function of the program."""

    def __init__(self, cursor, annotations):
        self.cursor = cursor
        self.key = cursor.hash
        self.annotations = annotations
        self.is_kernel = "kernel" in annotations
        self.is_template = False
        self.examined = False
        self.calls = {}  # key: (_Function, cursor of a call)
        self.sites = []  # (_Function, cursor) of every call
        self.suspends = False
        self.threadgroup_bytes = 0
        self.function_constants = set()
