"""Tests parameters, names, templates and limits of kernels."""

import numpy as np
import pytest
from metal import floats, kernels_of, uint


def test_parameters():
    source = """
struct Params { uint n; float4 scale; };
kernel void k(device const float *in [[buffer(3)]],
              device half2 *out [[buffer(0)]],
              constant Params &params [[buffer(7)]],
              constant float3 *table [[buffer(1)]],
              device atomic_uint &counter [[buffer(2)]],
              threadgroup float4 *shared [[threadgroup(2)]],
              uint i [[thread_position_in_grid]]) {}
"""
    (kernel,) = kernels_of(source).values()
    assert kernel.name == "k"
    assert kernel.max_total_threads == 1024
    assert kernel.static_threadgroup_bytes == 0
    assert not kernel.suspends
    found = [
        (p.name, p.kind, p.index, p.writable, p.by_reference, p.element_size)
        for p in kernel.parameters
    ]
    assert found == [
        ("in", "buffer", 3, False, False, 4),
        ("out", "buffer", 0, True, False, 4),
        ("params", "buffer", 7, False, True, 32),
        ("table", "buffer", 1, False, False, 16),
        ("counter", "buffer", 2, True, True, 4),
        ("shared", "threadgroup", 2, False, False, 16),
        ("i", "builtin", None, False, False, 0),
    ]


def test_indices_that_are_not_given():
    """A parameter without an index gets the lowest free index."""
    source = """
kernel void k(device float *a, device float *b [[buffer(0)]],
              constant float &c, device float *d [[buffer(2)]],
              device float *e, threadgroup float *f, threadgroup float *g) {}
"""
    (kernel,) = kernels_of(source).values()
    assert [p.index for p in kernel.parameters] == [1, 0, 3, 2, 4, 0, 1]


def test_computed_indices(metal):
    source = """
constant uint kFirst = 4;
enum Slots { kSecond = 9 };
#define THIRD 11
kernel void k(device float *a [[buffer(kFirst)]],
              device float *b [[buffer(kSecond + 1)]],
              device float *c [[ buffer( THIRD ) ]]) { a[0] = b[0] + c[0]; }
"""
    a, b, c = floats(0), floats(2), floats(3)
    metal.run(source, "k", {4: a, 10: b, 11: c}, 1, 1)
    assert a[0] == 5


def test_a_kernel_may_be_declared_before_its_definition(metal):
    """Only a definition has a body, in which the front end computes an index."""
    source = """
constant uint kFirst = 4;
kernel void k(device float *a [[buffer(kFirst)]]);
kernel void k(device float *a [[buffer(kFirst)]]) { a[0] = 5; }
"""
    a = floats(0)
    metal.run(source, "k", {4: a}, 1, 1)
    assert a[0] == 5


def test_attribute_spellings(metal):
    source = """
[[kernel]] void a(device float *x [[buffer(0u)]]) { x[0] = 1; }
[[kernel, max_total_threads_per_threadgroup(64)]] void b(device float *x) {
  x[0] = 2;
}
[[max_total_threads_per_threadgroup(32 * 4)]]
kernel void c(device float *x) { x[0] = 3; }
[[host_name("other")]] [[kernel]] void d(device float *x) { x[0] = 4; }
static kernel void e(device float *x) { x[0] = 5; }
namespace outer { namespace inner {
kernel void f(device float *x) { x[0] = 6; }
} }
"""
    library = metal.compile(source)
    kernels = kernels_of(source)
    assert list(kernels) == ["a", "b", "c", "other", "e", "outer::inner::f"]
    assert kernels["b"].max_total_threads == 64
    assert kernels["c"].max_total_threads == 128
    x = floats(0)
    for value, name in enumerate(kernels, 1):
        library.run(name, [x], 1, 1)
        assert x[0] == value


TEMPLATES = """
template <typename T, int N>
[[max_total_threads_per_threadgroup(N * 32)]]
kernel void scale(device T *x [[buffer(N)]], constant T &f [[buffer(0)]],
                  uint i [[thread_position_in_grid]]) {
  threadgroup T shared[N];
  shared[i % N] = x[i] * f + T(N);
  x[i] = shared[i % N];
}
#define INSTANCE(name, type, n)                                        \\
  template [[host_name("scale_" #name)]] [[kernel]] void scale<type, n>( \\
      device type *x [[buffer(n)]], constant type &f [[buffer(0)]],    \\
      uint i [[thread_position_in_grid]]);
INSTANCE(float, float, 2)
INSTANCE(int, int, 3)

namespace space {
struct Pair { float a, b; };
template <typename T>
kernel void swap_pairs(device T *x, uint i [[thread_position_in_grid]]) {
  T t = x[i];
  x[i].a = t.b;
  x[i].b = t.a;
}
template [[host_name("swap_float")]] kernel
decltype(swap_pairs<Pair>) swap_pairs<Pair>;
}

template <typename T> kernel void one(device T *x) { x[0] = T(1); }
template [[host_name("one_half")]] kernel void one(device half *);
template [[host_name("one_uint")]] kernel void one(device uint *x);
"""


