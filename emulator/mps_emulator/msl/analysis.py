"""Reads kernels out of clang's AST and refuses what Metal refuses.

clang itself has already refused most of what is wrong.  What is left are rules
that C++ for OpenCL does not have: every pointer names its address space,
nothing converts from `device` to `constant`, program scope is constant,
kernels have certain parameters, nothing calls itself.
"""

import re

from .diagnostics import Diagnostic, in_metal_words
from .rewriting import names

# clang::LangAS, which libclang returns as a number.
DEFAULT = 0
CONSTANT = 1  # opencl_global
THREADGROUP = 2
THREAD = 4
GENERIC = 5
DEVICE = 6  # opencl_global_device

_SPACE_NAMES = {
    CONSTANT: "constant",
    THREADGROUP: "threadgroup",
    THREAD: "thread",
    DEVICE: "device",
}

MAX_BUFFERS = 31
MAX_THREADGROUP_BYTES = 32768
MAX_THREADS_PER_THREADGROUP = 1024
# How far apart the emulator lays threadgroup variables.
THREADGROUP_ALIGNMENT = 16

# clang's name of bfloat, which libclang has no kind for.
_BFLOAT = "__bf16"


class Parameter:
    """One parameter of a kernel.

    kind:         "buffer", "threadgroup" or "builtin".
    index:        of [[buffer(i)]] or [[threadgroup(i)]].
    builtin:      the attribute's name, for kind "builtin".
    components:   1 to 3, for kind "builtin".
    scalar:       "uint" or "ushort", for kind "builtin".
    active:       False where a function constant takes the parameter away.
    constant:     whether it leads to `constant` memory.
    element_size: bytes of what the pointer or reference leads to.
    alignment:    of that, in bytes.
    numbers:      what that consists of, like "float" or "uint"; None where it
        is neither numbers, vectors of them nor atomics, nor a structure of
        one kind of them.
    """

    def __init__(self, name, kind):
        self.name = name
        self.kind = kind
        self.index = None
        self.builtin = None
        self.components = 0
        self.scalar = None
        self.writable = False
        self.by_reference = False
        self.active = True
        self.constant = False
        self.element_size = 0
        self.alignment = 1
        self.numbers = None
        self.type_spelling = ""


class Kernel:
    """A kernel function, or one instance of a kernel template.

    function:       an expression for the function's address.
    instantiation:  the number of the rewriter.Instantiation it comes from.
    limits_threads: whether the source says max_total_threads.
    """

    def __init__(self, name, function, cursor):
        self.name = name
        self.function = function
        self.cursor = cursor
        self.instantiation = None
        self.parameters = []
        self.max_total_threads = MAX_THREADS_PER_THREADGROUP
        self.limits_threads = False
        self.static_threadgroup_bytes = 0
        self.function_constants = []
        self.suspends = False


