"""Tests the marks `planted`, with which a test names the kind of mistake that it plants."""

import ast
import pathlib

KINDS = {
    "autorelease without a pool",
    "data pointer used as a buffer",
    "divergent barrier",
    "encoder beside torch's own",
    "float out of an integer's range",
    "host write in flight",
    "host write to reused memory in flight",
    "host write under an operator",
    "inactive lane",
    "invalid host access",
    "missing barrier",
    "missing fence",
    "missing synchronize",
    "missing useResource",
    "out of bounds",
    "race between queues",
    "synchronize from two threads",
    "uninitialised threadgroup memory",
    "use after free",
    "write to constant memory",
}


def test_the_marks_in_the_files_have_exactly_the_listed_kinds():
    # The marks are read from the files, because a run may collect only some of the tests.
    assert marked_kinds() == KINDS


def test_each_mark_has_a_literal_kind():
    unread = [f"{file.name}:{call.lineno}" for file, call in marks() if kind_of(call) is None]
    assert not unread, "write the kind of the mark as a string literal"


def test_this_run_has_only_marks_of_the_files(request):
    assert request.session.planted_kinds <= marked_kinds()


def marked_kinds():
    return {kind_of(call) for _, call in marks()}


def marks():
    """Yields (path of a test's file, AST of the call) for each call of planted()."""
    for file in sorted(pathlib.Path(__file__).parent.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and name_of(node.func) == "planted":
                yield file, node


def name_of(function):
    return getattr(function, "attr", getattr(function, "id", None))


def kind_of(call):
    [argument] = call.args
    return argument.value if isinstance(argument, ast.Constant) else None
