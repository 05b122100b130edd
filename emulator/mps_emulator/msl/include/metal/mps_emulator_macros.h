// The macros of Metal's standard headers.  For #include <metal_...> the
// preprocessor reads only the files of this folder.  The declarations are in
// ../implementation, which the front end includes after preprocessing.
#pragma once
#pragma mps_emulator metal_stdlib

#define METAL_FUNC inline __attribute__((__always_inline__))

// <metal_assert>.  A program evaluates the condition, but ignores its value.
#undef assert
#define assert(condition) ((void)(condition))

#define HUGE_VALF (__builtin_huge_valf())
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_SQRT2_F 1.41421356237309504880168872420969808f

#define INT_MAX 2147483647

#define FLT_MAX 0x1.fffffep127f
#define FLT_EPSILON 0x1.0p-23f
