// The data of a page in few characters: numbers of seven bits a byte, lowest first (as protobuf's varint);
// then gzip and base64, which also keeps text of untrusted files from ending the script that holds it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

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
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string base64(std::string_view bytes);
// gzip in base64, ready to be put in a page.
std::string packed(std::string_view bytes);

}  // namespace asof
