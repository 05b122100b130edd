"""Tests programs that Metal accepts, but that clang refuses as C++ for OpenCL.

Each test also checks the results of the program.
"""

import numpy as np
import pytest
from metal import floats

# (name, declarations before the kernel, body of the kernel, expected values of `out`).
PROGRAMS = [
    (
        # A float cannot represent 1e8 + 1, but a double can.
        "literals_in_templates_are_floats",
        # With fast math, clang would simplify the sum to v for both types of literals.
        "\n#pragma METAL fp math_mode(safe)\n"
        "template <typename T> T f(T v)"
        " { return T((v + 100000000.0) - 1e8); }"
        "template <typename T> T g(float v) { return T(v * 1.5); }",
        "out[0] = f<float>(1); out[1] = f<float>(1.0); out[2] = g<half>(2);"
        " out[3] = float(sizeof(1.) + sizeof(0x1p3));",
        [0, 0, 3, 8],
    ),
    (
        # The instantiation has the words `template` and `class`, but no template parameter.
        "an_explicit_instantiation_of_a_class",
        "template <typename T> class Box { public: Box(T x) : value(x) {} T value; };"
        "template class Box<float>;",
        "out[0] = Box<float>(2.0f).value;",
        [2],
    ),
    (
        "a_member_function_whose_return_type_comes_last",
        "struct S { float x; auto f() const -> float { float2 v(x, 1); return v.x + v.y; } };",
        "S s = {5}; out[0] = s.f();",
        [6],
    ),
    (
        "defaulted_and_deleted_member_functions_of_thread_objects",
        "struct S { float x; thread S &operator=(const thread S &) = default;"
        " void set(int) = delete; void set(float y) { x = y; } };",
        "S s = {1}; S t = {2}; s = t; out[0] = s.x; t.set(3.0f); out[1] = t.x;",
        [2, 3],
    ),
    (
        # The suffix of a bfloat has the letters of two digits.
        "hexadecimal_literals",
        "",
        "out[0] = 0xbf; out[1] = 0XABF; out[2] = 2.5bf;",
        [0xBF, 0xABF, 2.5],
    ),
    (
        "threadgroup_variables_with_initializers",
        "struct S { float x; };",
        "threadgroup float a = 0.0f; threadgroup float b[2] = {1, 2};"
        " threadgroup S s = {3}; threadgroup uint n{4};"
        " a = 5; b[0] = 6; b[1] = 7; s.x = 8; n = 9;"
        " out[0] = a; out[1] = b[0] + b[1]; out[2] = s.x; out[3] = n;",
        [5, 13, 8, 9],
    ),
    (
        "strings_as_arguments",
        "uint length(constant const char *text) { uint n = 0; while (text[n]) ++n; return n; }",
        'int four __attribute__((annotate("text"))) = length("four");'
        ' out[0] = four; out[1] = length((("a" "bc")));'
        ' out[2] = length(__func__); static_assert(true, "text");'
        ' constant const char *text = "abcdef"; out[3] = text[5];',
        [4, 3, 1, ord("f")],
    ),
    (
        "conversion_between_small_floats",
        "template <typename T, typename U> T to(U x) { return static_cast<T>(x); }",
        "half h = 1.5h; bfloat b = bfloat(h); out[0] = float(b);"
        " out[1] = float(half(b + b)); out[2] = to<half>(b);"
        " out[3] = half2(b, h).x;",
        [1.5, 3, 1.5, 1.5],
    ),
    (
        "results_in_two_address_spaces",
        "struct S { float x; };",
        "threadgroup S shared; shared.x = 2; S own = {5};"
        " S a = out[0] == 0 ? shared : own; out[0] = a.x;"
        " S b = out[0] == 0 ? shared : own; out[1] = b.x;"
        " S c = out[0] == 2 ? out[1] == 5 ? shared : own : own; out[2] = c.x;",
        [2, 5, 2],
    ),
    (
        "assertions",
        "#include <metal_assert>\n",
        "int n = 3; assert(n == 3); static_assert(sizeof(n) == 4); out[0] = n;",
        [3],
    ),
    (
        "reference_to_a_pointer",
        "void advance(device float *&p) { ++p; }",
        "device float *p = out; advance(p); advance(p); *p = 4;",
        [0, 0, 4],
    ),
    (
        "list_for_threadgroup_memory",
        "",
        "threadgroup float t[4] = {}; t[1] = 7; out[0] = t[1];",
        [7],
    ),
    (
        "alias_that_may_be_boolean",
        "template <typename T> struct Tile { typedef metal::vec<T, 2> pair; };",
        "Tile<bool>::pair b; b.x = true; b.y = false;"
        " Tile<float>::pair f = {3, 4}; out[0] = b.x ? f.x : 0;"
        " out[1] = b.y ? 0 : f.y;",
        [3, 4],
    ),
    (
        "arrays_as_parameters",
        "template <typename T> T last(T x, const T values[], int n) { return x + values[n - 1]; }"
        " void set(float values[], device float out[]) { out[1] = values[0] = 6; }",
        "float values[3] = {1, 2, 3}; out[0] = last(4.0f, values, 3); set(values, out);"
        " out[2] = values[0];",
        [7, 6, 6],
    ),
    (
        "recursion_that_no_kernel_reaches",
        "float g(float x) { return x < 0 ? -g(-x) : x; }"
        " template <typename T> T f(T x) { return x < 0 ? -f(-x) : x; }",
        "out[0] = 1;",
        [1],
    ),
    (
        "constants_with_constructors",
        "struct Name { char first; uint size;"
        " constexpr Name(const constant char *text, uint n) constant : first(text[0]), size(n) {}"
        ' char get() const constant { return first; } };\nconstant Name name("abc", 3);',
        "out[0] = name.get(); out[1] = name.size;",
        [ord("a"), 3],
    ),
    (
        "initializers_of_members",
        "struct Pair { float x, y; Pair(float a) : x{a}, y(2) { y += x; }"
        " Pair(float a, float b) : x(a), y{b} { y += 1; }"
        " float sum() const { return x + y; } };"
        " struct Far { float x; Far(float a) device : x{a} {} Far(float a) constant : x{a} {} };",
        "Pair pair(3); out[0] = pair.sum(); Pair other(4, 5); out[1] = other.sum();",
        [8, 10],
    ),
    (
        # clang declares the parameter of this operator= as a reference without an address space.
        "member_functions_that_clang_adds",
        "struct Pair { float x, y; Pair() : x(1), y(2) {} }; struct Both { Pair own; };",
        "Both a, b; a.own.x = 5; b = a; Both c(b); out[0] = c.own.x + c.own.y;",
        [7],
    ),
    (
        "member_functions_for_device_and_constant",
        "struct Pair { float x, y; float sum() const device { return x + y; }"
        " float sum() const constant { return x + y; } float sum() const { return x - y; } };"
        "\nconstant Pair pair = {1, 2};",
        "out[2] = 5; out[3] = 6; Pair own = {4, 3}; out[0] = ((device Pair *)(out + 2))->sum();"
        " out[1] = pair.sum(); out[2] = own.sum();",
        [11, 3, 1],
    ),
    (
        "members_of_all_kinds",
        "struct Members {"
        " alignas(16) float first = (1 + 2); float values[int(2)] = {4, 5};"
        " array<float, int(2)> pair = {6, 7};"
        ' static_assert(sizeof(float) == int(4), "");'
        " typedef float Function(float);"
        " static float twice(float x) { return x * 2; }"
        " friend float sum(Members m) { return m.first + m.values[1] + m.pair[1]; }"
        " decltype(float(1)) get() const { return first; }"
        " __attribute__((always_inline)) float times(float x) const { return first * x; }"
        " float operator()(float x) const { return first + x; }"
        " operator float() const { return first; }"
        " ~Members() {}"
        " struct Inner { float get() const { return 1; }"
        " float two() const device { return 2; } float two() const constant { return 2; } };"
        " };",
        "Members m; out[0] = sum(m); out[1] = Members::twice(m.get()) + m.times(2);"
        " out[2] = m(1) + float(m);",
        [15, 12, 7],
    ),
    (
        # Of two member functions that differ in these words, clang sees only the first one.
        "member_functions_after_access_specifiers",
        "struct A { float f() const device { return 1; }"
        " public: float f() const constant { return 1; }"
        " float g() const device { return 2; } protected: float g() const constant { return 2; }"
        " float h() const device { return 3; } private: float h() const constant { return 3; } };",
        "out[0] = ((device A *)out)->f();",
        [1],
    ),
    (
        "type_traits",
        "static_assert(is_convertible_v<float, int> && !is_convertible<device int *, int>::value);"
        "static_assert(_disjunction<is_same<int, uint>, is_unsigned<uint>>::value);"
        "static_assert(!_conjunction<is_same<int, uint>, is_unsigned<uint>>::value);"
        "static_assert(is_same_v<conditional_t<false, int, half>, remove_cv_t<const half>>);",
        "out[0] = 1;",
        [1],
    ),
    (
        "logs_drop_their_messages",
        '#include <metal_logging>\nconstant os_log logger("subsystem", "category");\n',
        'logger.log_debug("the value is %f", out[0]); out[0] = 2;',
        [2],
    ),
    (
        "internal_functions",
        "float f(bfloat x) { return __metal_exp2(float(x), __METAL_MAYBE_FAST_MATH__); }",
        "out[0] = f(3); out[1] = __metal_fmax(1.0f, 2.0f, __METAL_FAST_MATH__);"
        " out[2] = __metal_simd_sum(4.0f); out[3] = __metal_simd_shuffle(5.0f, 0);",
        [8, 2, 4, 5],
    ),
]


@pytest.mark.parametrize(
    "declarations, body, expected",
    [program[1:] for program in PROGRAMS],
    ids=[program[0] for program in PROGRAMS],
)
def test_accepted(metal, declarations, body, expected):
    source = declarations + f"\nkernel void k(device float *out [[buffer(0)]]) {{ {body} }}"
    out = np.zeros(4, np.float32)
    metal.run(source, "k", [out], 1, 1)
    assert out[: len(expected)].tolist() == expected


def test_warnings_of_the_preprocessor_are_not_part_of_the_program(metal):
    source = """
#define SIZE 3
#define SIZE 4
#warning something
kernel void k(device float *out [[buffer(0)]]) { out[0] = SIZE; }
"""
    out = floats(0)
    metal.run(source, "k", [out], 1, 1)
    assert out[0] == 4
