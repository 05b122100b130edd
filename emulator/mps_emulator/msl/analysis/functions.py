"""Collects the program's functions and the calls between them."""

from __future__ import annotations

import dataclasses

from clang.cindex import Cursor, CursorKind, TypeKind

from .clang_types import REFERENCES, annotations_of, kind_of
from .report import Report

CALLABLE = (
    CursorKind.FUNCTION_DECL,
    CursorKind.CXX_METHOD,
    CursorKind.CONSTRUCTOR,
    CursorKind.CONVERSION_FUNCTION,
)


class Function:
    """One function of the program.

    Attributes:
      key: identifies the function.
      examined: whether the analysis has examined the function's body.
      calls: for each called function, by key, the function and a cursor of one call.
      sites: the called function and the cursor of every call.
      suspends: whether the function calls a barrier or a simdgroup function, directly or through
        other functions.
      threadgroup_bytes: the size of the function's threadgroup variables so far.
    """

    def __init__(self, cursor: Cursor):
        self.cursor = cursor
        self.key: int = cursor.hash
        self.is_kernel = "kernel" in annotations_of(cursor)
        self.is_template = cursor.kind == CursorKind.FUNCTION_TEMPLATE
        self.examined = False
        self.calls: dict[int, tuple[Function, Cursor]] = {}
        self.sites: list[tuple[Function, Cursor]] = []
        self.suspends = False
        self.threadgroup_bytes = 0


@dataclasses.dataclass
class Call:
    """A call of a suspending function of the program (see Function.suspends)."""

    # The numbers of the call's first and last token.
    first: int
    last: int
    # Whether the called function returns void; None if only some instances of a template call a
    # function that does.
    is_void: bool | None


class Functions:
    """The functions that the analysis has found, and the calls between them."""

    def __init__(self, report: Report):
        self._report = report
        self._functions = {}  # {hash: Function}

    def of(self, cursor: Cursor) -> Function:
        """Returns the function that `cursor` declares, which this call may add."""
        function = self._functions.get(cursor.hash)
        if function is None:
            function = self._functions[cursor.hash] = Function(cursor)
        return function

    def all(self) -> list[Function]:
        return list(self._functions.values())

    def note_reference(self, cursor: Cursor, function: Function) -> None:
        """Notes that `function` calls or names another function.

        Args:
          cursor: a reference in the body of `function`.  References to variables are ignored.
        """
        referenced = cursor.referenced
        if referenced is None:
            return
        if referenced.kind in CALLABLE:
            callee = definition_of(referenced)
            if _is_implicit(callee):
                return
            if self._report.is_of_program(callee.location):
                self._note_callee(cursor, function, self.of(callee))
            elif "suspends" in annotations_of(callee):
                function.suspends = True

    def _note_callee(self, cursor, function, called):
        function.calls.setdefault(called.key, (called, cursor))
        if cursor.kind == CursorKind.CALL_EXPR:
            function.sites.append((called, cursor))
            if called.is_kernel:
                self._report.error(cursor, "a kernel cannot be called from a function")

    def check_calls(self) -> None:
        """Refuses recursion, and sets `suspends` for each caller of a suspending function.

        Metal's compiler accepts recursion that no kernel reaches.
        """
        state = {}

        def visit(function, is_reached):
            state[function.key] = "open"
            for called, call in function.calls.values():
                if state.get(called.key) == "open" and is_reached:
                    self._report.error(
                        call,
                        f"recursive call of '{called.cursor.spelling}': Metal allows recursion "
                        "only in a pipeline with a larger maxCallStackDepth, and the emulator "
                        "does not support such pipelines",
                    )
                elif called.key not in state:
                    visit(called, is_reached)
                function.suspends = function.suspends or called.suspends
            state[function.key] = "done"

        for is_reached in (True, False):
            for function in self.all():
                if function.key not in state and (function.is_kernel or not is_reached):
                    visit(function, is_reached)

    def suspending_calls(self) -> list[Call]:
        """Returns the calls of suspending functions.

        Calls that return a reference are not in the list.  The instances of a template share one
        text.  So the list also lacks a call that returns void in one instance and a value in
        another instance.
        """
        found = {}
        for function in self.all():
            for called, cursor in function.sites:
                result = kind_of(cursor.type)
                if not called.suspends or result in REFERENCES:
                    continue
                place = (
                    self._report.token_at(cursor.extent.start.offset),
                    self._report.token_at(cursor.extent.end.offset - 1),
                )
                is_void = result == TypeKind.VOID
                call = found.setdefault(place, Call(*place, is_void))
                if call.is_void != is_void:
                    call.is_void = None
        return [call for call in found.values() if call.is_void is not None]


def definition_of(cursor: Cursor) -> Cursor:
    """Returns the definition of a declared function, or the declaration if there is none."""
    return cursor.get_definition() or cursor


def _is_implicit(cursor):
    """Whether clang generated a member function.  Such a function has its class's location."""
    parent = cursor.semantic_parent
    return parent is not None and cursor.location.offset == parent.location.offset
