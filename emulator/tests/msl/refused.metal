// The cases of test_refusals.py, by subject.  read_refused() there explains the format.
//
// A comment at the begin of a case gives the reason of the refusal, or what is special about it.

// ---- Words and types that Metal lacks

//// double: 'double' is not supported in Metal
kernel void k(device float *a [[buffer(0)]]) { double x = 1; }
                                               ^
//// long_long: 'long long' is not supported
long long f() { return 1; }
^
//// register: does not support the 'register' storage class
void f() { register int x = 1; }
           ^
//// class_template_argument_deduction: deduction
// Metal is C++14 with extensions, and this feature of C++17 is none of these.
template <typename T> struct Box { T x; Box(T v) : x(v) {} };
kernel void k(device float *a) { Box b(1.0f); a[0] = b.x; }
                                 ^
//// auto_template_parameter: template parameters declared with
// This feature, too, is one of C++17.
template <auto n> int f() { return n; }
               ^
kernel void k(device int *a) { a[0] = f<3>(); }
//// variable_length_array: array size is not a constant expression
kernel void k(device int *a) { int x[a[0]]; }
                                     ^

// ---- What Metal has and the emulator lacks

//// textures: 'texture2d'
kernel void k(texture2d<float> t [[texture(0)]]) {}
              ^
//// vertex_functions: unknown type name 'vertex'
vertex float4 v() { return 0; }
^
//// recursion: recursive call of 'f'
// Metal allows recursion in pipelines with a larger maxCallStackDepth.
int f(int n) {
  return n > 0 ? f(n - 1) : 0;
                 ^
}
kernel void k(device int *p) { p[0] = f(p[0]); }
//// recursive_template: recursive call of 'f'
template <typename T> T f(T n) { return n > 0 ? f(n - 1) : n; }
                                                ^
kernel void k(device int *p) { p[0] = f(p[0]); }

// ---- Pointers and references that name no address space

//// pointer_without_space: pointer type must have explicit address space qualifier
void f(float *p) {}
              ^
//// reference_without_space: reference type must have explicit address space qualifier
void f(float &p) {}
              ^
//// inner_pointer_without_space: pointer type must have explicit address space
void f(device float *thread *p) { device float **q = p; }
                                                 ^
//// array_of_pointers_without_space: pointer type must have explicit address space
void f() { float *p[4]; }
                  ^
//// member_without_space: pointer type must have explicit address space
struct S {
  float *p;
         ^
};
//// alias_without_space: pointer type must have explicit address space
typedef float *P;
               ^
//// template_without_space: pointer type must have explicit address space
// The template needs no instance to be refused.
template <typename T> void f(T *p) {}
                                ^

// ---- Conversions between address spaces

//// device_to_constant: address spaces differ
// In clang, `constant` is an address space that contains `device`.
void f(constant float *p);
void g(device float *p) { f(p); }
                            ^
//// device_to_constant_in_template: address spaces differ
// The error is only in the instance, in which T is known.
void f(constant float *p);
template <typename T> void g(device T *p) {
  f(p);
    ^
}
kernel void k(device float *p) { g(p); }
//// device_to_thread: no matching function for call to 'f'
void f(thread float *p);
void g(device float *p) { f(p); }
                          ^
//// threadgroup_to_device: 'threadgroup float
void g(device float *p, threadgroup float *q) { p = q; }
                                                    ^
//// cast_between_spaces: mismatching address spaces
void g(device float *p) {
  constant float *q = (constant float *)p;
                      ^
}
//// method_of_device_object: of type 'const thread S' with an expression of type 'device S'
// A member function without the word `device` is for objects in `thread` memory.
struct S { float x; float get() const { return x; } };
kernel void k(device S *s) { s->x = s->get(); }
                                    ^

// ---- Variables

//// program_scope_variable: program scope variable must reside in constant address space
float x = 1;
      ^
//// uninitialized_constant: initializ
constant int n;
             ^
//// write_to_constant:
constant int n[2] = {1, 2};
void f() { n[0] = 3; }
                ^
//// static_local: variables in function scope cannot be declared static
void f() {
  static int x = 1;
             ^
}
//// threadgroup_in_function: can only be declared in a kernel function
void f() {
  threadgroup float x[4];
                    ^
}
//// threadgroup_memory_together: Threadgroup memory size (33984) exceeds
// Each variable fits into 32 KB, but all together do not.
kernel void k(device float *a) {
            ^
  threadgroup float x[4096], y[4000];
  threadgroup float4 z[100];
  x[0] = y[0] = z[0].x = a[0];
}

// ---- Results and parameters of kernels

//// kernel_result: invalid return type 'float' for kernel function
kernel float k(device float *a) { return a[0]; }
             ^
//// kernel_parameter_without_binding: invalid type 'uint' for input declaration in a kernel function
kernel void k(device float *a, uint n) {}
                                    ^
//// kernel_structure_by_value: is not valid for attribute 'buffer'
// A structure is passed as `constant P &`.
struct P { int n; };
kernel void k(P p [[buffer(0)]]) {}
                ^
//// kernel_thread_pointer: address space
kernel void k(thread float *a [[buffer(0)]]) {}
                            ^
//// threadgroup_as_buffer: invalid address space qualification for buffer
kernel void k(threadgroup float *a [[buffer(0)]]) {}
                                 ^
//// buffer_index: must be between 0 and 30
kernel void k(device float *a [[buffer(31)]]) {}
                            ^
//// duplicate_buffer: cannot reserve 'buffer' resource location at index 1
kernel void k(device float *a [[buffer(1)]],
              device float *b [[buffer(1)]]) {}
                            ^

