"""Refuses what Metal's rules on memory refuse, of variables, pointers and conversions."""

from ..diagnostics import in_metal_words
from .clang_types import _BFLOAT, _SPACE_NAMES, CONSTANT, DEFAULT, DEVICE, GENERIC, _annotations

# How far apart the emulator lays threadgroup variables.
THREADGROUP_ALIGNMENT = 16


class AddressSpaces:
    """The rules of address spaces."""

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


def _align_up(value, alignment):
    return (value + alignment - 1) // alignment * alignment
