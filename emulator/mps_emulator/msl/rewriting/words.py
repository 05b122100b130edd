"""Refuses words of C++ that MSL lacks, and renames words that C++ for OpenCL reserves."""

import re

from . import names
from .edits import Step
from .structure import OPENING

# A floating-point literal without a suffix.
_UNSUFFIXED = re.compile(
    r"[0-9']+\.[0-9']*(e[+-]?[0-9']+)?|\.[0-9']+(e[+-]?[0-9']+)?"
    r"|[0-9']+e[+-]?[0-9']+|0x[0-9a-f'.]+p[+-]?[0-9']+"
)

# {argument of #pragma METAL fp: clang's pragma}.
_FP_PRAGMAS = {
    "math_mode(safe)": "float_control(precise, on)",
    # In this mode clang may rearrange sums and products.  Otherwise the mode is like
    # math_mode(safe).
    "math_mode(relaxed)": (
        "float_control(precise, on)\n#pragma clang fp reassociate(on) reciprocal(on) contract(fast)"
    ),
    "math_mode(fast)": "float_control(precise, off)",
    "contract(off)": "clang fp contract(off)",
    "contract(on)": "clang fp contract(on)",
    "contract(fast)": "clang fp contract(fast)",
}


class Words(Step):
    """Refuses and renames words."""

    def replace_pragmas(self) -> None:
        """Translates #pragma METAL fp for clang, and removes Metal's other pragmas.

        Also removes #pragma mps_emulator.  The headers in include/metal have #pragma mps_emulator
        in place of declarations.  pipeline.py includes the declarations before the program.
        """
        for index, token in enumerate(self._tokens):
            if token.kind != "directive":
                continue
            words = token.text.split()
            if words[:2] == ["#pragma", "mps_emulator"]:
                self._edits.replace(index, "")
            elif words[:3] == ["#pragma", "METAL", "fp"]:
                pragma = _FP_PRAGMAS.get("".join(words[3:]))
                self._edits.replace(index, f"#pragma {pragma}" if pragma else "")
            elif words[:2] == ["#pragma", "METAL"]:
                self._edits.replace(index, "")

    def refuse(self) -> None:
        """Adds an error for each word that Metal's compiler refuses."""
        s = self._structure
        for index, token in enumerate(self._tokens):
            if token.kind != "identifier":
                continue
            text = token.text
            if text in names.REFUSED_WORDS:
                if text == "delete" and s.text(s.previous(index)) == "=":
                    continue
                if self._is_attribute_word(index):
                    continue
                self._refuse_word(index, text)
            elif text == "long" and s.text(index + 1) == "long":
                self._refuse_word(index, "long long")
            elif text == "register":
                self._edits.error(
                    index, "Metal does not support the 'register' storage class specifier"
                )

    def _refuse_word(self, index, text):
        self._edits.error(index, f"'{text}' is not supported in Metal")

    def _is_attribute_word(self, index):
        """Whether the word is the name of an attribute in __attribute__((...))."""
        s = self._structure
        inner = s.previous(index)
        outer = s.previous(inner)
        words = [s.text(at) for at in (s.previous(outer), outer, inner)]
        return words == ["__attribute__", "(", "("]

    def rename(self) -> None:
        """Rewrites the words and literals that no earlier step has claimed."""
        s = self._structure
        for index, token in enumerate(self._tokens):
            if index in self._edits.claimed:
                continue
            if token.kind == "string" or token.text == "__func__":
                self._rewrite_text(index)
            elif token.kind == "number":
                self._rewrite_number(index, token.text)
                continue
            if token.kind != "identifier":
                continue
            if token.text == "kernel":
                self._edits.replace(index, names.annotate("kernel"))
            elif token.text == "vec" and s.text(index + 1) == "<":
                self._rewrite_vector_template(index)
            elif token.text == "metal" and s.text(index + 1) == "::":
                # `half` is a keyword of clang, and a namespace cannot qualify a keyword.
                if s.text(index + 2) == "half":
                    self._edits.erase(index, index + 2)
            else:
                renamed = names.renamed(self._structure.text(index))
                if renamed is not None:
                    self._edits.replace(index, renamed)

    def _rewrite_text(self, index):
        """Casts a string literal to `constant char *` if the literal is used as a value.

        In MSL a string literal is in `constant` memory.  clang puts it into another address space.
        """
        s = self._structure
        before = s.previous(index)
        in_function = s.scope[index].in_function
        if s.text(before) in ("(", ","):
            opening = self._opening_bracket(before)
            if not (in_function or self._is_initializer(opening)):
                return
            called = s.previous(opening)
            is_assertion = s.text(called) in ("static_assert", "_Static_assert")
            if s.text(opening) != "(" or is_assertion or self._is_attribute_word(called):
                return
        elif not in_function:
            return
        elif s.text(before) == "=":
            if s.text(s.previous(before)) == "]":  # the literal initializes an array
                return
        elif s.text(before) not in ("return", "?", ":"):
            return
        last = index
        while s.kind(last + 1) == "string":
            last += 1
        self._edits.insert_before(index, "MSL_TEXT(")
        self._edits.insert_after(last, ")")

    def _is_initializer(self, opening):
        """Whether the ( at `opening` begins the initializer of a variable: `T name(...)`."""
        s = self._structure
        name = s.previous(opening)
        return s.is_identifier(name) and s.is_identifier(s.previous(name))

    def _opening_bracket(self, index):
        """Returns the index of the innermost opening bracket around token `index`, or -1.

        If token `index` itself is an opening bracket, returns `index`.
        """
        s = self._structure
        return next((i for i in s.backwards(index) if s.text(i) in OPENING), -1)

    def _rewrite_number(self, index, text):
        """Rewrites number literals that clang refuses or that have another type in clang.

        clang accepts the suffix h, but not H and bf.  In MSL, a literal without a suffix is a
        float.  In clang such a literal becomes a double when a template is instantiated.
        """
        lower = text.lower()
        if _UNSUFFIXED.fullmatch(lower):
            self._edits.replace(index, text + "f")
        elif lower.startswith("0x"):
            return
        elif lower.endswith("bf"):
            self._edits.replace(index, f"((bfloat){text[:-2]}f)")
        elif text.endswith("H"):
            self._edits.replace(index, text[:-1] + "h")

    def _rewrite_vector_template(self, index):
        """Replaces vec<bool, N> with a class, because clang has no vectors of booleans."""
        s = self._structure
        begin = index
        if s.text(index - 1) == "::" and s.text(index - 2) == "metal":
            begin = index - 2
        if s.text(index + 2) == "bool" and s.text(index + 3) == ",":
            self._edits.erase(begin, index)
            self._edits.replace(index, "__msl::bool_vector")
            self._edits.erase(index + 2, index + 4)
        elif s.text(s.previous(begin)) == "typedef":
            # The component type can be a template parameter whose value is bool.  Only typedefs
            # are rewritten: if a parameter had the rewritten type, clang could not deduce template
            # arguments from this type.
            end = s.end_of_template_arguments(index + 1)
            if end is not None and s.text(end - 1) == ">":
                self._edits.erase(begin, index)
                self._edits.replace(index, "typename __msl::any_vector")
                self._edits.insert_after(end - 1, "::type")