def test_templates(metal):
    library = metal.compile(TEMPLATES)
    kernels = kernels_of(TEMPLATES)
    assert sorted(kernels) == ["one_half", "one_uint", "scale_float", "scale_int", "swap_float"]
    assert kernels["scale_float"].max_total_threads == 64
    assert kernels["scale_float"].static_threadgroup_bytes == 8
    assert kernels["scale_float"].parameters[0].index == 2
    assert kernels["scale_int"].max_total_threads == 96
    assert kernels["scale_int"].static_threadgroup_bytes == 12
    assert kernels["scale_int"].parameters[0].index == 3
    assert kernels["one_half"].parameters[0].element_size == 2

    x = floats(1, 2, 3, 4)
    library.run("scale_float", {2: x, 0: floats(10)}, 4, 1)
    assert x.tolist() == [12, 22, 32, 42]
    n = np.array([1, 2, 3, 4], np.int32)
    library.run("scale_int", {3: n, 0: np.array([-1], np.int32)}, 4, 1)
    assert n.tolist() == [2, 1, 0, -1]
    pairs = floats(1, 2, 3, 4)
    library.run("swap_float", [pairs], 2, 1)
    assert pairs.tolist() == [2, 1, 4, 3]
    half = np.zeros(1, np.float16)
    library.run("one_half", [half], 1, 1)
    assert half[0] == 1


def test_predefined_macros(metal):
    source = """
#if defined(__linux__) || defined(__x86_64__) || defined(__OPENCL_VERSION__)
#error the host is visible
#endif
kernel void k(device uint *x) { x[0] = __METAL_VERSION__; x[1] = __cplusplus; }
"""
    x = uint(0, 0)
    metal.run(source, "k", [x], 1, 1)
    assert x.tolist() == [320, 201402]


def test_programs_can_use_opencls_keywords_as_names(metal):
    source = """
struct global { float local; };
kernel void k(device float *pipe, uint generic [[thread_position_in_grid]]) {
  global private_ = {2};
  float read_only = private_.local;
  threadgroup float local;
  local = read_only;
  pipe[generic] = local * 3;
}
"""
    names = [p.name for p in kernels_of(source)["k"].parameters]
    assert names == ["pipe", "generic"]
    x = floats(0)
    metal.run(source, "k", [x], 1, 1)
    assert x[0] == 6


@pytest.mark.parametrize(
    "name",
    "stdlib math atomic simdgroup compute common integer relational geometric limits"
    " type_traits array".split(),
)
def test_a_program_may_include_only_one_header(metal, name):
    metal.compile(
        "kernel void k(device float *x) { x[0] = metal::max(x[0], 1.0f); }\n",
        header=f"#include <metal_{name}>\n",
    )


def test_program_without_kernels(metal):
    """The program does not instantiate its kernel template."""
    source = "template <typename T> kernel void k(device T *x) {}\n"
    metal.compile(source)
    assert kernels_of(source) == {}


def test_program_scope_constants(metal):
    source = """
struct Entry { float x; int n[2]; };
constant float table[4] = {1, 2, 3, 4};
constant Entry entries[] = {{0.5f, {1, 2}}, {1.5f, {3, 4}}};
constant float4 vector = float4(1, 2, 3, 4);
constant float2 pair(5, 6);
constexpr constant int kCount = sizeof(table) / sizeof(table[0]);
constant int sum = kCount * 2 + 1;
namespace inner { static constant uint value = 7; }
struct S { static constant constexpr int kNine = 9; };
template <typename T> constexpr constant int size_of = sizeof(T);
float pick(constant float *p, int i) { return p[i]; }
kernel void k(device float *x, uint i [[thread_position_in_grid]]) {
  constant float *p = table;
  x[0] = pick(table, 2) + pick(&table[1], 0) + p[3];
  Entry e = entries[1];
  x[1] = e.x + e.n[1];
  x[2] = vector.w + pair.y;
  x[3] = sum;
  x[4] = inner::value + S::kNine;
  x[5] = size_of<half4>;
}
"""
    x = np.zeros(6, np.float32)
    metal.run(source, "k", [x], 1, 1)
    assert x.tolist() == [9, 5.5, 10, 9, 16, 8]


def test_a_run_of_a_kernel_that_the_library_lacks_is_an_error(metal):
    library = metal.compile("kernel void k(device float *x) { x[0] = 1; }")
    with pytest.raises(KeyError, match="the library has no kernel other"):
        library.run("other", [floats(0)], 1, 1)


def test_a_run_with_an_array_that_is_not_contiguous_is_an_error(metal):
    library = metal.compile("kernel void k(device float *x) { x[0] = 1; }")
    with pytest.raises(ValueError, match="the array of buffer 0 is not contiguous"):
        library.run("k", [floats(0, 1, 2, 3)[::2]], 1, 1)
