"""Reads the names, parameters and limits of kernels."""

from clang.cindex import CursorKind, TypeKind

from ..diagnostics import in_metal_words
from ..kernel import MAX_BUFFERS, MAX_THREADS_PER_THREADGROUP, Kernel, Parameter
from ..rewriting import names
from ..rewriting.instantiations import Instantiation
from . import clang_types as types
from .functions import Function
from .report import Report

MAX_THREADGROUP_BYTES = 32768

# Groups of built-in parameters.  All parameters of a group must have the same type.
_SAME_TYPE = (
    ("thread_position_in_grid", "threads_per_grid"),
    (
        "thread_position_in_threadgroup",
        "threads_per_threadgroup",
        "dispatch_threads_per_threadgroup",
    ),
)


def read_kernel(report: Report, function: Function, instantiation: Instantiation | None) -> Kernel:
    """Reads a kernel, and reports its errors.

    Args:
      function: a kernel function that the analysis has examined already.
    """
    cursor = function.cursor
    annotations = types.annotations_of(cursor)
    qualified = _qualified_name(cursor)
    name = annotations.get("host_name") or qualified
    if instantiation is None:
        kernel = Kernel(name, "&::" + qualified, cursor)
    else:
        kernel = Kernel(instantiation.host_name or name, instantiation.expression, cursor)
        kernel.instantiation = instantiation.number
    result = cursor.type.get_result()
    if types.kind_of(result.get_canonical()) != TypeKind.VOID:
        report.error(
            cursor, f"invalid return type '{in_metal_words(result.spelling)}' for kernel function"
        )
    if cursor.kind == CursorKind.CXX_METHOD:
        report.error(cursor, "kernel function cannot be a member function")
    values = _values(cursor)
    limit = annotations.get("max_total_threads")
    if limit is not None:
        kernel.limits_threads = True
        kernel.max_total_threads = min(_number(limit, values), MAX_THREADS_PER_THREADGROUP)
    kernel.static_threadgroup_bytes = function.threadgroup_bytes
    if kernel.static_threadgroup_bytes > MAX_THREADGROUP_BYTES:
        report.error(
            cursor,
            f"Threadgroup memory size ({kernel.static_threadgroup_bytes}) exceeds the maximum "
            f"threadgroup memory allowed ({MAX_THREADGROUP_BYTES}) in kernel '{kernel.name}'",
        )
    _read_parameters(report, kernel, values)
    return kernel


def _qualified_name(cursor):
    parts = [cursor.spelling]
    parent = cursor.semantic_parent
    while parent is not None and parent.kind == CursorKind.NAMESPACE:
        if parent.spelling and not parent.is_anonymous():
            parts.append(parent.spelling)
        parent = parent.semantic_parent
    return "::".join(reversed(parts))


def _values(cursor):
    """Returns the enumerators that the rewriter put into a function's body, {name: value}.

    attributes.Attributes makes an enumerator for each attribute whose argument is an expression.
    """
    return {
        inner.spelling: inner.enum_value
        for child in cursor.get_children()
        if child.kind == CursorKind.COMPOUND_STMT
        for inner in child.walk_preorder()
        if inner.kind == CursorKind.ENUM_CONSTANT_DECL and inner.spelling.startswith("__msl_value_")
    }


def _number(text, values):
    """Returns the value of an attribute's argument: a number, or the name of an enumerator."""
    return values[text] if text in values else int(text, 0)


# ---- Parameters


def _read_parameters(report, kernel, values):
    taken = {"buffer": {}, "threadgroup": {}}
    for cursor in kernel.cursor.get_children():
        if cursor.kind != CursorKind.PARM_DECL:
            continue
        parameter = _read_parameter(report, cursor, values)
        if parameter is None:
            continue
        kernel.parameters.append(parameter)
        if parameter.index is not None:
            _claim_index(report, cursor, parameter, taken[parameter.kind])
    _assign_indices(report, kernel, taken)
    _check_builtin_types(report, kernel)


