"""Answers questions about libclang's types and declarations."""

import re
from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind, Type, TypeKind

from ..diagnostics import in_metal_words
from ..rewriting.names import ANNOTATION

# The values of the enumeration clang::LangAS in clang 19.
DEFAULT = 0
CONSTANT = 1  # opencl_global
THREADGROUP = 2
THREAD = 4
GENERIC = 5
DEVICE = 6  # opencl_global_device

# clang's name of the type bfloat.  libclang's enumeration of kinds lacks this type.
BFLOAT = "__bf16"

REFERENCES = (TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE)
_ARRAYS = (
    TypeKind.CONSTANTARRAY,
    TypeKind.INCOMPLETEARRAY,
    TypeKind.DEPENDENTSIZEDARRAY,
    TypeKind.VARIABLEARRAY,
)


def kind_of(checked: Type) -> TypeKind | None:
    """Returns the kind of a type, or None if the Python package clang has no name for the kind."""
    try:
        return checked.kind
    except ValueError:
        return None


def is_array(checked: Type) -> bool:
    return kind_of(checked) in _ARRAYS


def _element_type(checked):
    """Returns the element type of an array of any dimension; of another type, the type itself."""
    checked = checked.get_canonical()
    while is_array(checked):
        checked = checked.get_array_element_type().get_canonical()
    return checked


def _address_space(checked):
    # For an invalid type, libclang's get_address_space() would dereference a null pointer.
    return DEFAULT if kind_of(checked) == TypeKind.INVALID else checked.get_address_space()


def space_of(checked: Type) -> int:
    """Returns the address space of a pointer's pointee, or of an object of another type."""
    is_pointer = kind_of(checked) == TypeKind.POINTER
    return _address_space(checked.get_pointee() if is_pointer else checked)


def space_of_elements(checked: Type) -> int:
    """Returns the address space of an array's elements, or of an object of another type."""
    # In clang, the address space of an array's elements is a qualifier of the array's type.
    return (
        _address_space(checked)
        or _address_space(checked.get_canonical())
        or _address_space(_element_type(checked))
    )


def has_const_elements(checked: Type) -> bool:
    """Whether a type, or the elements of an array, is `const`."""
    forms = (checked, checked.get_canonical(), _element_type(checked))
    return any(form.is_const_qualified() for form in forms)


def pointers_of(checked: Type) -> Iterator[Type]:
    """Yields the pointers and references of a type, from the outermost to the innermost.

    Stops before a pointer to a function.
    """
    while True:
        checked = _element_type(checked)
        if kind_of(checked) not in (TypeKind.POINTER, *REFERENCES):
            return
        pointee = checked.get_pointee()
        if kind_of(pointee) in (TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO):
            return
        yield checked
        checked = pointee


def plain_type(checked: Type) -> str:
    """Returns the text of a parameter's type in MSL."""
    return in_metal_words(checked.spelling.replace("__private ", ""))


def annotations_of(cursor: Cursor) -> dict[str, str]:
    """Returns the annotations that the rewriter gave a declaration, {name: value}."""
    texts = [c.spelling for c in cursor.get_children() if c.kind == CursorKind.ANNOTATE_ATTR]
    parts = [t[len(ANNOTATION) :].partition(":") for t in texts if t.startswith(ANNOTATION)]
    return {name: value for name, _, value in parts}


# {clang's name of an unqualified type: MSL's name}.
_NUMBERS = {
    **{name: name for name in "float half bool char short int long".split()},
    **{"unsigned " + name: "u" + name for name in "char short int long".split()},
    "signed char": "char",
    BFLOAT: "bfloat",
}
_ATOMIC = re.compile(r"metal::_atomic<([\w ]+)>")
_QUALIFIER = re.compile(
    r"\b(?:const|volatile|__(?:global|constant|local|private)\w*)\b"
    r"|__attribute__\(\(ext_vector_type\(\d\)\)\)"
)


def numbers_of(element: Type) -> str | None:
    """Returns the value of kernel.Parameter.numbers for a pointee of this type."""
    element = element.get_canonical()
    name = _QUALIFIER.sub("", element.spelling).strip()
    atomic = _ATOMIC.fullmatch(name)
    number = _NUMBERS.get(atomic[1] if atomic else name)
    if number is not None:
        return number
    if element.get_array_size() >= 0:
        return numbers_of(element.element_type)
    fields = {numbers_of(field.type) for field in element.get_fields()}
    return fields.pop() if len(fields) == 1 else None
