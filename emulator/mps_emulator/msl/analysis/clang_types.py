"""The analysis's queries to libclang about types and declarations."""

import re

from clang.cindex import CursorKind, TypeKind

from ..diagnostics import in_metal_words
from ..rewriting.names import ANNOTATION

# Values of clang::LangAS; libclang returns them as numbers.
DEFAULT = 0
CONSTANT = 1  # opencl_global
THREADGROUP = 2
THREAD = 4
GENERIC = 5
DEVICE = 6  # opencl_global_device

# clang's name of bfloat, a type for which libclang has no kind.
BFLOAT = "__bf16"

REFERENCES = (TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE)
_ARRAYS = (
    TypeKind.CONSTANTARRAY,
    TypeKind.INCOMPLETEARRAY,
    TypeKind.DEPENDENTSIZEDARRAY,
    TypeKind.VARIABLEARRAY,
)


def kind_of(checked):
    """A type's kind; None for a kind that the Python package clang does not know."""
    try:
        return checked.kind
    except ValueError:
        return None


def is_array(checked):
    return kind_of(checked) in _ARRAYS


def _element_type(checked):
    """The innermost element type of an array, which may be an array of arrays."""
    checked = checked.get_canonical()
    while is_array(checked):
        checked = checked.get_array_element_type().get_canonical()
    return checked


def _address_space(checked):
    # Without a type libclang would dereference a null pointer.
    return DEFAULT if kind_of(checked) == TypeKind.INVALID else checked.get_address_space()


def space_of(checked):
    """The address space that a pointer points to, or that a glvalue lies in."""
    is_pointer = kind_of(checked) == TypeKind.POINTER
    return _address_space(checked.get_pointee() if is_pointer else checked)


def space_of_elements(checked):
    # clang puts the elements' qualifiers on the array; libclang's element type lacks them.
    return (
        _address_space(checked)
        or _address_space(checked.get_canonical())
        or _address_space(_element_type(checked))
    )


def has_const_elements(checked):
    forms = (checked, checked.get_canonical(), _element_type(checked))
    return any(form.is_const_qualified() for form in forms)


def pointers_of(checked):
    """The pointers and references in a type, the outermost first.

    The list ends before a pointer to a function.
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


def plain_type(checked):
    """A parameter's type in the program's spelling."""
    return in_metal_words(checked.spelling.replace("__private ", ""))


def annotations_of(cursor):
    """The annotations that the rewriter gave a declaration, {name: value}."""
    texts = [c.spelling for c in cursor.get_children() if c.kind == CursorKind.ANNOTATE_ATTR]
    parts = [t[len(ANNOTATION) :].partition(":") for t in texts if t.startswith(ANNOTATION)]
    return {name: value for name, _, value in parts}


# clang's names of types, without qualifiers.
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


def numbers_of(element):
    """The value of kernels.Parameter.numbers for a type."""
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
