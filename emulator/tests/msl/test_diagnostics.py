"""Messages name the place in the original text."""

import re

from metal import errors


def places(metal, source):
    return [(line, column) for line, column, _ in errors(metal.refusal(source))]


def test_form(metal):
    diagnostics = metal.refusal("kernel void k(device float *a) {\n\ta[0] = nothing;\n}\n")
    assert diagnostics == (
        "program_source:4:9: error: use of undeclared identifier 'nothing'\n"
        "\ta[0] = nothing;\n"
        "\t       ^\n"
        "1 error generated.\n"
    )


def test_every_error_is_shown(metal):
    source = (
        "kernel void k(device float *a) {\n"
        "  a[0] = first;\n"
        "  a[1] = 2;\n"
        "  a[2] = second + third;\n"
        "}\n"
    )
    diagnostics = metal.refusal(source)
    assert places(metal, source) == [(4, 10), (6, 10), (6, 19)]
    assert diagnostics.endswith("3 errors generated.\n")


def test_columns_behind_rewritten_text(metal):
    """Rewriting makes constructors, casts and attributes longer; columns stay."""
    source = (
        "kernel void k(device float4 *a [[buffer(0)]], "
        "uint i [[thread_position_in_grid]], device missing *b) {}\n"
    )
    column = source.index("missing") + 1
    assert places(metal, source) == [(3, column)]
    line = "  a[i] = float4(1,   2, (float4)(half4)a[i].xyzw, 3).xyzw + oops;"
    source = (
        f"kernel void k(device float4 *a, uint i [[thread_position_in_grid]])\n{{\n{line}\n}}\n"
    )
    assert (5, line.index("oops") + 1) in places(metal, source)


def test_comments_and_continued_lines(metal):
    source = (
        "/* a comment\n"
        "   of two lines */ kernel void k(device float *a) {\n"
        "  a[0] = 1; /* x */ a[1] = oops; // oops\n"
        "  a[2] = 1 + \\\n"
        "         wrong;\n"
        "}\n"
    )
    found = places(metal, source)
    assert (5, 28) in found
    assert any(line in (6, 7) for line, _ in found[1:])


def test_macros(metal):
    """An error in a macro is shown where the macro is used."""
    source = (
        "#define STORE(x) a[0] = x + unknown\n"
        "kernel void k(device float *a) {\n"
        "  a[1] = 2; STORE(1);\n"
        "}\n"
    )
    ((line, column),) = places(metal, source)
    assert line == 5


def test_line_directive(metal):
    diagnostics = metal.refusal(
        '#line 100 "kernels/other.metal"\n' + "kernel void k(device float *a) { a[0] = nothing; }\n"
    )
    assert re.search(
        r"^kernels/other.metal:100:\d+: error: use of undeclared", diagnostics, re.MULTILINE
    )


def test_notes(metal):
    diagnostics = metal.refusal(
        "void f(device float *a, int n);\n"
        + "kernel void k(device float *a) {\n"
        + "  f(a);\n"
        + "}\n"
    )
    assert "program_source:5:3: error: no matching function" in diagnostics
    assert "program_source:3:6: note: candidate function" in diagnostics
    assert diagnostics.endswith("1 error generated.\n")


def test_words_of_metal(metal):
    diagnostics = metal.refusal(
        "void f(device float *a);\n"
        + "void g(threadgroup float *a) { f(a); }\n"
        + "void h(constant int &a) { thread int &b = a; }\n"
    )
    assert "'threadgroup'" in diagnostics and "'device'" in diagnostics
    assert not re.search(r"__\w+", diagnostics), diagnostics


def test_byte_columns(metal):
    """Text beyond ASCII before the error."""
    source = "kernel void k(device float *a) {\n  /* Größe */ a[0] = nothing; // naïve\n}\n"
    assert [line for line, _ in places(metal, source)] == [4]


def test_carriage_returns(metal):
    source = ("kernel void k(device float *a) {\n  a[0] = nothing;\n}\n").replace("\n", "\r\n")
    assert places(metal, source) == [(4, 10)]


def test_no_newline_at_the_end(metal):
    metal.compile("kernel void k(device float *a) { a[0] = 1; }")


def test_preprocessor(metal):
    source = "#if 1\nkernel void k(device float *a) {}\n"
    assert places(metal, source) == [(3, 2)]
    source = "#define F(x) x\nint y = F(1, 2);\n"
    assert places(metal, source)[0][0] == 4
