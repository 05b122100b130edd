// The byte that stands for memory which nothing has written.
#pragma once

namespace mps_emulator {

// The value of every byte of a buffer or of threadgroup memory that was never
// written, and of each byte of an inactive lane's value in an exchange.  Four
// such bytes are the float -102286.55.
inline constexpr unsigned char kPoison = 0xC7;

}  // namespace mps_emulator
