// One line of output, put together from pieces: for tables of which there are gigabytes, where a formatting library takes
// as long as decoding.
#pragma once
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "textstore/address.h"

namespace asof {

class RowText {
 public:
  void clear() { size_ = 0; }
  std::string_view view() const { return {bytes_.data(), size_}; }

  RowText& text(std::string_view piece) {
    std::memcpy(room(piece.size()), piece.data(), piece.size());
    size_ += piece.size();
    return *this;
  }
  template <class Integer>
  RowText& number(Integer value) {
    return digits(value, 10);
  }
  // "0x1f"
  RowText& address(Addr value) { return text("0x").digits(value, 16); }

 private:
  static constexpr size_t kMostDigits = 20;  // of 64 bits, with a sign
  template <class Integer>
  RowText& digits(Integer value, int base) {
    char* const at = room(kMostDigits);
    size_ += static_cast<size_t>(std::to_chars(at, at + kMostDigits, value, base).ptr - at);
    return *this;
  }
  char* room(size_t size) {
    if (bytes_.size() - size_ < size) bytes_.resize(2 * (size_ + size));
    return bytes_.data() + size_;
  }

  std::string bytes_ = std::string(1024, 0);
  size_t size_ = 0;
};

}  // namespace asof
