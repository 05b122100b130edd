// Marks the C functions that the Python package calls; everything else in the
// library is hidden unless Apple's or torch's headers say otherwise.
#pragma once

#define MPS_EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))
