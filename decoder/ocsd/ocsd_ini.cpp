#include "decoder/ocsd/ocsd_ini.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>

#include "decoder/model/image.h"

namespace asof {
namespace {

constexpr size_t kMaxIni = 16U << 20U;

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::string_view IniSection::get(std::string_view key) const {
  for (const auto& [name, value] : values) {
    if (same(name, key)) return value;
  }
  return {};
}

bool IniSection::has(std::string_view key) const {
  return std::any_of(values.begin(), values.end(), [&](const auto& v) { return same(v.first, key); });
}

std::optional<uint64_t> IniSection::number(std::string_view key) const {
  std::string_view text = get(key);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<IniFile> IniFile::load(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const auto bytes = (*file)->bytes();
  if (bytes.size() > kMaxIni)
    return fail(Code::kFileTooBig, path, Error::kNoOffset,
                fmt::format("{} bytes are too many for a snapshot's INI file", bytes.size()));
  IniFile out;
  out.path_ = path;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.add_line(text.substr(at, end - at), at);
    at = end + 1;
  }
  return out;
}

void IniFile::add_line(std::string_view line, uint64_t offset) {
  line = trim(line.substr(0, line.find_first_of(";#")));
  if (line.empty()) return;
  if (line.front() == '[' && line.back() == ']') {
    sections_.push_back({std::string(trim(line.substr(1, line.size() - 2))), offset, {}});
    return;
  }
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || sections_.empty()) {
    ++odd_lines_;
    return;
  }
  std::string_view key = line.substr(0, equals);
  key = trim(key.substr(0, key.find('(')));
  sections_.back().values.emplace_back(key, trim(line.substr(equals + 1)));
}

const IniSection* IniFile::find(std::string_view name) const {
  for (const IniSection& section : sections_) {
    if (same(section.name, name)) return &section;
  }
  return nullptr;
}

std::string IniFile::resolve(std::string_view path) const {
  return (std::filesystem::path(path_).parent_path() / path).lexically_normal().string();
}

}  // namespace asof
