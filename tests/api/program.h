// What the asof program prints, to compare the library with.
#pragma once
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace asof_test {

// Lines of standard output of `asof ARGUMENTS`.
inline std::vector<std::string> program_lines(const std::string& arguments) {
  const std::string command = std::string(ASOF_BINARY) + " " + arguments + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe.get())) text.append(buffer, n);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The words of a line, one space apart.
inline std::string words(const std::string& line) {
  std::istringstream in(line);
  std::string out, word;
  while (in >> word) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

inline std::string hex_bytes(const uint8_t* bytes, size_t size) {
  std::string out;
  char digits[4];
  for (size_t i = 0; i < size; ++i) {
    std::snprintf(digits, sizeof digits, i == 0 ? "%02x" : " %02x", bytes[i]);
    out += digits;
  }
  return out;
}

inline std::string seconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%09lld", static_cast<long long>(ns / 1'000'000'000),
                static_cast<long long>(ns % 1'000'000'000));
  return text;
}

}  // namespace asof_test
