"""Words: those that MSL has not, and those that C++ for OpenCL has."""

from . import names
from .edits import Step


class Words(Step):
    """function_constants: the program's FunctionConstants."""

    def __init__(self, edits, function_constants):
        super().__init__(edits)
        self._function_constants = function_constants

    def replace_pragmas(self):
        """The place of the first Metal header is where its names begin."""
        for index, token in enumerate(self._tokens):
            if token.kind != "directive":
                continue
            words = token.text.split()
            if words[:2] == ["#pragma", "mps_emulator"]:
                header = {"metal_stdlib": "stdlib.h", "simd": "simd.h"}
                self._edits.replace(
                    index,
                    '#include "implementation/%s"' % header[words[2]],
                )
            elif words[:2] == ["#pragma", "METAL"]:
                self._edits.replace(index, "")

    def refuse(self):
        s = self._structure
        internals = False
        for index, token in enumerate(self._tokens):
            words = token.text.split()
            if words[:3] == ["#pragma", "METAL", "internals"]:
                # What Metal's own headers may do.
                internals = words[-1] == "enable"
            if token.kind != "identifier" or internals:
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
                    index,
                    "Metal does not support the 'register' storage class "
                    "specifier",
                )
            elif s.text(s.previous(index)) not in (".", "->", "::"):
                self._refuse_unsupported(index, text)

    def _refuse_word(self, index, text):
        self._edits.error(index, "'%s' is not supported in Metal" % text)

    def _is_attribute_word(self, index):
        """Inside __attribute__((...)), where words mean something else."""
        s = self._structure
        outer = s.previous(index)
        return s.text(outer) == "(" and s.text(s.previous(outer)) == "("

    def _refuse_unsupported(self, index, text):
        what = names.UNSUPPORTED_WORDS.get(text)
        for prefix, name in names.UNSUPPORTED_PREFIXES.items():
            if text.startswith(prefix):
                what = name
        if text in names.UNSUPPORTED_SPACES:
            what = "the address space '%s'" % text
        if what is not None and self._is_used_as_keyword(index):
            self._edits.error(
                index,
                "Metal has %s, the emulator has not: '%s'" % (what, text),
            )

    def _is_used_as_keyword(self, index):
        """Whether a word that may be a plain name as well is none here."""
        s = self._structure
        following = index + 1
        return (
            s.is_identifier(following)
            or s.text(following) == "<"
            or (s.text(index - 1) == "[" and s.text(index - 2) == "[")
        )

    def rename(self):
        s = self._structure
        for index, token in enumerate(self._tokens):
            if index in self._edits.claimed:
                continue
            if token.kind == "number":
                self._rewrite_number(index, token.text)
                continue
            if token.kind != "identifier":
                continue
            if token.text == "kernel":
                self._edits.replace(index, names.annotate("kernel"))
            elif token.text == "coherent" and self._is_coherent(index):
                end = index + 1
                if s.text(end) == "(":
                    end = s.end_of_bracket(end)
                self._edits.erase(index, end)
            elif token.text == "__mps_emulator_is_function_constant_defined":
                self._function_constants.replace_is_defined(index)
            elif token.text == "vec" and s.text(index + 1) == "<":
                self._rewrite_vector_template(index)
            elif token.text == "metal" and s.text(index + 1) == "::":
                # half is a keyword for clang, and no member of a namespace.
                if s.text(index + 2) == "half":
                    self._edits.erase(index, index + 2)
            else:
                renamed = names.renamed(self._structure.text(index))
                if renamed is not None:
                    self._edits.replace(index, renamed)

    def _is_coherent(self, index):
        s = self._structure
        following = index + 1
        if s.text(following) == "(":
            return s.text(following + 1) in names.COHERENCE_SCOPES
        return s.text(following) in names.ADDRESS_SPACES

    def _rewrite_number(self, index, text):
        """0.5bf and 0.5H; clang knows 0.5h alone."""
        lower = text.lower()
        if lower.startswith("0x"):
            return
        if lower.endswith("bf"):
            self._edits.replace(index, "((bfloat)%sf)" % text[:-2])
        elif text.endswith("H"):
            self._edits.replace(index, text[:-1] + "h")

    def _rewrite_vector_template(self, index):
        """vec<bool, 4>: clang has no vectors of booleans."""
        s = self._structure
        begin = index
        if s.text(index - 1) == "::" and s.text(index - 2) == "metal":
            begin = index - 2
        if s.text(index + 2) == "bool" and s.text(index + 3) == ",":
            self._edits.erase(begin, index)
            self._edits.replace(index, "__msl::bool_vector")
            self._edits.erase(index + 2, index + 4)
        elif s.text(s.previous(begin)) == "typedef":
            # The type may come out as bool.  Elsewhere this would keep clang
            # from deducing it.
            end = s.end_of_template_arguments(index + 1)
            if end is not None and s.text(end - 1) == ">":
                self._edits.erase(begin, index)
                self._edits.replace(index, "typename __msl::any_vector")
                self._edits.insert_after(end - 1, "::type")
