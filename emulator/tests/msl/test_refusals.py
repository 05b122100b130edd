"""What Metal refuses is refused, at the right place and in plain words."""

import pytest
from metal import errors

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

# (name, text behind HEADER, line and column of the error, words in it)
REFUSED = [
    (
        "double",
        "kernel void k(device float *a [[buffer(0)]]) { double x = 1; }",
        (3, 48),
        "'double' is not supported in Metal",
    ),
    (
        "long_double",
        "kernel void k(device float *a) {\n  long double x = 1;\n}",
        (4, 8),
        "'double' is not supported",
    ),
    ("long_long", "long long f() { return 1; }", (3, 1), "'long long' is not supported"),
    (
        "pointer_without_space",
        "void f(float *p) {}",
        (3, 15),
        "pointer type must have explicit address space qualifier",
    ),
    (
        "reference_without_space",
        "void f(float &p) {}",
        (3, 15),
        "reference type must have explicit address space qualifier",
    ),
    (
        "local_pointer_without_space",
        "kernel void k(device float *a) {\n  float *p = a;\n}",
        (4, 10),
        "pointer type must have explicit address space",
    ),
    (
        "inner_pointer_without_space",
        "void f(device float *thread *p) { device float **q = p; }",
        (3, 50),
        "pointer type must have explicit address space",
    ),
    (
        "array_of_pointers_without_space",
        "void f() { float *p[4]; }",
        (3, 19),
        "pointer type must have explicit address space",
    ),
    (
        "member_without_space",
        "struct S {\n  float *p;\n};",
        (4, 10),
        "pointer type must have explicit address space",
    ),
    (
        "result_without_space",
        "float *f(device float *p) { return 0; }",
        (3, 8),
        "pointer type must have explicit address space",
    ),
    (
        "alias_without_space",
        "typedef float *P;",
        (3, 16),
        "pointer type must have explicit address space",
    ),
    (
        "template_without_space",
        "template <typename T> void f(T *p) {}",
        (3, 33),
        "pointer type must have explicit address space",
    ),
    (
        "device_to_constant",
        "void f(constant float *p);\nvoid g(device float *p) { f(p); }",
        (4, 29),
        "address spaces differ",
    ),
    (
        "device_to_constant_in_template",
        "void f(constant float *p);\n"
        "template <typename T> void g(device T *p) {\n"
        "  f(p);\n"
        "}\n"
        "kernel void k(device float *p) { g(p); }",
        (5, 5),
        "address spaces differ",
    ),
    (
        "device_to_thread",
        "void f(thread float *p);\nvoid g(device float *p) { f(p); }",
        (4, 27),
        "no matching function for call to 'f'",
    ),
    (
        "constant_to_device",
        "void f(device const float *p);\nvoid g(constant float *p) { f(p); }",
        (4, 29),
        "no matching function for call to 'f'",
    ),
    (
        "threadgroup_to_device",
        "void g(device float *p, threadgroup float *q) { p = q; }",
        (3, 53),
        "'threadgroup float",
    ),
    (
        "cast_between_spaces",
        "void g(device float *p) {\n  constant float *q = (constant float *)p;\n}",
        (4, 23),
        "mismatching address spaces",
    ),
    (
        "method_of_device_object",
        "struct S { float x; float get() const { return x; } };\n"
        "kernel void k(device S *s) { s->x = s->get(); }",
        (4, 37),
        "of type 'const thread S' with an expression of type 'device S'",
    ),
    (
        "method_of_constant_object",
        "struct S { float x; float get() const { return x; } };\n"
        "float f(constant S &s) { return s.get(); }",
        (4, 33),
        "of type 'const thread S' with an expression of type 'constant S'",
    ),
    (
        "recursion",
        "int f(int n) {\n  return n > 0 ? f(n - 1) : 0;\n}",
        (4, 18),
        "recursive call of 'f'",
    ),
    (
        "mutual_recursion",
        "int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }\n",
        None,
        "recursive call of",
    ),
    (
        "recursive_template",
        "template <typename T> T f(T n) { return n > 0 ? f(n - 1) : n; }\n"
        "kernel void k(device int *p) { p[0] = f(p[0]); }",
        (3, 49),
        "recursive call of 'f'",
    ),
    (
        "virtual",
        "struct S {\n  virtual void f() {}\n};",
        (4, 3),
        "'virtual' is not supported in Metal",
    ),
    ("new", "void f() { thread int *p = new int; }", (3, 28), "'new' is not supported in Metal"),
    (
        "delete",
        "void f(thread int *p) { delete p; }",
        (3, 25),
        "'delete' is not supported in Metal",
    ),
    ("throw", "void f() { throw 1; }", (3, 12), "'throw' is not supported in Metal"),
    ("try", "void f() { try { } catch (int) { } }", (3, 12), "'try' is not supported in Metal"),
    ("goto", "void f() { goto end; end: return; }", (3, 12), "'goto' is not supported in Metal"),
    ("noexcept", "void f() noexcept {}", (3, 10), "'noexcept' is not supported in Metal"),
    (
        "dynamic_cast",
        "struct S {}; void f(thread S *s) { dynamic_cast<thread S *>(s); }",
        (3, 36),
        "'dynamic_cast' is not supported in Metal",
    ),
    ("asm", 'void f() { asm("nop"); }', (3, 12), "'asm' is not supported in Metal"),
    ("thread_local", "thread_local int x = 1;", (3, 1), "'thread_local' is not supported in Metal"),
    (
        "register",
        "void f() { register int x = 1; }",
        (3, 12),
        "does not support the 'register' storage class",
    ),
    (
        "static_local",
        "void f() {\n  static int x = 1;\n}",
        (4, 14),
        "variables in function scope cannot be declared static",
    ),
    (
        "threadgroup_memory",
        "kernel void k(device float *a) {\n"
        "  threadgroup float x[8193];\n"
        "  x[0] = a[0];\n"
        "  a[0] = x[0];\n"
        "}",
        (3, 13),
        "Threadgroup memory size (32772) exceeds",
    ),
    (
        "threadgroup_memory_together",
        "kernel void k(device float *a) {\n"
        "  threadgroup float x[4096], y[4000];\n"
        "  threadgroup float4 z[100];\n"
        "  x[0] = y[0] = z[0].x = a[0];\n"
        "}",
        (3, 13),
        "Threadgroup memory size (33984) exceeds",
    ),
    (
        "threadgroup_in_function",
        "void f() {\n  threadgroup float x[4];\n}",
        (4, 21),
        "can only be declared in a kernel function",
    ),
    (
        "program_scope_variable",
        "float x = 1;",
        (3, 7),
        "program scope variable must reside in constant address space",
    ),
    (
        "program_scope_constexpr",
        "constexpr int n = 4;",
        (3, 15),
        "program scope variable must reside in constant address space",
    ),
    (
        "program_scope_in_namespace",
        "namespace a {\nstatic const int n = 4;\n}",
        (4, 18),
        "program scope variable must reside in constant address space",
    ),
    (
        "static_member",
        "struct S { static constexpr int n = 4; };",
        (3, 33),
        "program scope variable must reside in constant address space",
    ),
    ("uninitialized_constant", "constant int n;", (3, 14), "initializ"),
    ("write_to_constant", "constant int n[2] = {1, 2};\nvoid f() { n[0] = 3; }", (4, 17), ""),
    (
        "write_to_constant_buffer",
        "kernel void k(constant float *a) { a[0] = 1; }",
        (3, 41),
        "read-only",
    ),
    (
        "write_to_const_device",
        "kernel void k(const device float *a) { a[0] = 1; }",
        (3, 45),
        "read-only",
    ),
    (
        "variable_length_array",
        "kernel void k(device int *a) { int x[a[0]]; }",
        (3, 38),
        "array size is not a constant expression",
    ),
    (
        "kernel_result",
        "kernel float k(device float *a) { return a[0]; }",
        (3, 14),
        "invalid return type 'float' for kernel function",
    ),
    (
        "kernel_parameter_without_binding",
        "kernel void k(device float *a, uint n) {}",
        (3, 37),
        "invalid type 'uint' for input declaration in a kernel function",
    ),
    (
        "kernel_structure_by_value",
        "struct P { int n; };\nkernel void k(P p [[buffer(0)]]) {}",
        (4, 17),
        "is not valid for attribute 'buffer'",
    ),
    (
        "kernel_thread_pointer",
        "kernel void k(thread float *a [[buffer(0)]]) {}",
        (3, 29),
        "address space",
    ),
    (
        "duplicate_buffer",
        "kernel void k(device float *a [[buffer(1)]],\n"
        "              device float *b [[buffer(1)]]) {}",
        (4, 29),
        "cannot reserve 'buffer' resource location at index 1",
    ),
    (
        "duplicate_threadgroup",
        "kernel void k(threadgroup float *a [[threadgroup(0)]],\n"
        "              threadgroup float *b [[threadgroup(0)]]) {}",
        (4, 34),
        "cannot reserve 'threadgroup' resource location at index 0",
    ),
    (
        "buffer_index",
        "kernel void k(device float *a [[buffer(31)]]) {}",
        (3, 29),
        "must be between 0 and 30",
    ),
    (
        "threadgroup_as_buffer",
        "kernel void k(threadgroup float *a [[buffer(0)]]) {}",
        (3, 34),
        "invalid address space qualification for buffer",
    ),
    (
        "builtin_type",
        "kernel void k(float i [[thread_position_in_grid]]) {}",
        (3, 21),
        "not valid for attribute 'thread_position_in_grid'",
    ),
    (
        "builtin_vector_for_scalar",
        "kernel void k(uint2 i [[thread_index_in_threadgroup]]) {}",
        (3, 21),
        "not valid for attribute 'thread_index_in_threadgroup'",
    ),
    (
        "builtin_dimensions",
        "kernel void k(uint2 i [[thread_position_in_grid]],\n"
        "              uint3 g [[threadgroup_position_in_grid]]) {}",
        (3, 13),
        "need to match",
    ),
    (
        "builtin_types",
        "kernel void k(uint i [[thread_position_in_grid]],\n"
        "              ushort g [[threads_per_grid]]) {}",
        (3, 13),
        "need to match",
    ),
    (
        "kernel_called",
        "kernel void k(device float *a) {}\nkernel void l(device float *a) { k(a); }",
        (4, 34),
        "cannot be called",
    ),
    (
        "kernel_member",
        "struct S { kernel void k(device float *a) {} };",
        (3, 24),
        "kernel function cannot be a member function",
    ),
    (
        "same_host_name",
        '[[host_name("x")]] kernel void k(device float *a) {}\n'
        '[[host_name("x")]] kernel void l(device float *a) {}',
        (4, 32),
        "two kernels have the name 'x'",
    ),
    ("vector_from_other_vector", "void f(int4 i) { float4 x = i; }", (3, 25), "cannot initialize"),
    ("too_few_components", "float4 f() { return float4(1, 2, 3); }", (3, 21), "as many components"),
    (
        "too_many_components",
        "float2 f(float3 v) { return float2(v); }",
        (3, 29),
        "as many components",
    ),
    ("component_beyond", "float f(float2 v) { return v.z; }", (3, 29), "component"),
    (
        "as_type_of_other_size",
        "float4 f(half4 v) { return as_type<float4>(v); }",
        (3, 28),
        "same size",
    ),
    (
        "float_to_bfloat",
        "bfloat f(float x) { bfloat y = x; return y; }",
        (3, 32),
        "'float' cannot be implicitly converted to 'bfloat'",
    ),
    (
        "simd_of_64_bits",
        "ulong f(ulong x) { return simd_sum(x); }",
        (3, 27),
        "no matching function for call to 'simd_sum'",
    ),
    (
        "simd_of_bool",
        "bool f(bool x) { return simd_shuffle(x, 1); }",
        (3, 25),
        "no matching function for call to 'simd_shuffle'",
    ),
    (
        "threadgroup_atomic_float",
        "void f(threadgroup atomic_float *p) {\n"
        "  atomic_fetch_add_explicit(p, 1.0f, memory_order_relaxed);\n}",
        (4, 3),
        "no matching function for call to 'atomic_fetch_add_explicit'",
    ),
    (
        "atomic_order",
        "void f(device atomic_int *p) {\n"
        "  atomic_fetch_add_explicit(p, 1, memory_order_seq_cst);\n}",
        (4, 55),
        "memory_order_relaxed alone",
    ),
    (
        "atomic_of_other_type",
        "void f(device atomic<short> *p) {\n  atomic_load_explicit(p, memory_order_relaxed);\n}",
        None,
        "",
    ),
    ("atomic_as_value", "void f(device atomic_int *p) { int x = *p; }", (3, 36), ""),
    (
        "textures",
        "kernel void k(texture2d<float> t [[texture(0)]]) {}",
        (3, 15),
        "Metal has textures, the emulator has not",
    ),
    (
        "vertex_functions",
        "vertex float4 v() { return 0; }",
        (3, 1),
        "Metal has vertex functions, the emulator has not",
    ),
    (
        "undeclared",
        "kernel void k(device float *a) { a[0] = nothing; }",
        (3, 41),
        "use of undeclared identifier 'nothing'",
    ),
    ("syntax", "kernel void k(device float *a) { a[0] = 1 }", (3, 42), "expected ';'"),
    ("missing_header", "#include <metal_nothing>", (3, 10), "'metal_nothing' file not found"),
    ("error_directive", "#error not this way", (3, 2), "not this way"),
]


