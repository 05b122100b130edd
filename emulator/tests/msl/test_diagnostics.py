"""Tests that messages name the place in the original text.

refused.metal has more tests of places.
"""

import re

import pytest
from metal import errors

KERNEL = "kernel void k(device float *a) { a[0] = nothing; }\n"

# {what is tested: (program after the header of two lines, the whole message)}.
MESSAGES = {
    "form": (
        "kernel void k(device float *a) {\n\ta[0] = nothing;\n}\n",
        "program_source:4:9: error: use of undeclared identifier 'nothing'\n"
        "\ta[0] = nothing;\n"
        "\t       ^\n"
        "1 error generated.\n",
    ),
    "every error": (
        "kernel void k(device float *a) {\n  a[0] = second + third;\n}\n",
        "program_source:4:10: error: use of undeclared identifier 'second'\n"
        "  a[0] = second + third;\n"
        "         ^\n"
        "program_source:4:19: error: use of undeclared identifier 'third'\n"
        "  a[0] = second + third;\n"
        "                  ^\n"
        "2 errors generated.\n",
    ),
    "#line": (
        f'#line 100 "kernels/other.metal"\n{KERNEL}',
        "kernels/other.metal:100:1: error: use of undeclared identifier 'nothing'\n"
        "1 error generated.\n",
    ),
    # The tokens after the bracket keep their meaning.
    "a bracket without a partner": (
        "struct S {\n  float f() { return (1; }\n};\nkernel void k(device int *a) { a[0] = 1; }\n",
        "program_source:4:24: error: expected ')'\n"
        "  float f() { return (1; }\n"
        "                       ^\n"
        "program_source:4:22: note: to match this '('\n"
        "  float f() { return (1; }\n"
        "                     ^\n"
        "1 error generated.\n",
    ),
    "template parameters without an end": (
        "template <typename T;\n",
        "program_source:3:20: error: expected a qualified name after 'typename'\n"
        "template <typename T;\n"
        "                   ^\n"
        "program_source:3:21: error: expected ',' or '>' in template-parameter-list\n"
        "template <typename T;\n"
        "                    ^\n"
        "program_source:3:21: error: declaration does not declare anything\n"
        "template <typename T;\n"
        "                    ^\n"
        "3 errors generated.\n",
    ),
    "carriage returns": (
        "kernel void k(device float *a) {\r\n  a[0] = nothing;\r\n}\r\n",
        "program_source:4:10: error: use of undeclared identifier 'nothing'\n"
        "  a[0] = nothing;\n"
        "         ^\n"
        "1 error generated.\n",
    ),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_messages(metal, what):
    text, expected = MESSAGES[what]
    assert metal.refusal(text) == expected


def test_an_array_without_a_size_in_the_first_line(metal):
    diagnostics = metal.refusal("constant int a[], b[] = {1};\n", header="")
    assert diagnostics.startswith("program_source:1:14: error: definition of variable with array")


def test_notes(metal):
    diagnostics = metal.refusal(
        "void f(device float *a, int n);\nkernel void k(device float *a) {\n  f(a);\n}\n"
    )
    assert "program_source:5:3: error: no matching function" in diagnostics
    assert "program_source:3:6: note: candidate function" in diagnostics
    assert diagnostics.endswith("1 error generated.\n")


def test_an_error_of_two_instances_has_the_notes_of_the_first(metal):
    diagnostics = metal.refusal(
        'template <typename T> void f(T a) { static_assert(sizeof(T) == 1, "small"); }\n'
        "kernel void k(device int *a) {\n  f(1);\n  f(1.0f);\n}\n"
    )
    assert diagnostics.count("error: ") == 1
    assert re.findall(r":(\d+):\d+: note: ", diagnostics) == ["5", "3"]


def test_a_kernel_has_more_parameters_than_there_are_buffers(metal):
    parameters = ", ".join(f"device float *a{i}" for i in range(32))
    diagnostics = metal.refusal(f"kernel void k({parameters}) {{}}\n")
    assert "error: kernel 'k' has more than 31 buffer parameters" in diagnostics


def test_messages_use_the_words_of_metal(metal):
    diagnostics = metal.refusal(
        "void f(device float *a);\n"
        + "void g(threadgroup float *a) { f(a); }\n"
        + "void h(constant int &a) { thread int &b = a; }\n"
    )
    assert "'threadgroup'" in diagnostics and "'device'" in diagnostics
    assert not re.search(r"__\w+", diagnostics), diagnostics


def test_a_continued_line(metal):
    source = "kernel void k(device float *a) {\n  a[2] = 1 + \\\n         wrong;\n}\n"
    [(line, _, _)] = errors(metal.refusal(source))
    assert line in (4, 5)


def test_no_newline_at_the_end(metal):
    metal.compile("kernel void k(device float *a) { a[0] = 1; }")


def test_an_error_in_a_template_is_reported_once(metal):
    """clang reports the error for each type with which the program uses the template."""
    function = 'template <typename T> T f(T x) {\n  static_assert(sizeof(T) == 8, "8 bytes");\n'
    function += "  return x;\n}\n"
    kernel = "kernel void k(device float *a, device int *b) { a[0] = f(a[1]) + f(b[1]); }\n"
    diagnostics = metal.refusal(function + kernel)
    assert diagnostics.count("error: 8 bytes") == 1
    assert diagnostics.endswith("1 error generated.\n")
