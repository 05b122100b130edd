// Marks the C functions that the Python package calls.  Other symbols of the
// library are hidden, unless Apple's or torch's headers export them.
#pragma once

#define MPS_EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))
