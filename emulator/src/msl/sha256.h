// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mps_emulator::msl {

class Sha256 {
 public:
  Sha256();

  void Update(std::string_view bytes);
  // Hashes the length and then the bytes, so that a row of fields cannot be
  // cut up in another way into the same hash.
  void UpdateField(std::string_view bytes);

  // The digest in hexadecimal.  The object is of no more use afterwards.
  std::string Finish();

 private:
  void ProcessBlock(const unsigned char *block);

  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_;
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};

}  // namespace mps_emulator::msl
