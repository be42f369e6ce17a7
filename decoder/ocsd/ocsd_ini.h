// INI files of OpenCSD snapshots: sections of key=value lines, ';' or '#' starts a comment. Keys may be given
// with attributes, "TRCIDR0(0x078)" or "PC(size:64)", which are not part of the name.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "textstore/result.h"

namespace asof {

struct IniSection {
  std::string name;
  uint64_t file_offset = 0;
  std::vector<std::pair<std::string, std::string>> values;  // in file order; keys may repeat

  // The first value of this key, case ignored; empty when there is none.
  std::string_view get(std::string_view key) const;
  bool has(std::string_view key) const;
  // "0x..." or decimal. nullopt: no such key, or no number.
  std::optional<uint64_t> number(std::string_view key) const;
};

class IniFile {
 public:
  // Errors: the file cannot be read, or is too big for what it should be. Lines that are neither section,
  // value nor comment are counted and skipped.
  static Result<IniFile> load(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<IniSection>& sections() const { return sections_; }
  const IniSection* find(std::string_view name) const;  // the first one, case ignored; nullptr: none
  uint64_t odd_lines() const { return odd_lines_; }
  // A path in the file: relative to its folder.
  std::string resolve(std::string_view path) const;

 private:
  void add_line(std::string_view line, uint64_t offset);

  std::string path_;
  std::vector<IniSection> sections_;
  uint64_t odd_lines_ = 0;
};

}  // namespace asof
