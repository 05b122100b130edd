#pragma once

#include <string>
#include <string_view>

#include "core/hexadecimal.h"

namespace mps_emulator::msl {

// FNV-1a with 128 bits: no protection against deliberate collisions.
class Hash {
 public:
  // Hashes the number of bytes too, so that the borders between fields count.
  void AddField(std::string_view bytes) {
    Add(std::to_string(bytes.size()) + ":");
    Add(bytes);
  }

  std::string Hexadecimal() const {
    return mps_emulator::Hexadecimal(
        {reinterpret_cast<const char *>(&state_), sizeof(state_)});
  }

 private:
  using Number = unsigned __int128;

  void Add(std::string_view bytes) {
    constexpr Number kPrime = (Number{1} << 88) + 0x13b;
    for (unsigned char byte : bytes) state_ = (state_ ^ byte) * kPrime;
  }

  Number state_ = Number{0x6c62272e07bb0142} << 64 | 0x62b821756295c58d;
};

}  // namespace mps_emulator::msl
