// Numbers of a page in few characters: seven bits a byte, lowest first (as protobuf's varint), then base64.
#pragma once
#include <cstdint>
#include <string>

namespace asof {

class PackedNumbers {
 public:
  void number(uint64_t n) {
    for (; n > 127; n >>= 7) bytes_ += static_cast<char>((n & 127) | 128);
    bytes_ += static_cast<char>(n);
  }
  void signed_number(int64_t n) {  // 0, -1, 1, -2, ...
    number((static_cast<uint64_t>(n) << 1) ^ (n < 0 ? UINT64_MAX : 0));
  }
  uint64_t size() const { return bytes_.size(); }
  // Ready to be put in a page.
  std::string base64() const;

 private:
  std::string bytes_;
};

}  // namespace asof
