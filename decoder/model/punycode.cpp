#include "decoder/model/punycode.h"

#include <array>
#include <cstddef>
#include <vector>

namespace asof {

void put_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr std::array<uint32_t, 4> kLead = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLead[static_cast<size_t>(more)] | c >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3f));
}

std::optional<std::string> punycode(std::string_view text) {
  const size_t mark = text.rfind('_');
  const std::string_view plain = mark == std::string_view::npos ? std::string_view() : text.substr(0, mark);
  const std::string_view code = mark == std::string_view::npos ? text : text.substr(mark + 1);
  std::vector<uint32_t> out(plain.begin(), plain.end());
  uint64_t n = 128, i = 0, bias = 72;
  for (size_t at = 0; at < code.size();) {
    const uint64_t before = i;
    for (uint64_t weight = 1, k = 36;; k += 36) {
      if (at == code.size() || weight > UINT32_MAX) return std::nullopt;
      const char c = code[at++];
      if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) return std::nullopt;
      const auto digit = static_cast<uint64_t>((c >= 'a' && c <= 'z') ? c - 'a' : c - '0' + 26);
      i += digit * weight;
      const uint64_t least = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
      if (digit < least) break;
      weight *= 36 - least;
    }
    const uint64_t size = out.size() + 1;
    uint64_t delta = (i - before) / (before == 0 ? 700 : 2);
    delta += delta / size;
    for (bias = 0; delta > 455; bias += 36) delta /= 35;
    bias += 36 * delta / (delta + 38);
    n += i / size;
    i %= size;
    if (n > 0x10ffff || (n >= 0xd800 && n < 0xe000)) return std::nullopt;
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(i++), static_cast<uint32_t>(n));
  }
  std::string name;
  for (const uint32_t c : out) put_utf8(name, c);
  return name;
}

}  // namespace asof