class Analysis:
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

    # ---- Places

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

    # ---- What clang refuses

    def _report_clang_errors(self):
        for found in self._unit.diagnostics:
            is_error = found.severity >= self._cindex.Diagnostic.Error
            if not is_error and not self._is_cplusplus17_only(found):
                continue
            self._report_clang_error(found)

    def _is_cplusplus17_only(self, found):
        """What clang would not accept even as an extension of C++14."""
        if self._language.is_cplusplus17:
            return False
        return (
            found.option == "-Wpre-c++17-compat"
            and not self._is_in_header(found.location)
            and (
                "class template argument deduction" in found.spelling
                or "template parameters declared with" in found.spelling
            )
        )

    def _is_in_header(self, location):
        return location.file is None or location.file.name != self._main_file

    def _report_clang_error(self, found):
        if "__msl_instance" in found.spelling and self.errors:
            return  # our own use of an instance that has been refused
        places = [(found.location, found.spelling)]
        places += [(note.location, note.spelling) for note in found.children]
        in_program = [
            (location, spelling)
            for location, spelling in places
            if not self._is_in_header(location) and not spelling.startswith("in file included from")
        ]
        if not in_program:
            # clang says only once from where our headers were entered, and
            # "too many errors" comes from nowhere.
            if self.errors or found.location.file is None:
                return
            where = f"{found.location.file}:{found.location.line}"
            raise AssertionError(
                f"the emulator's own headers do not compile: {where}: {found.spelling}"
            )
        message = in_metal_words(_without_requirement(found.spelling))
        first = in_program[0][0]
        diagnostic = Diagnostic(self._locate(first.offset), message)
        key = (str(diagnostic.location), message)
        if key in self._reported:
            return
        self._reported.add(key)
        for location, spelling in in_program:
            place = self._locate(location.offset)
            if spelling == found.spelling or str(place) == str(diagnostic.location):
                continue
            if "__msl" in spelling:
                spelling = "required from here"
            diagnostic.add_note(place, in_metal_words(spelling))
        self.errors.append(diagnostic)

    # ---- The walk over the program

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

    def _find_kernels(self):
        names = {}
        for function in list(self._functions.values()):
            if function.is_kernel and not function.is_template:
                kernel = self._new_kernel(function.cursor, None)
                self._add_kernel(kernel, names)
        for instantiation in self._rewriter.instantiations:
            cursor = self._instances.get(instantiation.number)
            if cursor is None:
                continue
            if "kernel" not in _annotations(cursor, self._kinds):
                self._error(cursor, "this function is not a kernel")
                continue
            self._function(cursor)
            kernel = self._new_kernel(cursor, instantiation)
            self._add_kernel(kernel, names)

    def _add_kernel(self, kernel, names):
        if kernel.name in names:
            error = self._error(kernel.cursor, f"two kernels have the name '{kernel.name}'")
            error.add_note(self._location(names[kernel.name].cursor), "the other one is here")
        names[kernel.name] = kernel
        self.kernels.append(kernel)

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

    # ---- Functions and what they use

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

    # ---- Declarations

    def _examine_variable(self, cursor, function):
        kinds = self._kinds
        if cursor.kind == kinds.VAR_DECL:
            if cursor.spelling.startswith(("__range", "__begin", "__end")):
                return  # of a range-based for statement
            annotations = _annotations(cursor, kinds)
            if "threadgroup" in annotations:
                self._examine_threadgroup_variable(cursor, function)
            parent = cursor.semantic_parent.kind
            at_program_scope = parent in (
                kinds.TRANSLATION_UNIT,
                kinds.NAMESPACE,
                kinds.STRUCT_DECL,
                kinds.CLASS_DECL,
                kinds.CLASS_TEMPLATE,
                kinds.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
            )
            if at_program_scope:
                self._check_program_scope(cursor, annotations)
            elif cursor.storage_class == self._cindex.StorageClass.STATIC:
                self._error(cursor, "variables in function scope cannot be declared static")
        self._check_pointers(cursor, cursor.type)

    def _check_program_scope(self, cursor, annotations):
        if annotations.keys() & {"builtin", "buffer", "threadgroup"}:
            self._error(
                cursor,
                "Metal has bindings at program scope, the emulator has not: "
                f"make '{cursor.spelling}' a parameter of the kernel",
            )
            return
        # clang would put the variable there by itself.
        name, _ = self._rewritten.token_at(cursor.location.offset)
        if self._space_of_elements(cursor.type) != CONSTANT or not self._rewriter.is_constant(name):
            self._error(cursor, "program scope variable must reside in constant address space")

    def _examine_threadgroup_variable(self, cursor, function):
        if function is None or not function.is_kernel:
            self._error(
                cursor,
                "a variable in threadgroup address space can only be declared in a kernel function",
            )
            return
        pointee = cursor.type.get_pointee()
        size = pointee.get_size()
        if size >= 0:  # dependent types have none yet
            alignment = max(pointee.get_align(), THREADGROUP_ALIGNMENT)
            function.threadgroup_bytes = _align_up(function.threadgroup_bytes, alignment) + size

    def _check_pointers(self, cursor, checked):
        """Every pointer and reference says where it points."""
        types = self._types
        while True:
            checked = self._element_type(checked)
            kind = self._type_kind(checked)
            if kind not in (types.POINTER, types.LVALUEREFERENCE, types.RVALUEREFERENCE):
                return
            pointee = checked.get_pointee()
            if self._type_kind(pointee) in (types.FUNCTIONPROTO, types.FUNCTIONNOPROTO):
                return
            # A reference to a pointer may do without: Metal's compiler takes
            # `device float *&p`, and the pointer is in thread memory.
            is_to_pointer = kind != types.POINTER and (
                self._type_kind(pointee.get_canonical()) == types.POINTER
            )
            if not is_to_pointer and self._space_of_elements(pointee) in (DEFAULT, GENERIC):
                what = "pointer" if kind == types.POINTER else "reference"
                self._error(cursor, f"{what} type must have explicit address space qualifier")
                return
            checked = pointee

    def _type_kind(self, checked):
        try:
            return checked.kind
        except ValueError:
            return None

    # ---- Expressions

    def _examine_conversion(self, cursor, role):
        """An implicit conversion, among others."""
        children = list(cursor.get_children())
        if len(children) != 1:
            return
        to, origin = cursor.type, children[0].type
        # A member function for device objects is one for both, see the
        # rewriter; clang chose among those that the program has.
        if role != "object" and self._space(to) == CONSTANT and self._space(origin) == DEVICE:
            self._error(
                cursor,
                f"cannot convert from '{in_metal_words(origin.spelling)}' to "
                f"'{in_metal_words(to.spelling)}': the address spaces differ",
            )
        if role != "cast" and (
            to.get_canonical().spelling.split()[-1:] == [_BFLOAT]
            and self._type_kind(origin.get_canonical()) in (self._types.FLOAT, self._types.HALF)
        ):
            self._error(
                cursor,
                f"'{in_metal_words(origin.get_canonical().spelling)}' cannot be implicitly "
                "converted to 'bfloat'",
            )

    def _examine_cast(self, cursor):
        """Returns False where the cast is refused."""
        if self._type_kind(cursor.type) != self._types.POINTER:
            return True
        self._check_pointers(cursor, cursor.type)
        to = self._space(cursor.type)
        for child in cursor.get_children():
            if not child.kind.is_expression():
                continue
            while child.kind == self._kinds.UNEXPOSED_EXPR:
                inner = list(child.get_children())
                if len(inner) != 1:
                    break
                child = inner[0]
            origin = self._space(child.type)
            if self._type_kind(child.type) != self._types.POINTER:
                continue
            if origin in _SPACE_NAMES and to in _SPACE_NAMES and to != origin:
                self._error(
                    cursor,
                    f"cast from '{in_metal_words(child.type.spelling)}' to "
                    f"'{in_metal_words(cursor.type.spelling)}' converts between mismatching "
                    "address spaces",
                )
                return False
        return True

    def _address_space(self, checked):
        # libclang dereferences a null pointer for what has no type.
        if self._type_kind(checked) == self._types.INVALID:
            return DEFAULT
        return checked.get_address_space()

    def _space(self, checked):
        """The address space that a pointer points to or a glvalue lies in."""
        if self._type_kind(checked) == self._types.POINTER:
            return self._address_space(checked.get_pointee())
        return self._address_space(checked)

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

    # ---- Kernels

    def _new_kernel(self, cursor, instantiation):
        annotations = _annotations(cursor, self._kinds)
        name = annotations.get("host_name") or self._qualified_name(cursor)
        if instantiation is None:
            function = "&::" + self._qualified_name(cursor)
        else:
            name = instantiation.host_name or name
            function = instantiation.expression
        kernel = Kernel(name, function, cursor)
        if instantiation is not None:
            kernel.instantiation = instantiation.number
        function = self._function(cursor)
        if not function.examined:
            function.examined = True
            self._examine_function(cursor)
        values = self._values(cursor)
        self._check_kernel(kernel, cursor)
        limit = annotations.get("max_total_threads")
        if limit is not None:
            kernel.limits_threads = True
            kernel.max_total_threads = min(_number(limit, values), MAX_THREADS_PER_THREADGROUP)
        kernel.static_threadgroup_bytes = function.threadgroup_bytes
        if kernel.static_threadgroup_bytes > MAX_THREADGROUP_BYTES:
            self._error(
                cursor,
                (
                    f"Threadgroup memory size ({kernel.static_threadgroup_bytes}) exceeds the "
                    "maximum threadgroup "
                    f"memory allowed ({MAX_THREADGROUP_BYTES}) in kernel '{kernel.name}'"
                ),
            )
        self._read_parameters(kernel, cursor, values)
        return kernel

    def _qualified_name(self, cursor):
        parts = [cursor.spelling]
        parent = cursor.semantic_parent
        while parent is not None and parent.kind == self._kinds.NAMESPACE:
            if parent.spelling and not parent.is_anonymous():
                parts.append(parent.spelling)
            parent = parent.semantic_parent
        return "::".join(reversed(parts))

    def _check_kernel(self, kernel, cursor):
        result = cursor.type.get_result()
        if self._type_kind(result.get_canonical()) != self._types.VOID:
            self._error(
                cursor,
                f"invalid return type '{in_metal_words(result.spelling)}' for kernel function",
            )
        if cursor.kind == self._kinds.CXX_METHOD:
            self._error(cursor, "kernel function cannot be a member function")

    def _values(self, cursor):
        """The enumerators that the rewriter put into a function's body."""
        values = {}
        for child in cursor.get_children():
            if child.kind != self._kinds.COMPOUND_STMT:
                continue
            for inner in child.walk_preorder():
                if inner.kind == self._kinds.ENUM_CONSTANT_DECL:
                    if inner.spelling.startswith("__msl_value_"):
                        values[inner.spelling] = inner.enum_value
        return values

    def _read_parameters(self, kernel, cursor, values):
        taken = {"buffer": {}, "threadgroup": {}}
        for child in cursor.get_children():
            if child.kind != self._kinds.PARM_DECL:
                continue
            parameter = self._read_parameter(child, values)
            if parameter is None:
                continue
            kernel.parameters.append(parameter)
            if parameter.index is not None:
                self._claim_index(child, parameter, taken[parameter.kind])
        self._assign_indices(kernel, cursor, taken)
        self._check_builtin_types(kernel, cursor)

    def _read_parameter(self, cursor, values):
        annotations = _annotations(cursor, self._kinds)
        if "unsupported" in annotations:
            self._error(
                cursor,
                "Metal has '{}' parameters, the emulator has not".format(
                    annotations["unsupported"]
                ),
            )
            return None
        if "builtin" in annotations:
            return self._read_builtin(cursor, annotations["builtin"])
        checked = cursor.type.get_canonical()
        pointee = self._pointee(checked)
        if pointee is None:
            attribute = next((a for a in ("buffer", "threadgroup") if a in annotations), None)
            if attribute is None:
                self._error(
                    cursor,
                    f"invalid type '{_plain_type(cursor.type)}' for input declaration in a kernel "
                    "function",
                )
            else:
                self._error(
                    cursor,
                    f"type '{_plain_type(cursor.type)}' is not valid for attribute '{attribute}'",
                )
            return None
        space = self._space_of_elements(pointee)
        wanted = "threadgroup" if space == THREADGROUP else "buffer"
        given = "threadgroup" if "threadgroup" in annotations else "buffer"
        if space not in (DEVICE, CONSTANT, THREADGROUP):
            if space == THREAD:
                self._error(
                    cursor,
                    "invalid address space qualification for buffer pointee "
                    f"type '{in_metal_words(pointee.spelling)}': a kernel takes device, constant "
                    "and "
                    "threadgroup pointers",
                )
            return None
        if annotations.keys() & {"buffer", "threadgroup"} and given != wanted:
            self._error(
                cursor,
                f"invalid address space qualification for {given} pointee type "
                f"'{in_metal_words(pointee.spelling)}'",
            )
            return None
        parameter = Parameter(names.original(cursor.spelling), wanted)
        parameter.by_reference = self._type_kind(checked) == self._types.LVALUEREFERENCE
        parameter.writable = space == DEVICE and not self._has_const_elements(pointee)
        element = pointee
        if self._is_array(checked):
            element = pointee.get_array_element_type()
        parameter.constant = space == CONSTANT
        parameter.element_size = max(element.get_size(), 0)
        parameter.alignment = max(element.get_align(), 1)
        parameter.numbers = _numbers(element)
        parameter.type_spelling = _plain_type(cursor.type)
        if wanted in annotations:
            parameter.index = _number(annotations[wanted], values)
        if "if" in annotations:
            parameter.active = _number(annotations["if"], values) != 0
        return parameter

    def _pointee(self, checked):
        """What a parameter of a type points to, None if it does not.

        A parameter written as an array, which libclang shows as that, points
        to the first element; then the array is the answer.
        """
        if self._is_array(checked):
            space = self._space_of_elements(checked)
            return checked if space not in (0, THREAD) else None
        if self._type_kind(checked) in (self._types.POINTER, self._types.LVALUEREFERENCE):
            return checked.get_pointee()
        return None

    def _is_array(self, checked):
        return self._type_kind(checked) in (
            self._types.CONSTANTARRAY,
            self._types.INCOMPLETEARRAY,
            self._types.DEPENDENTSIZEDARRAY,
            self._types.VARIABLEARRAY,
        )

    def _element_type(self, checked):
        """The type of what an array, of arrays perhaps, is made of."""
        checked = checked.get_canonical()
        while self._is_array(checked):
            checked = checked.get_array_element_type().get_canonical()
        return checked

    def _space_of_elements(self, checked):
        # clang gives an array the qualifiers of its elements, and libclang
        # loses them on the way to the elements.
        return (
            self._address_space(checked)
            or self._address_space(checked.get_canonical())
            or self._address_space(self._element_type(checked))
        )

    def _has_const_elements(self, checked):
        return (
            checked.is_const_qualified()
            or checked.get_canonical().is_const_qualified()
            or self._element_type(checked).is_const_qualified()
        )

    def _claim_index(self, cursor, parameter, taken):
        if not 0 <= parameter.index < MAX_BUFFERS:
            self._error(
                cursor,
                (
                    f"'{parameter.kind}' attribute parameter is out of bounds: must be between 0 "
                    f"and {MAX_BUFFERS - 1}"
                ),
            )
            parameter.index = 0
            return
        if not parameter.active:
            return
        other = taken.setdefault(parameter.index, parameter)
        if other is not parameter:
            self._error(
                cursor,
                (
                    f"cannot reserve '{parameter.kind}' resource location at index "
                    f"{parameter.index}: parameter "
                    f"'{other.name}' has it"
                ),
            )

    def _assign_indices(self, kernel, cursor, taken):
        """Parameters that name no index get the lowest free ones."""
        for parameter in kernel.parameters:
            if parameter.kind == "builtin" or parameter.index is not None:
                continue
            used = taken[parameter.kind]
            index = 0
            while index in used:
                index += 1
            if index >= MAX_BUFFERS:
                self._error(
                    cursor,
                    f"kernel '{kernel.name}' has more than {MAX_BUFFERS} {parameter.kind} "
                    "parameters",
                )
                index = 0
            parameter.index = index
            used[index] = parameter

    # ---- Built-in parameters

    def _read_builtin(self, cursor, attribute):
        parameter = Parameter(names.original(cursor.spelling), "builtin")
        parameter.builtin = attribute
        checked = cursor.type.get_canonical()
        scalar = checked
        components = 1
        if self._type_kind(checked) == self._types.EXTVECTOR:
            scalar = checked.element_type.get_canonical()
            components = checked.element_count
        one_dimension = attribute in names.BUILTINS_OF_ONE_DIMENSION
        if (
            self._type_kind(scalar) not in (self._types.USHORT, self._types.UINT)
            or components > 3
            or (one_dimension and components > 1)
        ):
            self._error(
                cursor,
                f"type '{_plain_type(cursor.type)}' is not valid for attribute '{attribute}'",
            )
            return None
        parameter.components = components
        is_short = self._type_kind(scalar) == self._types.USHORT
        parameter.scalar = "ushort" if is_short else "uint"
        parameter.type_spelling = _plain_type(cursor.type)
        return parameter

    def _check_builtin_types(self, kernel, cursor):
        """The rules by which Metal wants types to match."""
        by_name = {p.builtin: p for p in kernel.parameters if p.kind == "builtin"}
        vectors = {
            name: by_name[name]
            for name in names.BUILTINS_OF_THREE_DIMENSIONS
            if name in by_name and by_name[name].components > 1
        }
        self._require_same(cursor, list(vectors.items()), lambda p: p.components)
        for group in (
            ("thread_position_in_grid", "threads_per_grid"),
            (
                "thread_position_in_threadgroup",
                "threads_per_threadgroup",
                "dispatch_threads_per_threadgroup",
            ),
        ):
            self._require_same(
                cursor,
                [(name, by_name[name]) for name in group if name in by_name],
                lambda p: p.type_spelling,
            )

    def _require_same(self, cursor, named, key):
        for name, parameter in named[1:]:
            if key(parameter) != key(named[0][1]):
                self._error(
                    cursor,
                    f"the types of '{named[0][0]}' ({named[0][1].type_spelling}) and '{name}' "
                    f"({parameter.type_spelling}) need to match",
                )
                return


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


