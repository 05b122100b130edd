"""Gives member functions the address space of their object.

The word behind the parameters of a member function in MSL:

    nothing, thread   objects in `thread` memory
    device            objects in `device` memory
    constant          objects in `constant` memory
    threadgroup       objects in `threadgroup` memory

clang has the same rule with its own keywords, except that no keyword means any memory.
"""

import dataclasses

from . import names
from .edits import Step
from .structure import CLOSING, OPENING


@dataclasses.dataclass
class _Member:
    """One declaration of a function in a class.

    name:           the words of its name; for a constructor the name of the class.
    key:            distinguishes overloads, apart from the address space.
    begin, end:     its tokens, including a body.
    last_qualifier: the token before the body: of a qualifier, or the closing
                    parenthesis.
    spaces:         the tokens of the qualifiers that name an address space.
    """

    name: str
    key: str
    begin: int
    end: int
    last_qualifier: int
    is_static: bool
    is_constructor: bool
    spaces: list[int] = dataclasses.field(default_factory=list)
    is_const: bool = False


class Methods(Step):
    def __init__(self, edits):
        super().__init__(edits)
        self._members_of_classes = {}  # {(class, member): [_Member, ...]}

    def run(self):
        for scope in self._structure.scopes:
            if scope.kind == "class":
                self._rewrite_class(scope)
        self._rewrite_members_out_of_class()

    # ---- Finding them

    def _rewrite_class(self, scope):
        s = self._structure
        members = []
        index = scope.brace + 1
        end = s.match.get(scope.brace, len(self._tokens))
        while index < end:
            if s.text(index) in ("public", "private", "protected"):
                index += 2
                continue
            index = self._read_member(scope, index, end, members)
        for member in members:
            self._members_of_classes.setdefault((scope.name, member.name), []).append(member)
        for member in members:
            if not member.is_static:
                self._qualify(member, scope.name)

    def _read_member(self, scope, begin, end, members):
        """Reads one member; returns the index of the next one."""
        s = self._structure
        index = begin
        is_static = False
        while index < end:
            text = s.text(index)
            if text == ";":
                return index + 1
            if text == "{":
                return s.end_of_bracket(index)
            if text in ("=", "static_assert"):
                return s.end_of_statement(index) + 1
            if text in ("static", "friend", "typedef", "using"):
                is_static = True
                index += 1
            elif text in ("decltype", "alignas", "__attribute__", "explicit"):
                index += 1
                if s.text(index) == "(":
                    index = s.end_of_bracket(index)
            elif text == "[":
                index = s.end_of_bracket(index)
            elif text == "<":
                after = s.end_of_template_arguments(index)
                index = index + 1 if after is None else after
            elif text == "operator":
                parameters = index + 1
                if s.text(parameters) == "(":
                    parameters += 2
                while s.text(parameters) != "(" and parameters < end:
                    parameters += 1
                return self._note_member(scope, begin, index, parameters, is_static, members)
            elif text == "(":
                return self._note_member(scope, begin, index - 1, index, is_static, members)
            else:
                index += 1
        return end

    def _note_member(self, scope, begin, name, parameters, is_static, members):
        """Notes the function whose name begins at `name`; returns the index behind it."""
        s = self._structure
        end = self._end_of_function(s.end_of_bracket(parameters))
        text = s.joined(name, parameters)
        is_constructor = text == scope.name or s.text(name - 1) == "~"
        members.append(self._member(name, parameters, begin, end, is_static, is_constructor))
        return end

    def _member(self, name, parameters, begin, end, is_static, is_constructor):
        """The _Member in tokens [begin, end), with its qualifiers."""
        s = self._structure
        after = s.end_of_bracket(parameters)
        member = _Member(
            s.joined(name, parameters),
            s.joined(name, after),
            begin,
            end,
            after - 1,
            is_static,
            is_constructor,
        )
        self._read_qualifiers(member)
        return member

    def _end_of_function(self, index):
        """The index behind a function; `index` is that behind its parameters."""
        s = self._structure
        while index < len(self._tokens):
            text = s.text(index)
            if text == ";":
                return index + 1
            if text == "{":
                index = s.end_of_bracket(index)
                # The first braces may belong to a member initializer.
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

    def _read_qualifiers(self, member):
        index = member.last_qualifier + 1
        while True:
            text = self._structure.text(index)
            if text in names.METHOD_SPACES:
                member.spaces.append(index)
            elif text == "const":
                member.is_const = True
            elif text != "volatile":
                return
            member.last_qualifier = index
            index += 1

    def _rewrite_members_out_of_class(self):
        s = self._structure
        for index, token in enumerate(self._tokens):
            if token.text != "(" or s.scope[index].kind != "namespace":
                continue
            name = index - 1
            if not s.is_identifier(name) or s.text(name - 1) != "::":
                continue
            class_name = s.text(name - 2)
            declared = self._members_of_classes.get((class_name, s.text(name)))
            if declared and not declared[0].is_static:
                end = s.end_of_bracket(index)
                is_constructor = declared[0].is_constructor
                member = self._member(name, index, name, end, False, is_constructor)
                self._qualify(member, class_name)

    # ---- Rewriting them

    def _qualify(self, member, class_name):
        if not member.spaces:
            # A constructor without an address space makes objects in any.
            if not member.is_constructor and not self._is_defaulted(member):
                self._edits.insert_after(member.last_qualifier, " __private")
            return
        overloads = self._members_of_classes[class_name, member.name]
        for index in member.spaces:
            space = self._structure.text(index)
            self._edits.claimed.add(index)
            if member.is_constructor:
                word = names.CONSTRUCTOR_SPACES[space]
            elif space == "thread" and self._is_for_temporaries(member, overloads):
                word = ""
            elif space == "constant" and self._has_twin(member, overloads):
                self._edits.remove(member.begin, member.end)
                return
            else:
                word = names.METHOD_SPACES[space]
            self._edits.replace(index, word)

    def _is_defaulted(self, member):
        behind = member.last_qualifier + 1
        return self._structure.text(behind) == "=" and self._structure.text(behind + 1) in (
            "default",
            "delete",
        )

    def _is_for_temporaries(self, member, overloads):
        """Whether a member for `thread` memory must become one for any memory.

        In clang a temporary has no address space, so a temporary matches only a
        member for any memory.  For other objects clang prefers a member for
        their address space.
        """
        return member.is_const and any(
            self._structure.text(index) != "thread" for other in overloads for index in other.spaces
        )

    def _has_twin(self, member, overloads):
        """Whether the class has the same member for `device` objects.

        That member then serves `constant` objects too.
        """
        return any(
            self._structure.text(index) == "device"
            for other in overloads
            if other.key == member.key and other.is_const == member.is_const
            for index in other.spaces
        )
