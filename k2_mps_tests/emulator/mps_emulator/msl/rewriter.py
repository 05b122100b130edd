"""Rewrites MSL's own syntax as C++ for OpenCL that clang understands.

Only what needs no types is done here, token by token; line breaks stay, so
that clang's line numbers do.  In short:

- address space names become clang's; a member function that names none is one
  for objects in `thread` memory;
- attributes in [[ ]] become annotations in clang's AST;
- vector constructors and conversions become calls of functions in
  include/implementation/prelude.h;
- `threadgroup` variables become references to memory that the executor gives;
- a function constant gets its value;
- behind an explicit instantiation of a kernel template stands an assertion
  that leads to the instantiated function in the AST.
"""

from .diagnostics import Diagnostic, RewrittenMap
from .structure import CLOSING, OPENING, Structure

_SCALARS = (
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "float",
    "bfloat",
)
VECTOR_NAMES = frozenset(
    [t + n for t in _SCALARS + ("bool",) for n in "234"]
    + ["packed_" + t + n for t in _SCALARS for n in "234"]
)
# Words of which a type may be made that is no vector.
_SCALAR_WORDS = frozenset(
    _SCALARS
    + ("bool", "unsigned", "signed", "void", "size_t", "ptrdiff_t")
    + tuple("%sint%d_t" % (u, n) for u in ("", "u") for n in (8, 16, 32, 64))
)

ADDRESS_SPACES = {
    "device": "MSL_DEVICE",
    "constant": "MSL_CONSTANT",
    "threadgroup": "MSL_THREADGROUP",
    "thread": "MSL_THREAD",
}
# Behind the parameters of a member function clang takes keywords alone.  A
# constant object converts to the generic space, and to the one for device
# objects, whose function is then as good.
_METHOD_SPACES = {
    "device": "__global",
    "constant": "__generic",
    "threadgroup": "__local",
    "thread": "__private",
}
_UNSUPPORTED_SPACES = ("threadgroup_imageblock", "ray_data", "object_data")

# Keywords of OpenCL that are plain names in MSL.
_RENAMED = frozenset(
    """
    global local generic pipe read_only write_only read_write vec_step
    addrspace_cast sampler_t event_t clk_event_t queue_t reserve_id_t ndrange_t
    __global __local __constant __private __generic __kernel __read_only
    __write_only __read_write
    """.split()
)
_ATOMIC_NAMES = frozenset(
    ["atomic_int", "atomic_uint", "atomic_bool", "atomic_ulong", "atomic_float"]
)

# Words that C++ has and MSL has not.
_REFUSED_WORDS = frozenset(
    """
    double goto new delete virtual try catch throw dynamic_cast typeid noexcept
    thread_local asm co_await co_return co_yield
    """.split()
)
# Parts of Metal that the emulator does not have, by their first word.
_UNSUPPORTED_WORDS = {
    "vertex": "vertex functions",
    "fragment": "fragment functions",
    "visible_function_table": "visible function tables",
    "imageblock": "imageblocks",
    "sampler": "samplers",
    "acceleration_structure": "ray tracing",
}
_UNSUPPORTED_PREFIXES = {
    "texture1d": "textures",
    "texture2d": "textures",
    "texture3d": "textures",
    "texturecube": "textures",
    "texture_buffer": "textures",
    "depth2d": "textures",
    "depthcube": "textures",
}

BUILTINS_OF_THREE_DIMENSIONS = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "grid_origin",
    "grid_size",
)
BUILTINS_OF_ONE_DIMENSION = (
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup",
)
BUILTINS = frozenset(BUILTINS_OF_THREE_DIMENSIONS + BUILTINS_OF_ONE_DIMENSION)

# Attributes that clang knows under the same name.
_STANDARD_ATTRIBUTES = frozenset(
    [
        "maybe_unused",
        "nodiscard",
        "noreturn",
        "fallthrough",
        "deprecated",
        "likely",
        "unlikely",
    ]
)

_ANNOTATION = "msl."


class FunctionConstant:
    """A program-scope constant with [[function_constant(index)]].

    number: its place among the function constants of the text.
    type:   the words of its type, as in MSL.
    value:  a FunctionConstantValue.bytes, or None where none was given.
    """

    def __init__(self, number, token, name, type_words, index_text):
        self.number = number
        self.token = token
        self.name = name
        self.type = type_words
        self.index_text = index_text
        self.value = None


class Instantiation:
    """An explicit instantiation of a kernel template.

    token:      the index of its `template`.
    host_name:  what [[host_name]] says, or None.
    expression: an expression for the function's address, in rewritten text.
    """

    def __init__(self, number, token, host_name, expression):
        self.number = number
        self.token = token
        self.host_name = host_name
        self.expression = expression


