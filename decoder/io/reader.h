// Reader: all bytes of a file are read through it. Every read is checked; the first one that does not fit
// makes the reader fail for good and return zeros, so that a parser may read a whole layout and check ok()
// once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace asof {

class Reader {
 public:
  // `swap`: numbers are in the other byte order than this machine's.
  explicit Reader(std::span<const uint8_t> bytes, bool swap = false) : bytes_(bytes), swap_(swap) {}

  bool ok() const { return ok_; }
  size_t pos() const { return pos_; }
  size_t left() const { return bytes_.size() - pos_; }

  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  int32_t s32() { return static_cast<int32_t>(u32()); }

  // Like u64() where the layout may end before it: `fallback` then, without failing.
  uint64_t u64_or(uint64_t fallback) { return left() >= sizeof(uint64_t) ? u64() : fallback; }

  // The next n bytes; empty, and failed, when there are fewer.
  std::span<const uint8_t> take(uint64_t n) {
    if (!ok_ || n > left()) {
      ok_ = false;
      return {};
    }
    const auto part = bytes_.subspan(pos_, static_cast<size_t>(n));
    pos_ += static_cast<size_t>(n);
    return part;
  }
  std::span<const uint8_t> rest() { return take(left()); }
  void skip(uint64_t n) { take(n); }

  // A string field of n bytes: up to its first NUL.
  std::string_view text(uint64_t n) {
    const auto field = take(n);
    const auto* chars = reinterpret_cast<const char*>(field.data());
    return {chars, static_cast<size_t>(std::find(field.begin(), field.end(), uint8_t{0}) - field.begin())};
  }
  // Moves to an absolute position in the same bytes.
  void seek(uint64_t to) {
    if (to > bytes_.size()) {
      ok_ = false;
      return;
    }
    pos_ = static_cast<size_t>(to);
  }

 private:
  template <class T>
  T number() {
    const auto field = take(sizeof(T));
    T value = 0;
    if (field.size() != sizeof(T)) return value;
    std::memcpy(&value, field.data(), sizeof(T));
    if constexpr (sizeof(T) == 2) {
      if (swap_) value = __builtin_bswap16(value);
    } else if constexpr (sizeof(T) == 4) {
      if (swap_) value = __builtin_bswap32(value);
    } else if constexpr (sizeof(T) == 8) {
      if (swap_) value = __builtin_bswap64(value);
    }
    return value;
  }

  std::span<const uint8_t> bytes_;
  size_t pos_ = 0;
  bool swap_ = false;
  bool ok_ = true;
};

}  // namespace asof
