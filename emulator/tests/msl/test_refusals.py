"""The front end refuses what Metal refuses, at the right place and in plain words."""

import pathlib

import pytest
from metal import errors

REFUSED = pathlib.Path(__file__).with_name("refused.metal")


def read_refused():
    """The cases of refused.metal, [(name, text, place, words)].

    In this file `//// name: words` begins a case, and a ^ is below the place of the error.
    """
    for case in REFUSED.read_text().split("//// ")[1:]:
        title, *lines = case.rstrip().split("\n")
        name, _, words = title.partition(":")
        place, text = None, ""
        for line in lines:
            if line.strip() == "^":
                place = (text.count("\n") + 2, line.index("^") + 1)
            else:
                text += line + "\n"
        yield pytest.param(text, place, words.strip(), id=name)


@pytest.mark.parametrize("text, place, words", list(read_refused()))
def test_refused(metal, text, place, words):
    diagnostics = metal.refusal(text)
    found = errors(diagnostics)
    assert found, diagnostics
    assert words in diagnostics, diagnostics
    if place is not None:
        assert place in [(line, column) for line, column, _ in found], diagnostics
    for internal in ("__global", "__private", "__generic", "__local", "__msl"):
        assert internal not in diagnostics


# (name, text, the first version that accepts the text, words of the refusal)
VERSIONED = [
    (
        "lambda",
        "kernel void k(device float *a) {\n"
        "  auto f = [](float x) { return x + 1; };\n"
        "  a[0] = f(a[0]);\n"
        "}",
        (3, 2),
        "lambda expressions are not supported in Metal",
    ),
    (
        "class_template_argument_deduction",
        "template <typename T> struct Box { T x; Box(T v) : x(v) {} };\n"
        "kernel void k(device float *a) { Box b(1.0f); a[0] = b.x; }",
        (4, 0),
        "deduction",
    ),
    (
        "auto_template_parameter",
        "template <auto n> int f() { return n; }\nkernel void k(device int *a) { a[0] = f<3>(); }",
        (4, 0),
        "template parameters declared with",
    ),
    (
        "fence",
        "kernel void k(device float *a) {\n"
        "  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);\n"
        "}",
        (3, 2),
        "atomic_thread_fence",
    ),
]
OLDER = {(3, 2): (3, 1), (4, 0): (3, 2)}


@pytest.mark.parametrize(
    "text, first, words", [case[1:] for case in VERSIONED], ids=[case[0] for case in VERSIONED]
)
def test_language_versions(metal, text, first, words):
    diagnostics = metal.refusal(text + "\n", version=OLDER[first])
    assert words in diagnostics
    assert errors(diagnostics)
    metal.compile(text + "\n", version=first)
    metal.compile(text + "\n")


# Metal's compiler before 4.0 takes these as extensions of C++14, with a warning.
EXTENSIONS = """
kernel void k(device float *a [[buffer(0)]]) {
  if constexpr (sizeof(float) == 4) a[0] = 1;
  struct { float x, y; } pair = {2, 3};
  auto [x, y] = pair;
  a[1] = x + y;
  if (float z = a[1]; z > 4) a[2] = z;
  static_assert(true);
}
namespace outer::inner {
template <typename... T> float sum(T... x) { return (0 + ... + x); }
}
"""


def test_extensions_of_older_versions(metal):
    metal.compile(EXTENSIONS, version=(3, 1))


def test_unknown_version(metal):
    assert "is no language version" in metal.refusal("", version=(3, 0))


def test_names_need_no_header(metal):
    """Metal's compiler reads the standard library before the program."""
    metal.compile(
        "kernel void k(device float4 *a, constant uint2 &n,\n"
        "              uint i [[thread_position_in_grid]]) {\n"
        "  a[i] = metal::exp(float4(n.x, n.y, half2(1)));\n"
        "}\n",
        header="",
    )
