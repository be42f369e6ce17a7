#include "tools/output/fold.h"

#include <algorithm>

namespace asof {
namespace {

// Of UTF-8 text: characters, not bytes.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

}  // namespace

std::string fold_line(std::string_view line, size_t indent, size_t columns) {
  if (width_of(line) <= columns || columns <= indent) return std::string(line);
  std::string out;
  size_t used = 0;
  bool fresh = true;  // nothing but blanks on this line yet
  while (!line.empty()) {
    const size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    const size_t end = std::min(line.find(' ', blanks), line.size());
    const std::string_view word = line.substr(blanks, end - blanks);
    if (!fresh && used + blanks + width_of(word) > columns) {
      out += '\n';
      out.append(indent, ' ');
      used = indent;
    } else {
      out.append(blanks, ' ');
      used += blanks;
    }
    out += word;
    used += width_of(word);
    fresh = false;
    line.remove_prefix(end);
  }
  return out;
}

}  // namespace asof
