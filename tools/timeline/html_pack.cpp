#include "tools/timeline/html_pack.h"

namespace asof {

std::string PackedNumbers::base64() const {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes_.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes_.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) {
      three = three << 8 | (i + k < bytes_.size() ? static_cast<uint8_t>(bytes_[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      const bool filler = i + k > bytes_.size();
      out += filler ? '=' : kDigits[three >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

}  // namespace asof
