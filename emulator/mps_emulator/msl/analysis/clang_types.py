"""What clang says of types and declarations, as far as the analysis asks."""

import re

from ..diagnostics import in_metal_words

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

# clang's name of bfloat, which libclang has no kind for.
_BFLOAT = "__bf16"


class ClangTypes:
    """Questions to the types of one parse."""

    def _type_kind(self, checked):
        try:
            return checked.kind
        except ValueError:
            return None

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
