"""Checks Metal's rules for the address spaces of variables, pointers and conversions.

The argument `report` of these functions receives the errors.
"""

from collections.abc import Callable

from clang.cindex import Cursor, CursorKind, StorageClass, Type, TypeKind

from ..diagnostics import in_metal_words
from . import clang_types as types
from .functions import Function
from .report import Report

# The least alignment of a threadgroup variable in the emulator, in bytes.
_THREADGROUP_ALIGNMENT = 16
_PROGRAM_SCOPES = (
    CursorKind.TRANSLATION_UNIT,
    CursorKind.NAMESPACE,
    CursorKind.STRUCT_DECL,
    CursorKind.CLASS_DECL,
    CursorKind.CLASS_TEMPLATE,
    CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
)


def check_variable(
    report: Report, cursor: Cursor, function: Function | None, is_constant: Callable[[int], bool]
) -> None:
    """Checks the declaration of a variable, a parameter or a field.

    Args:
      function: the function whose body contains the declaration, or None.
      is_constant: the method Rewriter.is_constant().
    """
    if cursor.kind == CursorKind.VAR_DECL:
        if cursor.spelling.startswith(("__range", "__begin", "__end")):
            return  # a variable that clang adds to a range-based `for` loop
        annotations = types.annotations_of(cursor)
        if "threadgroup" in annotations:
            _place_in_threadgroup_memory(report, cursor, function)
        if cursor.semantic_parent.kind in _PROGRAM_SCOPES:
            _check_program_scope(report, cursor, annotations, is_constant)
        elif cursor.storage_class == StorageClass.STATIC:
            report.error(cursor, "variables in function scope cannot be declared static")
    check_pointers(report, cursor, cursor.type)


def _check_program_scope(report, cursor, annotations, is_constant):
    if annotations.keys() & {"builtin", "buffer", "threadgroup"}:
        report.error(
            cursor,
            "the emulator does not support Metal's bindings at program scope: "
            f"make '{cursor.spelling}' a parameter of the kernel",
        )
    # clang puts variables at program scope into constant memory even without the word `constant`.
    elif types.space_of_elements(cursor.type) != types.CONSTANT or not is_constant(
        report.token_at(cursor.location.offset)
    ):
        report.error(cursor, "program scope variable must reside in constant address space")


def _place_in_threadgroup_memory(report, cursor, function):
    if function is None or not function.is_kernel:
        report.error(
            cursor,
            "a variable in threadgroup address space can only be declared in a kernel function",
        )
        return
    # The size of a dependent type is negative.  Only a template has such types, and each instance
    # of the template, which is a function of its own, counts its own bytes.
    pointee = cursor.type.get_pointee()
    alignment = max(pointee.get_align(), _THREADGROUP_ALIGNMENT)
    begin = -(-function.threadgroup_bytes // alignment) * alignment
    function.threadgroup_bytes = begin + pointee.get_size()


def check_pointers(report: Report, cursor: Cursor, checked: Type) -> None:
    """Refuses a type if a pointer or reference in it names no address space.

    Args:
      cursor: the place of the error.
    """
    for pointer in types.pointers_of(checked):
        pointee = pointer.get_pointee()
        what = "pointer" if types.kind_of(pointer) == TypeKind.POINTER else "reference"
        # Metal's compiler accepts `device float *&p`: a reference to a pointer needs no address
        # space.
        if what == "reference" and types.kind_of(pointee.get_canonical()) == TypeKind.POINTER:
            continue
        if types.space_of_elements(pointee) in (types.DEFAULT, types.GENERIC):
            report.error(cursor, f"{what} type must have explicit address space qualifier")
            return


def check_conversion(report: Report, cursor: Cursor, role: str | None) -> None:
    """Checks an expression that may be an implicit conversion.

    Args:
      role: the argument `role` of Analysis._examine().
    """
    children = list(cursor.get_children())
    if len(children) != 1:
        return
    to, origin = cursor.type, children[0].type
    # A member function for `device` objects gets the same keyword as a member function for
    # `constant` objects (see names.METHOD_SPACES).  So a call of a member function may convert a
    # `device` object to a `constant` object.
    if (
        role != "object"
        and types.space_of(to) == types.CONSTANT
        and types.space_of(origin) == types.DEVICE
    ):
        report.error(
            cursor,
            f"cannot convert from '{in_metal_words(origin.spelling)}' to "
            f"'{in_metal_words(to.spelling)}': the address spaces differ",
        )
    plain = origin.get_canonical()
    if (
        role != "cast"
        and to.get_canonical().spelling.split()[-1:] == [types.BFLOAT]
        and types.kind_of(plain) in (TypeKind.FLOAT, TypeKind.HALF)
    ):
        report.error(
            cursor, f"'{in_metal_words(plain.spelling)}' cannot be implicitly converted to 'bfloat'"
        )


def check_cast(report: Report, cursor: Cursor) -> bool:
    """Checks an explicit cast between pointers.

    Returns:
      False if the cast changes the address space, which is an error.
    """
    if types.kind_of(cursor.type) != TypeKind.POINTER:
        return True
    check_pointers(report, cursor, cursor.type)
    to = types.space_of(cursor.type)
    spaces = (types.CONSTANT, types.THREADGROUP, types.THREAD, types.DEVICE)
    for child in cursor.get_children():
        if not child.kind.is_expression():
            continue
        while child.kind == CursorKind.UNEXPOSED_EXPR:
            inner = list(child.get_children())
            if len(inner) != 1:
                break
            child = inner[0]
        origin = types.space_of(child.type)
        if types.kind_of(child.type) != TypeKind.POINTER or origin == to:
            continue
        if origin in spaces and to in spaces:
            report.error(
                cursor,
                f"cast from '{in_metal_words(child.type.spelling)}' to "
                f"'{in_metal_words(cursor.type.spelling)}' converts between mismatching "
                "address spaces",
            )
            return False
    return True
