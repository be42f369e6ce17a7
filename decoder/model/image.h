// Files as text: a read-only mapping, and the parts of an ELF file that matter to a decoder. The only user of
// libelf beside decoder/lines/dwarf_lines.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/io/mapped_files.h"
#include "textstore/address.h"
#include "textstore/result.h"

namespace asof {

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const uint8_t> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  std::span<const uint8_t> bytes_;
  std::optional<MappedFileEntry> entry_;
};

struct ElfSegment {  // PT_LOAD
  Addr address = 0;
  uint64_t file_offset = 0;
  uint64_t mem_size = 0;
  bool executable = false;
  std::span<const uint8_t> bytes;  // file_size bytes, cut to what the file really has
};

struct ElfSymbol {
  Addr value = 0;
  uint64_t size = 0;
  std::string name;
};

class ElfImage {
 public:
  // Compressed kernel modules (.ko.xz and others) are expanded.
  static Result<std::shared_ptr<const ElfImage>> open(const std::string& path);
  // The file that lies in `bytes`, which `owner` keeps; bytes after its end do no harm.
  static Result<std::shared_ptr<const ElfImage>> parse(std::span<const uint8_t> bytes, std::string path,
                                                       std::shared_ptr<const void> owner);
  ~ElfImage();

  const std::string& path() const;
  std::span<const uint8_t> bytes() const;  // whole file
  const std::string& build_id() const;     // lower-case hex; empty: none. From notes in segments or sections.
  uint16_t machine() const;                // EM_*
  uint16_t type() const;                   // ET_*
  std::span<const ElfSegment> segments() const;
  // As its headers say; more than bytes(): the end of the file is missing.
  uint64_t stated_size() const;
  // A file of debug information, as `objcopy --only-keep-debug` and `eu-strip -f` leave it: its executable sections are
  // SHT_NOBITS. Program headers may still say where the code was in the other file, so its segments have no bytes here.
  bool is_debug_only() const;
  // .symtab, or .dynsym where there is none: functions and objects in executable sections, as linked.
  std::vector<ElfSymbol> symbols() const;
  std::optional<Addr> symbol_value(std::string_view name) const;  // of the first of these that has this name
  // Sections with bytes (ET_REL kernel modules): name, bytes.
  struct Section {
    std::string name;
    Addr address;
    uint64_t file_offset;
    std::span<const uint8_t> bytes;
    bool executable;
  };
  std::vector<Section> sections() const;

 private:
  struct Impl;
  explicit ElfImage(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
