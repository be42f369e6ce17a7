// SHA-256 (FIPS 180-4): for comparing a decoder's output with published digests.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace asof::test {

class Sha256 {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      block_[size_++ % 64] = static_cast<uint8_t>(c);
      if (size_ % 64 == 0) compress();
    }
  }
  std::string hex() {
    const uint64_t bits = size_ * 8;
    add(std::string_view("\x80", 1));
    while (size_ % 64 != 56) add(std::string_view("\0", 1));
    for (int i = 7; i >= 0; --i) {
      const char c = static_cast<char>(bits >> (8 * i));
      add(std::string_view(&c, 1));
    }
    std::string out;
    for (const uint32_t word : state_) {
      for (int i = 7; i >= 0; --i) out += "0123456789abcdef"[(word >> (4 * i)) & 15];
    }
    return out;
  }

 private:
  // The first 32 bits of the fractional parts of the cube roots of the first 64 primes; of the square roots
  // of the first eight. Computed: exact in integers.
  static constexpr uint32_t fraction_of_root(unsigned prime, bool cube) {
    // The largest r with r^n <= prime * 2^(32 n), n = 2 or 3; its low 32 bits are the fraction.
    unsigned __int128 low = 0, high = static_cast<unsigned __int128>(1) << 37;
    while (high - low > 1) {
      const unsigned __int128 r = (low + high) / 2;
      const bool fits = cube ? r * r <= ((static_cast<unsigned __int128>(prime) << 96) / r)
                             : r * r <= (static_cast<unsigned __int128>(prime) << 64);
      (fits ? low : high) = r;
    }
    return static_cast<uint32_t>(low);
  }
  template <size_t N>
  static constexpr std::array<uint32_t, N> roots(bool cube) {
    std::array<uint32_t, N> out{};
    size_t n = 0;
    for (unsigned p = 2; n < N; ++p) {
      bool prime = true;
      for (unsigned d = 2; d * d <= p; ++d) prime = prime && p % d != 0;
      if (prime) out[n++] = fraction_of_root(p, cube);
    }
    return out;
  }

  void compress() {
    static constexpr auto kRound = roots<64>(true);
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 16; ++i) {
      for (size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | block_[4 * i + j];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                          kRound[i] + w[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> sum{a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state_[i] += sum[i];
  }

  std::array<uint32_t, 8> state_ = roots<8>(false);
  std::array<uint8_t, 64> block_{};
  uint64_t size_ = 0;
};

}  // namespace asof::test
