// Reads the data of a page back, with decoders that asof does not have: base64 bit by bit, zlib's inflate.
#pragma once
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <string_view>

namespace asof::test {

inline std::string unpacked(std::string_view base64) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    if (c == '=') break;
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    EXPECT_GE(digit, 0) << "not base64: " << c;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 255);
  }
  z_stream z{};
  EXPECT_EQ(inflateInit2(&z, 15 + 16), Z_OK);
  z.next_in = reinterpret_cast<unsigned char*>(bytes.data());
  z.avail_in = static_cast<unsigned>(bytes.size());
  std::string out;
  int state = Z_OK;
  while (state == Z_OK) {
    unsigned char piece[4096];
    z.next_out = piece;
    z.avail_out = sizeof piece;
    state = inflate(&z, Z_NO_FLUSH);
    out.append(reinterpret_cast<const char*>(piece), sizeof piece - z.avail_out);
  }
  EXPECT_EQ(state, Z_STREAM_END);
  EXPECT_EQ(z.avail_in, 0u);
  inflateEnd(&z);
  return out;
}

// What a page says about its data, as JSON.
inline std::string page_meta(std::string_view page) {
  constexpr std::string_view kBegin = "id=\"meta\">";
  const size_t at = page.find(kBegin);
  if (at == std::string_view::npos) return {};
  page.remove_prefix(at + kBegin.size());
  return unpacked(page.substr(0, page.find('<')));
}

}  // namespace asof::test
