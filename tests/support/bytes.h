// ByteSink: a growing byte buffer with fixed-width stores in a chosen byte order. All writers of test
// captures build on it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace asof::test {

class ByteSink {
 public:
  explicit ByteSink(bool big_endian = false) : big_endian_(big_endian) {}

  void u8(uint8_t v) { bytes_.push_back(v); }
  void u16(uint16_t v) { fixed(v, 2); }
  void u32(uint32_t v) { fixed(v, 4); }
  void u64(uint64_t v) { fixed(v, 8); }
  void raw(std::span<const uint8_t> b) { bytes_.insert(bytes_.end(), b.begin(), b.end()); }
  void text(std::string_view s) { bytes_.insert(bytes_.end(), s.begin(), s.end()); }
  void zeros(size_t n) { bytes_.resize(bytes_.size() + n); }
  // Zeros up to the next multiple of `n`.
  void align(size_t n) { zeros((n - bytes_.size() % n) % n); }
  // NUL-terminated, zero-padded so that its length is a multiple of `n`.
  void c_string(std::string_view s, size_t n) {
    text(s);
    zeros(n - s.size() % n);
  }
  // Overwrites the bytes at `at`.
  void patch(size_t at, uint64_t v, unsigned width) {
    for (unsigned i = 0; i < width; ++i) bytes_[at + i] = byte_of(v, i, width);
  }

  size_t size() const { return bytes_.size(); }
  bool big_endian() const { return big_endian_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t> take() && { return std::move(bytes_); }

 private:
  uint8_t byte_of(uint64_t v, unsigned i, unsigned width) const {
    return static_cast<uint8_t>(v >> (8 * (big_endian_ ? width - 1 - i : i)));
  }
  void fixed(uint64_t v, unsigned width) {
    for (unsigned i = 0; i < width; ++i) bytes_.push_back(byte_of(v, i, width));
  }

  std::vector<uint8_t> bytes_;
  bool big_endian_;
};

}  // namespace asof::test
