"""Kernels: their names, parameters and limits."""

from ..diagnostics import in_metal_words
from ..rewriting import names
from .clang_types import CONSTANT, DEVICE, THREAD, THREADGROUP, _annotations, _numbers, _plain_type

MAX_BUFFERS = 31
MAX_THREADGROUP_BYTES = 32768
MAX_THREADS_PER_THREADGROUP = 1024


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


class Kernels:
    """Reads the kernels out of the program."""

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


def _number(text, values):
    """A number, or the value of an enumerator of the rewriter's."""
    return values[text] if text in values else int(text, 0)
