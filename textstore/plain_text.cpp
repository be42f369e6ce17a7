#include "textstore/plain_text.h"

#include <algorithm>
#include <cstdint>

namespace asof {
namespace {

struct Character {
  size_t bytes = 1;
  bool plain = false;
};

uint8_t byte(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool is_shown(uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
  const bool direction =
      c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  return !direction && c != 0x2028 && c != 0x2029;
}

// The first character of `text`; one byte that is not plain where it is not UTF-8.
Character first_of(std::string_view text) {
  const uint8_t first = byte(text, 0);
  if (first < 0x80) return {1, is_shown(first)};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  uint32_t c = first & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(text, i) & 0xc0) != 0x80) return {};
    c = c << 6 | (byte(text, i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[bytes] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return {};
  return {bytes, is_shown(c)};
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (size_t i = 0; i < bytes.size(); ++i) {
    out += "\\x";
    out += kDigits[byte(bytes, i) >> 4];
    out += kDigits[byte(bytes, i) & 15];
  }
}

}  // namespace

bool is_plain_text(std::string_view text) {
  if (text.size() > kMostPlainBytes) return false;
  const auto usual = [](char c) { return c >= 0x20 && c < 0x7f; };
  auto at = static_cast<size_t>(std::ranges::find_if_not(text, usual) - text.begin());
  while (at < text.size()) {
    const Character c = first_of(text.substr(at));
    if (!c.plain) return false;
    at += c.bytes;
  }
  return true;
}

std::string plain_text(std::string_view text) {
  constexpr size_t kMostWords = std::string_view("[18446744073709551615 bytes more]").size();
  std::string out;
  size_t at = 0, cut_out = 0, cut_at = 0;  // where there is still room for the words
  while (at < text.size() && out.size() <= kMostPlainBytes) {
    const Character c = first_of(text.substr(at));
    if (c.plain)
      out += text.substr(at, c.bytes);
    else
      append_escaped(out, text.substr(at, c.bytes));
    at += c.bytes;
    if (out.size() <= kMostPlainBytes - kMostWords) cut_out = out.size(), cut_at = at;
  }
  if (out.size() <= kMostPlainBytes) return out;
  out.resize(cut_out);
  return out + "[" + std::to_string(text.size() - cut_at) + " bytes more]";
}

}  // namespace asof