// ---- Built-in parameters of kernels

//// builtin_type: not valid for attribute 'thread_position_in_grid'
kernel void k(float i [[thread_position_in_grid]]) {}
                    ^
//// builtin_vector_for_scalar: not valid for attribute 'thread_index_in_threadgroup'
kernel void k(uint2 i [[thread_index_in_threadgroup]]) {}
                    ^
//// builtin_dimensions: need to match
// All vectors that describe a place in the grid have the same number of components.
kernel void k(uint2 i [[thread_position_in_grid]],
            ^
              uint3 g [[threadgroup_position_in_grid]]) {}
//// builtin_types: need to match
kernel void k(uint i [[thread_position_in_grid]],
            ^
              ushort g [[threads_per_grid]]) {}

// ---- Names, calls and instances of kernels

//// kernel_called: cannot be called
kernel void k(device float *a) {}
kernel void l(device float *a) { k(a); }
                                 ^
//// kernel_member: kernel function cannot be a member function
struct S { kernel void k(device float *a) {} };
                       ^
//// same_host_name: two kernels have the name 'x'
[[host_name("x")]] kernel void k(device float *a) {}
[[host_name("x")]] kernel void l(device float *a) {}
                               ^
//// instances_without_names: two kernels have the name 'k'
// Without [[host_name]] each instance has the name of the template.
template <typename T> kernel void k(device T *x) {}
template kernel void k(device int *x);
template kernel void k(device float *x);
//// wrong_instance: explicit instantiation of 'k' does not refer to a function template
template <typename T> kernel void k(device T *x) {}
template [[host_name("a")]] kernel void k<int>(device float *x);
                                        ^
//// error_in_instance: invalid operands to binary expression
// The error is in the text of the template, which is right for other types.
struct S { int x; };
template <typename T> kernel void k(device T *x) {
  x[0] = x[0] + x[1];
              ^
}
template [[host_name("a")]] kernel void k<S>(device S *x);

// ---- Vectors and numbers

//// vector_from_other_vector: cannot initialize
// Metal converts vectors only explicitly.
void f(int4 i) { float4 x = i; }
                        ^
//// too_few_components: as many components
float4 f() { return float4(1, 2, 3); }
                    ^
//// component_beyond: component
float f(float2 v) { return v.z; }
                            ^
//// as_type_of_other_size: same size
float4 f(half4 v) { return as_type<float4>(v); }
                           ^
//// float_to_bfloat: 'float' cannot be implicitly converted to 'bfloat'
bfloat f(float x) { bfloat y = x; return y; }
                               ^

// ---- Simdgroup functions and atomics

//// simd_of_64_bits: no matching function for call to 'simd_sum'
ulong f(ulong x) { return simd_sum(x); }
                          ^
//// simd_of_bool: no matching function for call to 'simd_shuffle'
bool f(bool x) { return simd_shuffle(x, 1); }
                        ^
//// threadgroup_atomic_float: no matching function for call to 'atomic_fetch_add_explicit'
// Metal adds floats atomically only in `device` memory.
void f(threadgroup atomic_float *p) {
  atomic_fetch_add_explicit(p, 1.0f, memory_order_relaxed);
  ^
}
//// atomic_order: accept only memory_order_relaxed
void f(device atomic_int *p) {
  atomic_fetch_add_explicit(p, 1, memory_order_seq_cst);
                                                      ^
}
//// atomic_of_other_type:
void f(device atomic<short> *p) {
  atomic_load_explicit(p, memory_order_relaxed);
}
//// atomic_as_value:
void f(device atomic_int *p) { int x = *p; }
                                   ^

// ---- Errors that clang finds as in any C++

//// undeclared: use of undeclared identifier 'nothing'
kernel void k(device float *a) { a[0] = nothing; }
                                        ^
//// syntax: expected ';'
kernel void k(device float *a) { a[0] = 1 }
                                         ^
//// template_without_parameters: expected unqualified-id
template { int x; };
         ^
//// the_end_of_the_file_in_a_class: expected ';' at end of declaration list
struct S {
  void f()
         ^
//// operator_without_parameters: 'operator+' cannot be the name
struct S { float operator+; };
                 ^
//// template_arguments_without_an_end: expected '>'
struct S { array<float, 2 x; };

// ---- The preprocessor

//// missing_header: 'metal_nothing' file not found
#include <metal_nothing>
         ^
//// error_directive: not this way
#error not this way
 ^
//// unterminated_condition: unterminated conditional
#if 1
 ^
kernel void k(device float *a) {}

// ---- Places of errors, in lines that the rewriting or the preprocessor changes

//// column_after_attributes: unknown type name 'missing'
kernel void k(device float4 *a [[buffer(0)]], uint i [[thread_position_in_grid]], device missing *b) {}
                                                                                         ^
//// column_after_constructors: undeclared identifier 'oops'
kernel void k(device float4 *a, uint i [[thread_position_in_grid]]) {
  a[i] = float4(1,   2, (float4)(half4)a[i].xyzw, 3).xyzw + oops;
                                                            ^
}
//// comments: undeclared identifier 'oops'
/* a comment
   of two lines */ kernel void k(device float *a) {
  a[0] = 1; /* x */ a[1] = oops; // oops
                           ^
}
//// macro: undeclared identifier 'unknown'
// The place is where the macro is used.
#define STORE(x) a[0] = x + unknown
kernel void k(device float *a) {
  a[1] = 2; STORE(1);
  ^
}
//// beyond_ascii: undeclared identifier 'nothing'
// A column counts characters, and clang counts bytes.
kernel void k(device float *a) {
  /* Größe */ a[0] = nothing; // naïve
                     ^
}
