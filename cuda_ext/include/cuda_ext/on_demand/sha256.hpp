// SHA-256, as FIPS 180-4 has it.

#pragma once

#include "../data.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// Takes bytes in pieces; asked for their digest once, at the end.
class Sha256 {
 public:
  static constexpr std::size_t size = 32;

  Sha256& update(std::string_view bytes) noexcept {
    length_ += bytes.size();
    while (!bytes.empty()) {
      const std::size_t room = sizeof block_ - filled_;
      const std::size_t taken = bytes.size() < room ? bytes.size() : room;
      std::memcpy(block_ + filled_, bytes.data(), taken);
      filled_ += taken;
      bytes.remove_prefix(taken);
      if (filled_ == sizeof block_) compress();
    }
    return *this;
  }

  // The digest as bytes.
  std::string digest() noexcept {
    const std::uint64_t bits = 8 * length_;
    update({"\x80", 1});
    while (filled_ != 56) update({"\0", 1});
    char length[8];
    for (int i = 0; i < 8; i++) length[i] = static_cast<char>(bits >> (56 - 8 * i));
    update({length, 8});
    std::string digest;
    for (const std::uint32_t word : state_) {
      for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift);
    }
    return digest;
  }

 private:
  static constexpr std::uint32_t rotated(std::uint32_t word, int count) noexcept {
    return word >> count | word << (32 - count);
  }

  void compress() noexcept {
    static constexpr std::uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    filled_ = 0;
    std::uint32_t words[64];
    for (std::size_t i = 0; i < 16; i++) {
      words[i] = std::uint32_t{block_[4 * i]} << 24 | std::uint32_t{block_[4 * i + 1]} << 16 |
                 std::uint32_t{block_[4 * i + 2]} << 8 | block_[4 * i + 3];
    }
    for (std::size_t i = 16; i < 64; i++) {
      const std::uint32_t near = words[i - 2];
      const std::uint32_t far = words[i - 15];
      words[i] = words[i - 16] + (rotated(far, 7) ^ rotated(far, 18) ^ far >> 3) + words[i - 7] +
                 (rotated(near, 17) ^ rotated(near, 19) ^ near >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; i++) {
      const std::uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[i] + words[i];
      const std::uint32_t second =
          (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const std::uint32_t worked[] = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; i++) state_[i] += worked[i];
  }

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::uint64_t length_ = 0;
  unsigned char block_[64];
  std::size_t filled_ = 0;
};

// In lower case.
inline std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += "0123456789abcdef"[value >> 4];
    text += "0123456789abcdef"[value & 15];
  }
  return text;
}

inline std::string sha256_hex(std::string_view bytes) { return hexadecimal(Sha256().update(bytes).digest()); }

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
