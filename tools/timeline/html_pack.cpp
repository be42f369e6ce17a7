#include "tools/timeline/html_pack.h"

#include "tools/output/gzip.h"

namespace asof {

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) {
      three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      const bool filler = i + k > bytes.size();
      out += filler ? '=' : kDigits[three >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

std::string packed(std::string_view bytes) {
  std::string out;
  const GzipWriter::Write append = [&](std::string_view piece) { out += piece; };
  GzipWriter gzip(append, GzipWriter::kSmall);
  gzip.write(bytes);
  gzip.finish();
  return base64(out);
}

}  // namespace asof
