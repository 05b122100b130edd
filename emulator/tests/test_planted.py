"""Tests that the marks `planted` of the tests name exactly the kinds in the list here."""

import ast
import pathlib

KINDS = {
    "autorelease without a pool",
    "buffer that no encoder knows",
    "constant memory that is written",
    "data pointer taken for the buffer",
    "divergent barrier",
    "float beyond the integers",
    "encoder beside torch's own",
    "host access past the gate",
    "host write in flight",
    "inactive lane",
    "missing barrier",
    "missing fence",
    "missing synchronize",
    "out of bounds",
    "race between queues",
    "synchronize from two threads",
    "uninitialised threadgroup memory",
    "use of what has been freed",
    "write after read on a recycled buffer",
}


def test_the_kinds_of_tests_are_the_listed_ones():
    # The marks are read from the files, because a run may collect only some of the tests.
    assert marked_kinds() == KINDS


def test_no_mark_hides_its_kind():
    unread = [f"{file.name}:{call.lineno}" for file, call in marks() if kind_of(call) is None]
    assert not unread, "write the kind of the mark as a string literal"


def test_the_marks_of_this_run_are_those_of_the_files(request):
    assert request.session.planted_kinds <= marked_kinds()


def marked_kinds():
    return {kind_of(call) for _, call in marks()}


def marks():
    """Yields (path of a test's file, AST of a call of planted()) for each such call."""
    for file in sorted(pathlib.Path(__file__).parent.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and name_of(node.func) == "planted":
                yield file, node


def name_of(function):
    return getattr(function, "attr", getattr(function, "id", None))


def kind_of(call):
    [argument] = call.args
    return argument.value if isinstance(argument, ast.Constant) else None