@pytest.mark.parametrize(
    "text, place, words", [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_refused(metal, text, place, words):
    diagnostics = metal.refusal(HEADER + text + "\n")
    found = errors(diagnostics)
    assert found, diagnostics
    assert words in diagnostics, diagnostics
    if place is not None:
        assert place in [(line, column) for line, column, _ in found], diagnostics
    for internal in ("__global", "__private", "__generic", "__local", "__msl"):
        assert internal not in diagnostics


# (name, text, the first version that accepts it, words of the refusal)
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
        "pointers_to_functions",
        "float twice(float x) { return 2 * x; }\n"
        "float apply(float (*f)(float), float x) { return f(x); }\n"
        "kernel void k(device float *a) { a[0] = apply(twice, a[0]); }",
        (2, 3),
        "pointers to functions are not allowed",
    ),
    ("bfloat", "kernel void k(device float *a) { bfloat x = 1.0bf; a[0] = x; }", (3, 1), "bfloat"),
    (
        "fence",
        "kernel void k(device float *a) {\n"
        "  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);\n"
        "}",
        (3, 2),
        "atomic_thread_fence",
    ),
]
ALL_VERSIONS = [(2, 2), (2, 3), (2, 4), (3, 0), (3, 1), (3, 2), (4, 0)]


@pytest.mark.parametrize(
    "text, first, words", [case[1:] for case in VERSIONED], ids=[case[0] for case in VERSIONED]
)
def test_language_versions(metal, text, first, words):
    older = max(v for v in ALL_VERSIONS if v < first)
    diagnostics = metal.refusal(HEADER + text + "\n", version=older)
    assert words in diagnostics
    assert errors(diagnostics)
    metal.compile(HEADER + text + "\n", version=first)
    metal.compile(HEADER + text + "\n")


# Metal's compiler takes these as extensions of C++14, with a warning.
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
    metal.compile(HEADER + EXTENSIONS, version=(3, 0))


def test_unknown_version(metal):
    assert "is not a language version" in metal.refusal(HEADER, version=(9, 9))


def test_names_need_no_header(metal):
    """Metal's compiler reads the standard library before the program."""
    text = "kernel void k(device float *a) { a[0] = metal::exp(a[0]); }\n"
    metal.compile(text)
    metal.compile("#include <metal_math>\n" + text)


def test_types_need_no_header(metal):
    metal.compile(
        "kernel void k(device float4 *a, constant uint2 &n,\n"
        "              uint i [[thread_position_in_grid]]) {\n"
        "  a[i] = float4(n.x, n.y, half2(1));\n"
        "}\n"
    )
