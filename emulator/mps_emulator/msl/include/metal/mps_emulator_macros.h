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
#define M_E_F 2.71828182845904523536028747135266250f
#define M_LOG2E_F 1.44269504088896340735992468100189214f
#define M_LOG10E_F 0.434294481903251827651128918916605082f
#define M_LN2_F 0.693147180559945309417232121458176568f
#define M_LN10_F 2.30258509299404568401799145468436421f
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_PI_2_F 1.57079632679489661923132169163975144f
#define M_PI_4_F 0.785398163397448309615660845819875721f
#define M_1_PI_F 0.318309886183790671537767526745028724f
#define M_2_PI_F 0.636619772367581343075535053490057448f
#define M_2_SQRTPI_F 1.12837916709551257389615890312154517f
#define M_SQRT2_F 1.41421356237309504880168872420969808f
#define M_SQRT1_2_F 0.707106781186547524400844362104849039f

// The internal functions of Apple's compiler have an argument that chooses fast
// math.  ../implementation/internal.h has these functions.
#define __METAL_PRECISE_MATH__ false
#define __METAL_FAST_MATH__ true
#define __METAL_MAYBE_FAST_MATH__ false

#define INT_MAX 2147483647

#define FLT_MAX 0x1.fffffep127f
#define FLT_EPSILON 0x1.0p-23f
