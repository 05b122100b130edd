// The part of Apple's simd library that Metal programs see: further names for
// Metal's vector and matrix types.
#pragma once
#include "../mps_emulator_macros.h"
#pragma mps_emulator simd