class Rewriter:
    """Rewrites one list of tokens.

    constants: the values of function constants, {index or name: bytes}.

    Afterwards `errors` holds what is refused already here, `constants` and
    `instantiations` what the later steps need, and `emit` gives the text.
    """

    def __init__(self, tokens, source_map, constant_values=None):
        self.tokens = tokens
        self.errors = []
        self.constants = []
        self.instantiations = []
        self._source_map = source_map
        self._constant_values = dict(constant_values or {})
        self._structure = Structure(tokens)
        self._replaced = [None] * len(tokens)
        self._prefixes = {}  # index: [text, ...]
        self._suffixes = {}  # index: [(text, index of the origin), ...]
        self._anchors = {}  # index of a `;`: Instantiation
        self._claimed = set()  # tokens whose meaning has been settled
        self._template_parameters = set()
        self._type_aliases = set()
        self._class_methods = {}  # (class, method): is static
        self._thread_methods = []  # of one class: (name, its `thread`)
        self._other_methods = set()  # names of methods for other spaces
        self._values = 0  # enumerators made so far
        self._slots = 0  # threadgroup variables so far
        self._rewrite()

    # ---- Emission

    def emit(self, anchors=None):
        """Returns (text, RewrittenMap).

        anchors: what stands behind each explicit instantiation, by number;
                 by default an assertion that leads to the function.
        """
        pieces = []
        offsets = []
        indices = []
        length = 0

        def add(text, origin, is_space=False):
            nonlocal length
            if text:
                offsets.append(length)
                # White space begins where the token before it ends.
                indices.append((origin, is_space and origin > 0))
                pieces.append(text)
                # libclang counts bytes.
                length += len(text.encode(errors="surrogateescape"))

        for index, token in enumerate(self.tokens):
            add(token.space, index, is_space=True)
            for prefix in reversed(self._prefixes.get(index, ())):
                add(prefix, index)
            replaced = self._replaced[index]
            add(token.text if replaced is None else replaced, index)
            for suffix, origin in self._suffixes.get(index, ()):
                add(suffix, origin)
            if index in self._anchors:
                instantiation = self._anchors[index]
                if anchors is None:
                    add(_assertion(instantiation), instantiation.token)
                else:
                    add(anchors[instantiation.number], instantiation.token)
        add("\n", max(len(self.tokens) - 1, 0))
        return "".join(pieces), RewrittenMap(offsets, indices)

    def _replace(self, index, text):
        self._replaced[index] = text

    def _erase(self, begin, end):
        for index in range(begin, end):
            self._replaced[index] = ""
            self._claimed.add(index)

    def _insert_before(self, index, text):
        self._prefixes.setdefault(index, []).append(text)

    def _insert_after(self, index, text, origin=None):
        origin = index if origin is None else origin
        self._suffixes.setdefault(index, []).append((text, origin))

    def _error(self, index, message):
        location = self._source_map.locate(index)
        self.errors.append(Diagnostic(location, message))

    def is_constant(self, name):
        """Whether the variable whose name is token `name` says `constant`.

        That is the variable itself, not what it points to.
        """
        s = self._structure
        index = name - 1
        while index >= 0:
            text = s.text(index)
            if text == "constant":
                return True
            if text in ("*", "&", "&&", ";", "{", "}"):
                return False
            if text in CLOSING and index in s.match:
                index = s.match[index]
            index -= 1
        return False

    def convert_beside(self, first, last, other):
        """Converts the operand in tokens [first, last] to a component of
        `other`, the vector expression on the other side of an operator."""
        self._insert_before(
            first, "::__msl::beside<decltype(::__msl::plain(%s))>(" % other
        )
        self._insert_after(last, ")")

    def mark_call(self, first, last, is_void):
        """Tells the executor of a call, in tokens [first, last]."""
        token = self.tokens[first]
        column = self._source_map.locate(first).column
        enter = "::__msl::target::enter_call(%dul << 32 | %d)" % (
            token.line,
            column,
        )
        if is_void:
            self._insert_before(first, "(%s, " % enter)
            self._insert_after(last, ", ::__msl::target::leave_call())")
        else:
            self._insert_before(
                first, "::__msl::target::leave_call(%s, " % enter
            )
            self._insert_after(last, ")")

    # ---- The steps

    def _rewrite(self):
        self._replace_pragmas()
        self._refuse_words()
        self._collect_types()
        self._rewrite_attributes()
        self._rewrite_instantiations()
        self._rewrite_methods()
        self._rewrite_threadgroup_variables()
        self._rewrite_constructions()
        self._rewrite_names()

    def _replace_pragmas(self):
        """The place of the first Metal header is where its names begin."""
        for index, token in enumerate(self.tokens):
            if token.kind != "directive":
                continue
            words = token.text.split()
            if words[:2] == ["#pragma", "mps_emulator"]:
                header = {"metal_stdlib": "stdlib.h", "simd": "simd.h"}
                self._replace(
                    index,
                    '#include "implementation/%s"' % header[words[2]],
                )
            elif words[:2] == ["#pragma", "METAL"]:
                self._replace(index, "")

    def _refuse_words(self):
        s = self._structure
        internals = False
        for index, token in enumerate(self.tokens):
            words = token.text.split()
            if words[:3] == ["#pragma", "METAL", "internals"]:
                # What Metal's own headers may do.
                internals = words[-1] == "enable"
            if token.kind != "identifier" or internals:
                continue
            text = token.text
            if text in _REFUSED_WORDS:
                if text == "delete" and s.text(s.previous(index)) == "=":
                    continue
                if self._is_attribute_word(index):
                    continue
                self._error(index, "'%s' is not supported in Metal" % text)
            elif text == "long" and s.text(index + 1) == "long":
                self._error(index, "'long long' is not supported in Metal")
            elif text == "register":
                self._error(
                    index,
                    "Metal does not support the 'register' storage class "
                    "specifier",
                )
            elif s.text(s.previous(index)) not in (".", "->", "::"):
                self._refuse_unsupported(index, text)

    def _is_attribute_word(self, index):
        """Inside __attribute__((...)), where words mean something else."""
        s = self._structure
        outer = s.previous(index)
        return s.text(outer) == "(" and s.text(s.previous(outer)) == "("

    def _refuse_unsupported(self, index, text):
        what = _UNSUPPORTED_WORDS.get(text)
        for prefix, name in _UNSUPPORTED_PREFIXES.items():
            if text.startswith(prefix):
                what = name
        if text in _UNSUPPORTED_SPACES:
            what = "the address space '%s'" % text
        if what is not None:
            self._error(
                index,
                "Metal has %s, the emulator has not: '%s'" % (what, text),
            )

    # ---- Types

    def _collect_types(self):
        """Finds names that may turn out to be vectors."""
        s = self._structure
        for index, token in enumerate(self.tokens):
            if token.text == "template" and s.text(index + 1) == "<":
                self._collect_template_parameters(index + 1)
            elif token.text == "using" and s.text(index + 2) == "=":
                end = self._end_of_statement(index)
                self._note_alias(s.text(index + 1), index + 3, end)
            elif token.text == "typedef":
                end = self._end_of_statement(index)
                if s.is_identifier(end - 1):
                    self._note_alias(s.text(end - 1), index + 1, end - 1)

    def _collect_template_parameters(self, angle):
        s = self._structure
        end = s.end_of_template_arguments(angle) or angle
        for index in range(angle, end):
            if s.text(index) in ("typename", "class"):
                name = index + 1
                if s.text(name) == "...":
                    name += 1
                if s.is_identifier(name):
                    self._template_parameters.add(s.text(name))

    def _note_alias(self, name, begin, end):
        """`name` stands for the type in tokens [begin, end)."""
        s = self._structure
        for index in range(begin, end):
            text = s.text(index)
            if text in ("*", "&", "&&"):
                return
            if (
                text in VECTOR_NAMES
                or text in ("vec", "packed_vec", "typename", "decltype")
                or text in self._template_parameters
                or text in self._type_aliases
            ):
                self._type_aliases.add(name)
                return

    def _end_of_statement(self, index):
        """The index of the `;` that ends the statement around `index`."""
        s = self._structure
        while index < len(self.tokens) and s.text(index) != ";":
            if s.text(index) in OPENING:
                index = s.end_of_bracket(index)
            elif s.text(index) in CLOSING:
                break
            else:
                index += 1
        return index

    def _end_of_type(self, index):
        """The index after a type that may be a vector, None if it is none.

        Recognised are vector names, vec<...>, aliases and template parameters
        that may be vectors, and `typename ...`.
        """
        s = self._structure
        begin = index
        if s.text(s.previous(begin)) in (".", "->", "::"):
            return None
        if s.text(index) == "::":
            index += 1
        if s.text(index) == "metal" and s.text(index + 1) == "::":
            index += 2
        text = s.text(index)
        if not s.is_identifier(index):
            return None
        if text == "typename":
            return self._end_of_dependent_name(index + 1)
        if text in VECTOR_NAMES:
            return index + 1
        if text in ("vec", "packed_vec") and s.text(index + 1) == "<":
            return s.end_of_template_arguments(index + 1)
        if index == begin and (
            text in self._template_parameters or text in self._type_aliases
        ):
            if s.text(index + 1) == "<":
                return s.end_of_template_arguments(index + 1)
            return None if s.text(index + 1) == "::" else index + 1
        return None

    def _end_of_dependent_name(self, index):
        s = self._structure
        while True:
            if s.text(index) == "::":
                index += 1
            if s.text(index) == "template":
                index += 1
            if not s.is_identifier(index):
                return None
            index += 1
            if s.text(index) == "<":
                index = s.end_of_template_arguments(index)
                if index is None:
                    return None
            if s.text(index) != "::":
                return index

    # ---- Attributes

    def _rewrite_attributes(self):
        s = self._structure
        index = 0
        while index < len(self.tokens):
            if (
                s.text(index) == "["
                and s.text(index + 1) == "["
                and s.kind(index) == "punctuator"
                and s.match.get(index) == s.match.get(index + 1, -2) + 1
            ):
                end = s.end_of_bracket(index)
                self._rewrite_attribute_list(index, end)
                index = end
            else:
                index += 1

    def _attributes(self, begin, end):
        """[(name, index of the name, (begin, end) of arguments or None)]."""
        s = self._structure
        found = []
        index = begin + 2
        while index < end - 2:
            name = s.text(index)
            at = index
            index += 1
            while s.text(index) == "::":
                name += "::" + s.text(index + 1)
                index += 2
            arguments = None
            if s.text(index) == "(":
                arguments = (index + 1, s.match.get(index, index + 1))
                index = s.end_of_bracket(index)
            found.append((name, at, arguments))
            while index < end - 2 and s.text(index) != ",":
                index += 1
            index += 1
        return found

    def _rewrite_attribute_list(self, begin, end):
        attributes = self._attributes(begin, end)
        names = [name for name, _, _ in attributes]
        if "function_constant" in names and self._is_declaration(begin):
            self._rewrite_function_constant(begin, end, attributes)
            return
        if any(self._is_of_functions(name) for name in names):
            self._rewrite_function_attributes(begin, end, attributes)
            return
        annotations = []
        keep = []
        for name, at, arguments in attributes:
            annotation = self._parameter_annotation(name, at, arguments, begin)
            if annotation is not None:
                annotations.append(
                    'clang::annotate("%s%s")' % (_ANNOTATION, annotation)
                )
            elif name in _STANDARD_ATTRIBUTES or "::" in name:
                keep.append(name)
        if keep and not annotations:
            return
        self._erase(begin, end)
        if annotations:
            self._replace(begin, "[[" + ", ".join(annotations) + "]]")

    @staticmethod
    def _is_of_functions(name):
        return name in (
            "kernel",
            "host_name",
            "max_total_threads_per_threadgroup",
            "user_annotation",
            "visible",
            "stitchable",
        )

    def _rewrite_function_attributes(self, begin, end, attributes):
        self._erase(begin, end)
        words = []
        for name, at, arguments in attributes:
            if name == "kernel":
                words.append(_annotate("kernel"))
            elif name == "host_name":
                host_name = self._string(arguments)
                words.append(_annotate("host_name:" + host_name))
            elif name == "max_total_threads_per_threadgroup":
                value = self._value(at, arguments, self._body_after(end))
                words.append(_annotate("max_total_threads:" + value))
        self._replace(begin, " ".join(words))

    def _parameter_annotation(self, name, at, arguments, begin):
        """What stands for an attribute in the AST, None if nothing does."""
        if name in BUILTINS:
            return "builtin:" + name
        if name in ("buffer", "threadgroup"):
            if arguments is None:
                self._error(at, "'%s' attribute takes one argument" % name)
                return None
            body = self._body_of_parameter(begin)
            return name + ":" + self._value(at, arguments, body)
        if name == "function_constant":
            body = self._body_of_parameter(begin)
            return "if:" + self._value(at, arguments, body)
        if name in ("texture", "sampler", "stage_in", "payload"):
            return "unsupported:" + name
        return None

    def _string(self, arguments):
        begin, end = arguments or (0, 0)
        parts = [
            token.text[1:-1]
            for token in self.tokens[begin:end]
            if token.kind == "string"
        ]
        return "".join(parts)

    def _value(self, at, arguments, body):
        """An attribute's number: itself, or the name of an enumerator.

        A number that has to be computed, perhaps from template parameters,
        becomes an enumerator in the function's body, where clang computes it.
        """
        begin, end = arguments or (at, at)
        if end - begin == 1 and self.tokens[begin].kind == "number":
            return self.tokens[begin].text.rstrip("uUlL")
        if body is None:
            return "0"  # a declaration: the definition says the same again
        name = "__msl_value_%d" % self._values
        self._values += 1
        text = "".join(t.space + t.text for t in self.tokens[begin:end])
        text = " ".join(text.split())
        self._insert_after(body, " enum : long { %s = (%s) };" % (name, text))
        return name

    def _body_of_parameter(self, index):
        """The { of the function that has the parameter at `index`."""
        s = self._structure
        opening = None
        position = index
        while position >= 0:
            text = s.text(position)
            if text in CLOSING and position in s.match:
                position = s.match[position]
            elif text == "(":
                opening = position
            elif text in ("{", ";"):
                break
            position -= 1
        if opening is None:
            return None
        after = s.end_of_bracket(opening)
        return after if s.text(after) == "{" else None

    def _body_after(self, index):
        """The { of the function that is declared from `index` on."""
        s = self._structure
        while index < len(self.tokens) and s.text(index) not in (";", "{"):
            if s.text(index) in OPENING:
                index = s.end_of_bracket(index)
            else:
                index += 1
        return index if s.text(index) == "{" else None

    # ---- Function constants

    def _is_declaration(self, attribute):
        """Whether an attribute belongs to a variable at program scope."""
        scope = self._structure.scope[attribute]
        if scope.kind != "namespace":
            return False
        index = attribute
        while index >= 0 and self._structure.text(index) not in (";", "}"):
            if self._structure.text(index) == "(":
                return False
            index -= 1
        return True

    def _rewrite_function_constant(self, begin, end, attributes):
        s = self._structure
        name = begin - 1
        first = name
        while first > 0 and s.text(first - 1) not in (";", "}", "{"):
            if s.kind(first - 1) == "directive":
                break
            first -= 1
        words = [
            s.text(i)
            for i in range(first, name)
            if s.text(i) not in ("constant", "const", "static", "constexpr")
        ]
        first, last = next(
            found for n, _, found in attributes if n == "function_constant"
        )
        index_text = "".join(t.text for t in self.tokens[first:last])
        constant = FunctionConstant(
            len(self.constants), name, s.text(name), " ".join(words), index_text
        )
        constant.value = self._given_value(constant)
        self.constants.append(constant)
        self._erase(begin, end)
        self._replace(
            begin, _annotate("function_constant:%d" % constant.number)
        )
        try:
            literal = _literal(constant.type, constant.value)
        except ValueError as error:
            self._error(name, str(error))
            literal = "0"
        self._insert_after(end - 1, " = " + literal)

    def _given_value(self, constant):
        if constant.name in self._constant_values:
            return self._constant_values[constant.name]
        try:
            index = int(constant.index_text.rstrip("uU"), 0)
        except ValueError:
            self._error(
                constant.token,
                "the emulator needs a plain number in function_constant(%s)"
                % constant.index_text,
            )
            return None
        return self._constant_values.get(index)

    # ---- Explicit instantiations of kernels

    def _rewrite_instantiations(self):
        s = self._structure
        for index, token in enumerate(self.tokens):
            if (
                token.text == "template"
                and token.kind == "identifier"
                and s.text(index + 1) != "<"
                and s.scope[index].kind == "namespace"
            ):
                end = self._end_of_statement(index)
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
                for name, _, arguments in self._attributes(index, close):
                    is_kernel = is_kernel or name in ("kernel", "host_name")
                    if name == "host_name":
                        host_name = self._string(arguments)
                self._erase(index, close)
                index = close
                continue
            if s.text(index) == "kernel":
                is_kernel = True
                self._erase(index, index + 1)
            else:
                kept.append(index)
            index += 1
        if not is_kernel:
            return
        number = len(self.instantiations)
        declaration, expression = self._address_of_instance(kept, number)
        if expression is None:
            self._error(begin, "cannot read this instantiation of a kernel")
            return
        self._insert_after(end, declaration)
        instantiation = Instantiation(number, begin, host_name, expression)
        self.instantiations.append(instantiation)
        self._anchors[end] = instantiation

    def _address_of_instance(self, kept, number):
        """(what has to be declared, an expression for the address)."""
        s = self._structure
        texts = [s.text(i) for i in kept]
        if "decltype" in texts:
            # decltype(f<float>) f<float>
            opening = kept[texts.index("decltype") + 1]
            after = s.end_of_bracket(opening)
            return "", "&" + self._spelling([i for i in kept if i >= after])
        if "void" not in texts:
            return "", None
        after_type = texts.index("void") + 1
        close = kept[-1]
        if s.text(close) != ")" or close not in s.match:
            return "", None
        opening = s.match[close]
        # The parameters choose among overloads, and where the template
        # arguments are to be deduced.  Only as the type of a typedef clang
        # gives the pointer no address space.
        declaration = (
            " MSL_ALLOW_FUNCTION_POINTERS typedef void (*__msl_instance_%d)"
            "(%s); MSL_END_FUNCTION_POINTERS"
            % (
                number,
                self._spelling([i for i in kept if opening < i < close]),
            )
        )
        name = self._spelling([i for i in kept[after_type:] if i < opening])
        expression = "static_cast<__msl_instance_%d>(&%s)" % (number, name)
        return declaration, expression

    def _spelling(self, indices):
        """The rewritten text of tokens, on one line."""
        words = []
        for index in indices:
            text = self._structure.text(index)
            if self._structure.kind(index) == "identifier":
                text = self._renamed(index) or text
            words.append(text)
        return " ".join(words)

    # ---- Member functions

    def _rewrite_methods(self):
        for scope in self._structure.scopes:
            if scope.kind == "class":
                self._rewrite_class(scope)
        self._rewrite_methods_out_of_class()

    def _rewrite_class(self, scope):
        s = self._structure
        self._thread_methods = []
        self._other_methods = set()
        index = scope.brace + 1
        end = s.match.get(scope.brace, len(self.tokens))
        while index < end:
            if s.text(index) in ("public", "private", "protected"):
                index += 2
                continue
            index = self._rewrite_member(scope, index, end)
        # A temporary has no address space, and clang then finds none of
        # several members for certain spaces.  The one for thread memory
        # becomes one for any, which is chosen last.
        for name, qualifier in self._thread_methods:
            if name in self._other_methods:
                self._replace(qualifier, "")

    def _rewrite_member(self, scope, begin, end):
        """Rewrites one member declaration; returns where the next begins."""
        s = self._structure
        index = begin
        is_static = False
        is_function = True
        while index < end:
            text = s.text(index)
            if text == ";":
                return index + 1
            if text in ("static", "friend", "typedef", "using"):
                is_static = True
                is_function = text == "static"
            if text == "{":
                return s.end_of_bracket(index)
            if text == "=":
                return self._end_of_statement(index) + 1
            if text == "operator":
                name = index
                index += 1
                if s.text(index) == "(":
                    index += 2
                while s.text(index) != "(" and index < end:
                    index += 1
                return self._end_of_member_function(
                    scope, "operator", name, index, is_static or not is_function
                )
            if text in ("decltype", "alignas", "__attribute__", "explicit"):
                index += 1
                if s.text(index) == "(":
                    index = s.end_of_bracket(index)
                continue
            if text == "[":
                index = s.end_of_bracket(index)
                continue
            if text == "static_assert":
                return self._end_of_statement(index) + 1
            if text == "<":
                after = s.end_of_template_arguments(index)
                index = index + 1 if after is None else after
                continue
            if text == "(":
                name = s.text(index - 1)
                special = name == scope.name or s.text(index - 2) == "~"
                if special:
                    return self._end_of_constructor(index)
                return self._end_of_member_function(
                    scope, name, index - 1, index, is_static or not is_function
                )
            index += 1
        return end

    def _skip_member(self, index):
        """The index after the declaration or definition from `index` on."""
        s = self._structure
        while index < len(self.tokens):
            text = s.text(index)
            if text == ";":
                return index + 1
            if text == "{":
                index = s.end_of_bracket(index)
                # The braces of a member initializer are not the body.
                if s.text(index) in (",", "{"):
                    continue
                return index + (s.text(index) == ";")
            if text in OPENING:
                index = s.end_of_bracket(index)
            elif text in CLOSING:
                return index
            else:
                index += 1
        return index

    def _end_of_constructor(self, parameters):
        """Constructors make objects anywhere unless they say otherwise."""
        s = self._structure
        index = s.end_of_bracket(parameters)
        while s.text(index) in ("const",) or s.text(index) in _METHOD_SPACES:
            space = s.text(index)
            if space in _METHOD_SPACES:
                self._replace(
                    index, "" if space == "thread" else _METHOD_SPACES[space]
                )
                self._claimed.add(index)
            index += 1
        return self._skip_member(index)

    def _end_of_member_function(
        self, scope, name, begin, parameters, is_static
    ):
        """`begin`: where the name begins, for telling operators apart."""
        s = self._structure
        self._class_methods[(scope.name, name)] = is_static
        after = s.end_of_bracket(parameters)
        if not is_static:
            full_name = " ".join(
                s.text(i) for i in range(begin, parameters)
            )
            self._qualify_method(after, full_name)
        return self._skip_member(after)

    def _qualify_method(self, index, name=""):
        """Gives a member function the address space of its object."""
        s = self._structure
        last = index - 1
        named = False
        is_const = False
        while True:
            text = s.text(index)
            is_const = is_const or text == "const"
            if text in _METHOD_SPACES:
                self._replace(index, _METHOD_SPACES[text])
                self._claimed.add(index)
                named = True
                if text != "thread":
                    self._other_methods.add(name)
                elif is_const:
                    self._thread_methods.append((name, index))
            elif text not in ("const", "volatile"):
                break
            last = index
            index += 1
        is_defaulted = s.text(index) == "=" and s.text(index + 1) in (
            "default",
            "delete",
        )
        if not named and not is_defaulted:
            self._insert_after(last, " __private")

    def _rewrite_methods_out_of_class(self):
        s = self._structure
        for index, token in enumerate(self.tokens):
            if token.text != "(" or s.scope[index].kind != "namespace":
                continue
            name = index - 1
            if not s.is_identifier(name) or s.text(name - 1) != "::":
                continue
            is_static = self._class_methods.get(
                (s.text(name - 2), s.text(name))
            )
            if is_static is False:
                self._qualify_method(s.end_of_bracket(index))

    # ---- Threadgroup variables

    def _rewrite_threadgroup_variables(self):
        s = self._structure
        for index, token in enumerate(self.tokens):
            if (
                token.text == "threadgroup"
                and index not in self._claimed
                and s.scope[index].in_function
                and self._begins_statement(index)
            ):
                self._rewrite_threadgroup_variable(index)

    def _begins_statement(self, index):
        s = self._structure
        before = s.previous(index)
        while s.text(before) in ("static", "const", "volatile"):
            before = s.previous(before)
        if s.text(before) == ")":
            # alignas(16) threadgroup float x;
            opening = s.match.get(before, before)
            if s.text(s.previous(opening)) != "alignas":
                return False
            before = s.previous(s.previous(opening))
        return s.text(before) in ("{", "}", ";", ":") or before < 0

    def _rewrite_threadgroup_variable(self, keyword):
        s = self._structure
        end = self._end_of_statement(keyword)
        name = self._declared_name(keyword + 1, end)
        if name is None:
            return
        begin = keyword
        while s.text(s.previous(begin)) not in ("{", "}", ";", ":"):
            begin = s.previous(begin)
            if begin < 0:
                begin = 0
                break
        alignment = self._take_alignment(begin, end)
        for index in range(begin, name):
            if s.text(index) == "static":
                self._erase(index, index + 1)
        self._replace(keyword, "typedef")
        self._claimed.add(keyword)
        specifiers = [
            i
            for i in range(begin, name)
            if i != keyword and self._replaced[i] != ""
        ]
        declarators = self._declarators(name, end)
        for number, (first, last) in enumerate(declarators):
            slot = self._slots
            self._slots += 1
            if any(s.text(i) in ("=", "{") for i in range(first, last)):
                self._error(
                    first, "variable in threadgroup address space cannot be "
                    "initialized"
                )
            variable = s.text(first)
            self._replace(first, "__msl_type_%d" % slot)
            self._claimed.add(first)
            if number > 0:
                comma = first - 1
                self._replace(
                    comma, "; typedef " + self._spelling(specifiers) + " "
                )
            self._insert_after(
                end,
                " MSL_THREADGROUP __msl_type_%d &" % slot,
                first,
            )
            self._insert_after(end, self._plain_name(variable), first)
            self._insert_after(
                end,
                " %s = __msl::target::threadgroup_variable<__msl_type_%d>"
                "(%d, %s);"
                % (
                    _annotate("threadgroup:%d" % slot),
                    slot,
                    slot,
                    # An alignment is lost on the way through a template.
                    alignment or "alignof(__msl_type_%d)" % slot,
                ),
                first,
            )

    def _declared_name(self, index, end):
        """The index of the first declared name, None for a pointer."""
        s = self._structure
        while index < end:
            text = s.text(index)
            if text in ("*", "&", "&&", "("):
                return None
            if text == "<":
                index = s.end_of_template_arguments(index) or index + 1
                continue
            if text in ("alignas", "decltype", "__attribute__"):
                index = s.end_of_bracket(index + 1)
                continue
            if s.is_identifier(index):
                following = s.text(index + 1)
                if (
                    following in ("[", ",", "=", "{", "__attribute__")
                    or index + 1 == end
                ):
                    return index
            index += 1
        return None

    def _take_alignment(self, begin, end):
        """Removes alignas(...) from a declaration; returns its argument."""
        s = self._structure
        for index in range(begin, end):
            if s.text(index) == "alignas":
                close = s.end_of_bracket(index + 1)
                text = " ".join(
                    t.text for t in self.tokens[index + 2:close - 1]
                )
                self._erase(index, close)
                return text
        return ""

    def _declarators(self, name, end):
        """[(begin, end)] of the declarators from the first name on."""
        s = self._structure
        found = []
        begin = index = name
        while index < end:
            if s.text(index) in OPENING:
                index = s.end_of_bracket(index)
                continue
            if s.text(index) == ",":
                found.append((begin, index))
                begin = index + 1
            index += 1
        found.append((begin, end))
        return found

    # ---- Constructors and conversions of vectors

    def _rewrite_constructions(self):
        s = self._structure
        for index, token in enumerate(self.tokens):
            if token.kind == "identifier":
                if token.text == "static_cast":
                    self._rewrite_static_cast(index)
                    continue
                end = self._end_of_type(index)
                if end is None:
                    continue
                following = s.text(end)
                if following == "(":
                    self._rewrite_construction(index, end)
                elif following == "{" and self._is_vector(index, end):
                    self._rewrite_braced_construction(index, end)
                elif s.is_identifier(end) and s.text(end + 1) == "(":
                    self._rewrite_initialization(index, end)
            elif token.text == "(" and token.kind == "punctuator":
                end = self._end_of_type(index + 1)
                if end is not None and s.text(end) == ")":
                    self._rewrite_cast(index, end)

    def _is_vector(self, begin, end):
        s = self._structure
        return any(
            s.text(i) in VECTOR_NAMES or s.text(i) in ("vec", "packed_vec")
            for i in range(begin, end)
        )

    def _rewrite_construction(self, begin, end):
        s = self._structure
        before = s.text(s.previous(begin))
        if before in ("operator", "~", "new"):
            return
        if s.is_identifier(s.previous(begin)) and before not in (
            "return",
            "case",
            "else",
            "do",
        ):
            return  # a declaration, like `float4 (x)`
        if self._is_declarator(end):
            return
        function = "make"
        if self._is_condition(end):
            function = "make_from_condition"
        self._insert_before(begin, "::__msl::%s<" % function)
        self._insert_after(end - 1, ">")

    def _is_declarator(self, opening):
        """(*f)(...), (&x)[4]: declares a pointer or a reference."""
        s = self._structure
        close = s.match.get(opening)
        return (
            close is not None
            and s.text(opening + 1) in ("*", "&", "&&")
            and s.text(close + 1) in ("(", "[")
        )

    def _is_condition(self, opening):
        """Whether the one argument in the parentheses is a comparison.

        A comparison of vectors is to give 0 and 1, and clang's gives -1.
        """
        s = self._structure
        close = s.match.get(opening, opening)
        index = opening + 1
        found = False
        while index < close:
            text = s.text(index)
            if s.kind(index) != "punctuator":
                index += 1
                continue
            if text in (",", "?", "="):
                return False
            if text in OPENING:
                index = s.end_of_bracket(index)
                continue
            if text == "<" and s.is_identifier(index - 1):
                after = s.end_of_template_arguments(index)
                if after is not None and s.text(after) in ("(", "::", "{"):
                    index = after
                    continue
            if text in ("<", ">", "<=", ">=", "==", "!=", "&&", "||", "!"):
                found = True
            index += 1
        # A whole argument in parentheses of its own.
        if not found and s.text(opening + 1) == "(":
            if s.match.get(opening + 1) == close - 1:
                return self._is_condition(opening + 1)
        return found

    def _rewrite_braced_construction(self, begin, end):
        s = self._structure
        before = s.text(s.previous(begin))
        if before in ("->", "<", "operator") or end not in s.match:
            return
        self._insert_before(begin, "::__msl::make<")
        self._insert_after(end - 1, ">")
        self._replace(end, "(")
        self._replace(s.match[end], ")")

    def _rewrite_initialization(self, begin, name):
        """float4 v(a, b);  ->  float4 v = make<float4>(a, b);"""
        s = self._structure
        before = s.text(s.previous(begin))
        allowed = ("constant", "constexpr")
        if s.scope[begin].in_function:
            allowed += ("{", "}", ";", "(", ":", "const", "thread", "static")
        if before not in allowed:
            return
        if before == "(" and s.text(s.previous(s.previous(begin))) != "for":
            return
        type_text = self._spelling(range(begin, name))
        while s.is_identifier(name) and s.text(name + 1) == "(":
            close = s.match.get(name + 1)
            if close is None or s.text(close + 1) not in (";", ","):
                return
            self._insert_after(name, " = ::__msl::make<%s>" % type_text)
            name = close + 2

    def _rewrite_static_cast(self, index):
        s = self._structure
        end = s.end_of_template_arguments(index + 1)
        if end is None:
            return
        inner = self._end_of_type(index + 2)
        if inner == end - 1 or s.text(index + 2) == "decltype":
            self._replace(index, "::__msl::convert")

    def _rewrite_cast(self, opening, close):
        """(float4)x  ->  convert<float4>(x)"""
        s = self._structure
        before = s.previous(opening)
        text = s.text(before)
        if s.is_identifier(before) and text not in ("return", "case", "else"):
            return  # sizeof(float4), f(T)
        if text in ("]", ">") or (
            text == ")" and not self._is_cast_type(before)
        ):
            return
        operand_end = self._end_of_operand(close + 1)
        if operand_end is None:
            return
        self._replace(opening, "::__msl::convert<")
        self._replace(close, ">(")
        self._insert_after(operand_end - 1, ")")

    def _is_cast_type(self, close):
        """Whether the parentheses that end at `close` hold a type."""
        opening = self._structure.match.get(close)
        return opening is not None and self._is_type(opening + 1, close)

    def _end_of_operand(self, index):
        """The index after the operand of a cast, None if there is none."""
        s = self._structure
        while s.text(index) in ("+", "-", "!", "~", "*", "&", "++", "--"):
            index += 1
        text = s.text(index)
        if text == "(":
            close = s.match.get(index)
            if close is None:
                return None
            if self._is_type(index + 1, close):
                return self._end_of_operand(close + 1)
            index = close + 1
        elif s.kind(index) in ("number", "string", "character"):
            index += 1
        elif s.kind(index) == "identifier" or text == "::":
            index = self._end_of_name(index)
        else:
            return None
        while True:
            text = s.text(index)
            if text in ("(", "["):
                index = s.end_of_bracket(index)
            elif text in (".", "->"):
                index = self._end_of_name(index + 1)
            elif text in ("++", "--"):
                index += 1
            else:
                return index

    def _end_of_name(self, index):
        """The index after a::b<c>::d."""
        s = self._structure
        while True:
            if s.text(index) == "::":
                index += 1
            if not s.is_identifier(index):
                return index
            index += 1
            if s.text(index) == "<":
                after = s.end_of_template_arguments(index)
                if after is not None and s.text(after) in ("(", "::", "{"):
                    index = after
            if s.text(index) != "::":
                return index

    def _is_type(self, begin, end):
        """Whether parentheses around [begin, end) are a cast."""
        s = self._structure
        after = self._end_of_type(begin)
        if after is not None:
            begin = after
        elif not all(
            s.text(i) in _SCALAR_WORDS
            or s.text(i) in ADDRESS_SPACES
            or s.text(i) in ("const", "volatile", "*", "&")
            for i in range(begin, end)
        ):
            return False
        else:
            return begin < end
        return all(s.text(i) in ("*", "&", "const") for i in range(begin, end))

    # ---- Names

    def _rewrite_names(self):
        s = self._structure
        for index, token in enumerate(self.tokens):
            if index in self._claimed:
                continue
            if token.kind == "number":
                self._rewrite_number(index, token.text)
                continue
            if token.kind != "identifier":
                continue
            if token.text == "kernel":
                self._replace(index, _annotate("kernel"))
            elif token.text == "coherent" and self._is_coherent(index):
                end = index + 1
                if s.text(end) == "(":
                    end = s.end_of_bracket(end)
                self._erase(index, end)
            elif token.text == "__mps_emulator_is_function_constant_defined":
                self._rewrite_is_defined(index)
            elif token.text == "vec" and s.text(index + 1) == "<":
                self._rewrite_boolean_vector(index)
            elif token.text == "metal" and s.text(index + 1) == "::":
                # half is a keyword for clang, and no member of a namespace.
                if s.text(index + 2) == "half":
                    self._erase(index, index + 2)
            else:
                renamed = self._renamed(index)
                if renamed is not None:
                    self._replace(index, renamed)

    def _renamed(self, index):
        """What a name is called in C++ for OpenCL, None if the same."""
        text = self._structure.text(index)
        if text in ADDRESS_SPACES:
            return ADDRESS_SPACES[text]
        if text in _ATOMIC_NAMES:
            return "__msl_" + text
        if text in _RENAMED:
            return "__msl_user_" + text
        return None

    def _plain_name(self, name):
        return "__msl_user_" + name if name in _RENAMED else name

    def _is_coherent(self, index):
        s = self._structure
        following = index + 1
        if s.text(following) == "(":
            return s.text(following + 1) in ADDRESS_SPACES
        return s.text(following) in ADDRESS_SPACES

    def _rewrite_number(self, index, text):
        """0.5bf and 0.5H; clang knows 0.5h alone."""
        lower = text.lower()
        if lower.startswith("0x"):
            return
        if lower.endswith("bf"):
            self._replace(index, "((bfloat)%sf)" % text[:-2])
        elif text.endswith("H"):
            self._replace(index, text[:-1] + "h")

    def _rewrite_boolean_vector(self, index):
        """vec<bool, 4>: clang has no vectors of booleans."""
        s = self._structure
        if s.text(index + 2) == "bool" and s.text(index + 3) == ",":
            self._replace(index, "__msl::bool_vector")
            self._erase(index + 2, index + 4)
            if s.text(index - 1) == "::" and s.text(index - 2) == "metal":
                self._erase(index - 2, index)

    def _rewrite_is_defined(self, index):
        s = self._structure
        name = s.text(index + 2)
        close = s.end_of_bracket(index + 1)
        for constant in self.constants:
            if constant.name == name:
                self._erase(index, close)
                defined = constant.value is not None
                self._replace(index, "true" if defined else "false")
                return
        self._error(
            index + 2,
            "'%s' is not a function constant" % name,
        )


