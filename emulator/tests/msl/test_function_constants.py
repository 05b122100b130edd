"""Function constants and specialised kernels."""

import struct

import numpy as np
import pytest
from metal import Fatal, errors, floats, uint

SOURCE = """
constant bool scaled [[function_constant(0)]];
constant uint count [[function_constant(1)]];
constant float factor [[function_constant(2)]];
constant float4 offset [[function_constant(7)]];
constant int twice = int(count) * 2;
constant bool has_factor = is_function_constant_defined(factor);
constant float used_factor = has_factor ? factor : 10.0f;
float scale(float x) { return scaled ? x * used_factor : x; }
kernel void k(device float *a [[buffer(0)]],
              device const float *extra
                  [[buffer(1), function_constant(scaled)]],
              uint i [[thread_position_in_grid]]) {
  a[i] = scale(a[i]) + twice;
  if (scaled) a[i] += extra[i];
}
kernel void vector(device float4 *a [[buffer(0)]]) { a[0] = offset; }
kernel void plain(device float *a [[buffer(0)]]) { a[0] = 3; }
"""


def test_description(metal):
    library = metal.compile(SOURCE)
    constants = {
        name: [c[:3] for c in kernel.constants] for name, kernel in library.kernels.items()
    }
    # `k` lists `factor` itself, although it reads it through another constant.
    assert constants == {
        "k": [("scaled", "0", "0"), ("count", "1", "0"), ("factor", "2", "0")],
        "vector": [("offset", "7", "0")],
        "plain": [],
    }
    types = {c[0]: c[3] for c in library.kernels["k"].constants}
    assert types == {"scaled": "bool", "count": "uint", "factor": "float"}


def test_values_by_index(metal):
    library = metal.compile(
        SOURCE, constants={0: b"\1", 1: struct.pack("<I", 5), 2: struct.pack("<f", 0.5)}
    )
    kernel = library.kernels["k"]
    assert [c[2] for c in kernel.constants] == ["1", "1", "1"]
    assert [p.active for p in kernel.parameters] == [True, True, True]
    a = floats(2, 4)
    library.run("k", [a, floats(100, 200)], 2, 1)
    assert a.tolist() == [1 + 10 + 100, 2 + 10 + 200]


def test_values_by_name(metal):
    library = metal.compile(SOURCE, constants={"scaled": b"\0", "count": struct.pack("<I", 1)})
    kernel = library.kernels["k"]
    assert [p.active for p in kernel.parameters] == [True, False, True]
    a = floats(2, 4)
    library.run("k", {0: a}, 2, 1)  # `extra` is not bound
    assert a.tolist() == [4, 6]


def test_undefined_value(metal):
    """Without a value a constant is undefined."""
    library = metal.compile(SOURCE, constants={"scaled": b"\1", 1: struct.pack("<I", 0)})
    a = floats(2)
    library.run("k", [a, floats(0)], 1, 1)
    assert a.tolist() == [20]


def test_only_a_parameter_that_is_on_must_be_bound(metal):
    source = """
        constant bool on [[function_constant(0)]];
        kernel void k(device float *a [[buffer(0)]],
                      device const float &extra
                          [[buffer(1), function_constant(on)]]) {
          a[0] = on ? extra : 2;
        }
        """
    a = floats(1)
    metal.compile(source, constants={"on": b"\0"}).run("k", {0: a}, 1, 1)
    assert a.tolist() == [2]
    with pytest.raises(Fatal, match="index 1 .parameter 'extra'"):
        metal.compile(source, constants={"on": b"\1"}).run("k", {0: a}, 1, 1)


def test_vector_value(metal):
    library = metal.compile(SOURCE, constants={7: struct.pack("<4f", 1, 2, 3, -4.5)})
    a = floats(0, 0, 0, 0)
    library.run("vector", [a], 1, 1)
    assert a.tolist() == [1, 2, 3, -4.5]


def test_unknown_constants_are_ignored(metal):
    library = metal.compile(SOURCE, constants={99: b"\1\0\0\0", "nobody": b"\1"})
    a = floats(0)
    library.run("plain", [a], 1, 1)
    assert a[0] == 3


def test_every_type(metal):
    values = {
        "bool": (b"\1", 1),
        "char": (b"\xfe", -2),
        "uchar": (b"\xfe", 254),
        "short": (struct.pack("<h", -300), -300),
        "ushort": (struct.pack("<H", 65000), 65000),
        "int": (struct.pack("<i", -70000), -70000),
        "uint": (struct.pack("<I", 1 << 31), 1 << 31),
        "long": (struct.pack("<q", -(1 << 40)), -(1 << 40)),
        "half": (np.float16(1.5).tobytes(), 1.5),
        "float": (struct.pack("<f", -2.25), -2.25),
    }
    library = metal.compile(
        "".join(
            f"constant {name} c{n} [[function_constant({n})]];\n" for n, name in enumerate(values)
        )
        + "kernel void k(device float *a) {\n"
        + "".join(f"  a[{n}] = c{n};\n" for n in range(len(values)))
        + "}\n",
        constants={n: v[0] for n, v in enumerate(values.values())},
    )
    a = np.zeros(len(values), np.float32)
    library.run("k", [a], 1, 1)
    assert a.tolist() == [float(v[1]) for v in values.values()]


def test_binding_index(metal):
    source = (
        "constant int first [[function_constant(0)]];\n"
        "constant int second = first + 2;\n"
        "kernel void k(device uint *a [[buffer(first)]],\n"
        "              device uint *b [[buffer(second)]]) {\n"
        "  a[0] = b[0];\n}\n"
    )
    library = metal.compile(source, constants={0: struct.pack("<i", 3)})
    assert [p.index for p in library.kernels["k"].parameters] == [3, 5]
    a = uint(0)
    library.run("k", {3: a, 5: uint(9)}, 1, 1)
    assert a[0] == 9


def test_same_index_for_alternatives(metal):
    """Two parameters may share an index if function constants enable at most one."""
    source = (
        "constant bool wide [[function_constant(0)]];\n"
        "constant bool narrow = !wide;\n"
        "kernel void k(device uint *a [[buffer(0), function_constant(wide)]],\n"
        "    device ushort *b [[buffer(0), function_constant(narrow)]]) {\n"
        "  if (wide) a[0] = 1; else b[0] = 2;\n}\n"
    )
    for value, expected in ((b"\1", 1), (b"\0", 2)):
        a = uint(0)
        metal.compile(source, constants={0: value}).run("k", [a], 1, 1)
        assert a[0] == expected


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "struct S { int x; };\nconstant S s [[function_constant(0)]];",
            "a function constant is a scalar or a vector",
        ),
        (
            "constant int a = 3;\nconstant bool b = is_function_constant_defined(a);",
            "'a' is not a function constant",
        ),
    ],
)
def test_refused(metal, text, words):
    diagnostics = metal.refusal(text + "\n")
    assert words in diagnostics
    assert errors(diagnostics)


def test_value_of_another_size(metal):
    diagnostics = metal.refusal(SOURCE, constants={1: b"\1"})
    assert "has 1 bytes instead of 4" in diagnostics
    ((line, _, _),) = errors(diagnostics)
    assert line == 5
