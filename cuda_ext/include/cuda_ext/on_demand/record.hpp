// Records of texts and numbers, as cuda_ext/formats/codec.py encodes them, and their digests.

#pragma once

#include "../loader/text.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// The digest of `bytes` in binary, as FIPS 180-4 defines it.
std::string sha256(std::string bytes) {
  static constexpr std::uint32_t constants[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto rotated = [](std::uint32_t word, int count) { return word >> count | word << (32 - count); };
  const std::uint64_t bits = std::uint64_t{8} * bytes.size();
  bytes += '\x80';
  bytes.resize((bytes.size() + 8 + 63) / 64 * 64 - 8);
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);

  std::uint32_t words[64] = {};
  for (std::size_t block = 0; block < bytes.size(); block += 64) {
    for (std::size_t i = 0; i < 64; i++) {
      words[i / 4] = words[i / 4] << 8 | static_cast<unsigned char>(bytes[block + i]);
    }
    for (std::size_t i = 16; i < 64; i++) {
      const std::uint32_t near = words[i - 2];
      const std::uint32_t far = words[i - 15];
      words[i] = words[i - 16] + (rotated(far, 7) ^ rotated(far, 18) ^ far >> 3) + words[i - 7] +
                 (rotated(near, 17) ^ rotated(near, 19) ^ near >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < 64; i++) {
      const std::uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[i] + words[i];
      const std::uint32_t second =
          (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first;
      d = c, c = b, b = a, a = first + second;
    }
    const std::uint32_t added[] = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; i++) state[i] += added[i];
  }
  std::string digest;
  for (const std::uint32_t word : state) {
    for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift);
  }
  return digest;
}

// The key of `fields`: 64 hexadecimal digits.
std::string key_of(const std::string& fields) {
  std::string key;
  for (const char byte : sha256(fields)) {
    for (const int shift : {4, 0}) key += "0123456789abcdef"[static_cast<unsigned char>(byte) >> shift & 15];
  }
  return key;
}

std::string encode(Parts fields) {
  std::string bytes;
  for (const Part& field : fields) bytes += joined({field.text().size(), ":", field.text()});
  return bytes;
}

// The number of `texts`, and each of them.
template <class Texts>
std::string encode_list(const Texts& texts) {
  std::string bytes;
  std::size_t count = 0;
  for (const auto& text : texts) bytes += encode({text}), count++;
  return encode({count}) + bytes;
}

// The fields of any bytes; empty if these are not fields.
std::vector<std::string_view> decode(std::string_view bytes) {
  std::vector<std::string_view> fields;
  while (!bytes.empty()) {
    std::size_t size = 0;
    std::size_t digits = 0;
    for (; digits < bytes.size() && digits < 18 && '0' <= bytes[digits] && bytes[digits] <= '9'; digits++) {
      size = 10 * size + static_cast<std::size_t>(bytes[digits] - '0');
    }
    const bool is_size = digits && digits < bytes.size() && bytes[digits] == ':';
    if (!is_size || size > bytes.size() - digits - 1) return {};
    fields.push_back(bytes.substr(digits + 1, size));
    bytes.remove_prefix(digits + 1 + size);
  }
  return fields;
}

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