def _read_parameter(report, cursor, values):
    annotations = types.annotations_of(cursor)
    if "builtin" in annotations:
        return _read_builtin(report, cursor, annotations["builtin"])
    checked = cursor.type.get_canonical()
    pointee = _pointee(checked)
    given = next((a for a in ("buffer", "threadgroup") if a in annotations), None)
    if pointee is None:
        error = f"is not valid for attribute '{given}'"
        if given is None:
            error = "for input declaration in a kernel function"
        prefix = "invalid type" if given is None else "type"
        return report.refuse(cursor, f"{prefix} '{types.plain_type(cursor.type)}' {error}")
    space = types.space_of_elements(pointee)
    named = in_metal_words(pointee.spelling)
    if space == types.THREAD:
        return report.refuse(
            cursor,
            f"invalid address space qualification for buffer pointee type '{named}': a kernel "
            "takes device, constant and threadgroup pointers",
        )
    if space not in (types.DEVICE, types.CONSTANT, types.THREADGROUP):
        return None  # check_pointers() refuses it
    kind = "threadgroup" if space == types.THREADGROUP else "buffer"
    if given is not None and given != kind:
        return report.refuse(
            cursor, f"invalid address space qualification for {given} pointee type '{named}'"
        )
    element = pointee.get_array_element_type() if types.is_array(checked) else pointee
    return Parameter(
        names.original(cursor.spelling),
        kind,
        types.plain_type(cursor.type),
        index=_number(annotations[kind], values) if given else None,
        writable=space == types.DEVICE and not types.has_const_elements(pointee),
        by_reference=types.kind_of(checked) == TypeKind.LVALUEREFERENCE,
        constant=space == types.CONSTANT,
        element_size=max(element.get_size(), 0),
        alignment=max(element.get_align(), 1),
        numbers=types.numbers_of(element),
    )


def _pointee(checked):
    """Returns the pointee of a parameter's type, or None if the type is no pointer.

    In C++ a parameter that is declared as an array is a pointer.  But libclang gives such a
    parameter the type of the array, so this function returns the array's type.
    """
    if types.is_array(checked):
        return checked if types.space_of_elements(checked) not in (0, types.THREAD) else None
    if types.kind_of(checked) in (TypeKind.POINTER, TypeKind.LVALUEREFERENCE):
        return checked.get_pointee()
    return None


def _claim_index(report, cursor, parameter, taken):
    """Adds a parameter to `taken`, {index: parameter of the same kind}, or reports an error."""
    kind, index = parameter.kind, parameter.index
    if not 0 <= index < MAX_BUFFERS:
        report.error(
            cursor,
            f"'{kind}' attribute parameter is out of bounds: must be between 0 "
            f"and {MAX_BUFFERS - 1}",
        )
        parameter.index = 0
    elif taken.setdefault(index, parameter) is not parameter:
        report.error(
            cursor,
            f"cannot reserve '{kind}' resource location at index {index}: parameter "
            f"'{taken[index].name}' has it",
        )


def _assign_indices(report, kernel, taken):
    """Gives each parameter without an index the lowest free index."""
    for parameter in kernel.parameters:
        if parameter.kind == "builtin" or parameter.index is not None:
            continue
        used = taken[parameter.kind]
        free = set(range(MAX_BUFFERS)) - used.keys()
        if not free:
            report.error(
                kernel.cursor,
                f"kernel '{kernel.name}' has more than {MAX_BUFFERS} {parameter.kind} parameters",
            )
        parameter.index = min(free, default=0)
        used[parameter.index] = parameter


def _read_builtin(report, cursor, attribute):
    scalar, components = cursor.type.get_canonical(), 1
    if types.kind_of(scalar) == TypeKind.EXTVECTOR:
        components = scalar.element_count
        scalar = scalar.element_type.get_canonical()
    most = 1 if attribute in names.BUILTINS_OF_ONE_DIMENSION else 3
    scalar_name = {TypeKind.USHORT: "ushort", TypeKind.UINT: "uint"}.get(types.kind_of(scalar))
    spelling = types.plain_type(cursor.type)
    if scalar_name is None or components > most:
        return report.refuse(cursor, f"type '{spelling}' is not valid for attribute '{attribute}'")
    return Parameter(
        names.original(cursor.spelling),
        "builtin",
        spelling,
        builtin=attribute,
        components=components,
        scalar=scalar_name,
    )


def _check_builtin_types(report, kernel):
    """Reports an error if built-in parameters whose types must match have different types."""
    by_name = {p.builtin: p for p in kernel.parameters if p.kind == "builtin"}

    def of(group):
        return [by_name[name] for name in group if name in by_name]

    vectors = [p for p in of(names.BUILTINS_OF_THREE_DIMENSIONS) if p.components > 1]
    groups = [(vectors, "components"), *((of(group), "type_spelling") for group in _SAME_TYPE)]
    for group, key in groups:
        for other in group[1:]:
            if getattr(other, key) != getattr(group[0], key):
                report.error(
                    kernel.cursor,
                    f"the types of '{group[0].builtin}' ({group[0].type_spelling}) and "
                    f"'{other.builtin}' ({other.type_spelling}) need to match",
                )
                break
