"""Tests that the front end refuses what Metal refuses.

Each message must name the place of the error, and must not contain words of clang.
"""

import pathlib
import re

import pytest
from metal import errors

REFUSED = pathlib.Path(__file__).with_name("refused.metal")


def read_refused():
    """Yields the text, the place and the words of each case of refused.metal.

    A case begins with `//// name: words`.  The words are a part of the message.  A line with only a
    ^ marks the place of the error: the previous line, at the column of the ^.  A line `// ---- ...`
    is the heading of a group of cases.
    """
    cases = re.sub(r"^// ---- .*$", "", REFUSED.read_text(), flags=re.MULTILINE)
    for case in cases.split("//// ")[1:]:
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


# Features of C++17 that Metal's compiler accepts as extensions of C++14, with a warning.
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


def test_extensions_of_cpp14_are_accepted(metal):
    metal.compile(EXTENSIONS)


def test_names_need_no_header(metal):
    """Metal's compiler reads the standard library before the program."""
    metal.compile(
        "kernel void k(device float4 *a, constant uint2 &n,\n"
        "              uint i [[thread_position_in_grid]]) {\n"
        "  a[i] = metal::exp(float4(n.x, n.y, half2(1)));\n"
        "}\n",
        header="",
    )