def original_name(name):
    """The name that a declaration has in the program."""
    prefix = "__msl_user_"
    return name[len(prefix):] if name.startswith(prefix) else name


def _annotate(text):
    return '__attribute__((annotate("%s%s")))' % (_ANNOTATION, text)


def _assertion(instantiation):
    return (
        " MSL_ALLOW_FUNCTION_POINTERS "
        'static_assert(sizeof(%s) != 0, "%sinstance:%d"); '
        "MSL_END_FUNCTION_POINTERS"
        % (instantiation.expression, _ANNOTATION, instantiation.number)
    )


_VALUE_FORMATS = {
    "bool": (1, "({0} != 0)"),
    "char": (1, "(char){0}"),
    "int8_t": (1, "(char){0}"),
    "uchar": (1, "(uchar){0}"),
    "uint8_t": (1, "(uchar){0}"),
    "short": (2, "(short){0}"),
    "int16_t": (2, "(short){0}"),
    "ushort": (2, "(ushort){0}"),
    "uint16_t": (2, "(ushort){0}"),
    "int": (4, "(int){0}u"),
    "int32_t": (4, "(int){0}u"),
    "uint": (4, "{0}u"),
    "uint32_t": (4, "{0}u"),
    "unsigned": (4, "{0}u"),
    "unsigned int": (4, "{0}u"),
    "long": (8, "(long){0}ul"),
    "int64_t": (8, "(long){0}ul"),
    "ulong": (8, "{0}ul"),
    "uint64_t": (8, "{0}ul"),
    "half": (2, "__builtin_bit_cast(half, (ushort){0})"),
    "bfloat": (2, "__builtin_bit_cast(bfloat, (ushort){0})"),
    "float": (4, "__builtin_bit_cast(float, {0}u)"),
}


def _literal(type_name, value):
    """A function constant's value as an expression.

    value: its bytes, or None for a constant without a value, which is 0.
    """
    type_name = type_name.replace("metal :: ", "")
    count = 1
    element = type_name
    if type_name in VECTOR_NAMES:
        element, count = type_name[:-1], int(type_name[-1])
    if element not in _VALUE_FORMATS:
        raise ValueError(
            "a function constant is a scalar or a vector, not '%s'" % type_name
        )
    size, form = _VALUE_FORMATS[element]
    if value is None:
        value = bytes(size * count)
    if len(value) < size * count:
        raise ValueError(
            "the value given for a function constant of type '%s' has %d "
            "bytes instead of %d" % (type_name, len(value), size * count)
        )
    words = [
        form.format(int.from_bytes(value[i * size:(i + 1) * size], "little"))
        for i in range(count)
    ]
    if count == 1:
        return words[0]
    return "::__msl::make<%s>(%s)" % (type_name, ", ".join(words))