def _annotations(cursor, kinds):
    """The rewriter's annotations of a declaration, {name: value}."""
    found = {}
    for child in cursor.get_children():
        if child.kind == kinds.ANNOTATE_ATTR:
            text = child.spelling
            if text.startswith("msl."):
                name, _, value = text[len("msl.") :].partition(":")
                found[name] = value
    return found


def _without_requirement(message):
    """What a static assertion says, without the condition in C++."""
    if message.startswith("static assertion failed"):
        _, separator, text = message.partition("': ")
        return text if separator and text else "static assertion failed"
    return message


def _plain_type(checked):
    """A parameter's type as the program has it."""
    return in_metal_words(checked.spelling.replace("__private ", ""))


# clang's names of types, without qualifiers.
_NUMBERS = {
    "float": "float",
    "half": "half",
    _BFLOAT: "bfloat",
    "bool": "bool",
    "char": "char",
    "signed char": "char",
    "unsigned char": "uchar",
    "short": "short",
    "unsigned short": "ushort",
    "int": "int",
    "unsigned int": "uint",
    "long": "long",
    "unsigned long": "ulong",
}
_COMPOUND = re.compile(r"(?:metal::_atomic|__msl::packed_vector)<([\w ]+)(?:, \d)?>")
_QUALIFIER = re.compile(
    r"\b(?:const|volatile|__(?:global|constant|local|private)\w*)\b"
    r"|__attribute__\(\(ext_vector_type\(\d\)\)\)"
)


def _numbers(element):
    """See Parameter.numbers."""
    element = element.get_canonical()
    name = _QUALIFIER.sub("", element.spelling).strip()
    compound = _COMPOUND.fullmatch(name)
    known = _NUMBERS.get(compound[1] if compound else name)
    if known is not None:
        return known
    if element.get_array_size() >= 0:
        return _numbers(element.element_type)
    fields = {_numbers(field.type) for field in element.get_fields()}
    return fields.pop() if len(fields) == 1 else None


def _number(text, values):
    """A number, or the value of an enumerator of the rewriter's."""
    return values[text] if text in values else int(text, 0)


def _align_up(value, alignment):
    return (value + alignment - 1) // alignment * alignment
