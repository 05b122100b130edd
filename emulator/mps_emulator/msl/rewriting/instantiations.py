"""Rewrites explicit instantiations of kernel templates."""

import dataclasses

from . import names
from .attributes import parse_attributes, string_argument
from .edits import Edits, Step


@dataclasses.dataclass
class Instantiation:
    """An explicit instantiation of a kernel template."""

    number: int  # its number among the instantiations of the program, from 0
    token: int  # the index of its token `template`
    host_name: str | None  # the argument of [[host_name]]
    expression: str  # an expression for the instance's address, valid in the rewritten text

    @property
    def assertion(self) -> str:
        """A static assertion from which the analysis finds the function in clang's AST."""
        return (
            f" static_assert(sizeof({self.expression}) != 0, "
            f'"{names.ANNOTATION}instance:{self.number}");'
        )


class Instantiations(Step):
    """Rewrites the explicit instantiations of kernel templates.

    Attributes:
      found: the instantiations, by the index of the ; that ends the instantiation.
    """

    def __init__(self, edits: Edits):
        super().__init__(edits)
        self.found: dict[int, Instantiation] = {}

    def run(self) -> None:
        s = self._structure
        for index, token in enumerate(self._tokens):
            if (
                token.text == "template"
                and token.kind == "identifier"
                and s.text(index + 1) != "<"
                and s.scope[index].kind == "namespace"
            ):
                end = self._structure.end_of_statement(index)
                self._rewrite_instantiation(index, end)

    def _rewrite_instantiation(self, begin, end):
        s = self._structure
        is_kernel = False
        host_name = None
        index = begin + 1
        kept = []
        while index < end:
            if s.text(index) == "[" and s.text(index + 1) == "[":
                close = s.end_of_bracket(index)
                for name, _, arguments in parse_attributes(s, index, close):
                    is_kernel = is_kernel or name in ("kernel", "host_name")
                    if name == "host_name":
                        host_name = string_argument(self._tokens, arguments)
                self._edits.erase(index, close)
                index = close
                continue
            if s.text(index) == "kernel":
                is_kernel = True
                self._edits.erase(index, index + 1)
            else:
                kept.append(index)
            index += 1
        if not is_kernel:
            return
        number = len(self.found)
        declaration, expression = self._address_of_instance(kept, number)
        if expression is None:
            self._edits.error(begin, "cannot read this instantiation of a kernel")
            return
        self._edits.insert_after(end, declaration)
        self.found[end] = Instantiation(number, begin, host_name, expression)

    def _address_of_instance(self, kept, number):
        """Returns C++ for the address of an instance.

        Args:
          kept: the indices of the instantiation's tokens, except `template` and the attributes.
        Returns:
          Declarations; and an expression for the address, which is valid after the declarations.
          The expression is None if the instantiation cannot be read.
        """
        s = self._structure
        texts = [s.text(i) for i in kept]
        if "decltype" in texts:
            # decltype(f<float>) f<float>
            opening = kept[texts.index("decltype") + 1]
            after = s.end_of_bracket(opening)
            name = self._edits.spelling([i for i in kept if i >= after])
            return "", "&" + name
        if "void" not in texts:
            return "", None
        after_type = texts.index("void") + 1
        close = kept[-1]
        if s.text(close) != ")" or close not in s.match:
            return "", None
        opening = s.match[close]
        # The expression casts the template's address to the type of a pointer to a function with
        # the instantiation's parameters, so that clang chooses an overload and deduces template
        # arguments.  This type is a typedef, because outside of typedefs clang gives the pointer an
        # address space.
        declaration = (
            f" typedef void (*__msl_instance_{number})"
            f"({self._edits.spelling([i for i in kept if opening < i < close])});"
        )
        name = self._edits.spelling([i for i in kept[after_type:] if i < opening])
        expression = f"static_cast<__msl_instance_{number}>(&{name})"
        return declaration, expression
