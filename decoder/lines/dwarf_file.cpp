#include "decoder/lines/dwarf_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "decoder/io/elf_over.h"
#include "decoder/io/files_read.h"
#include "decoder/model/expanded_file.h"

namespace asof {
namespace {

// Compressed sections are a third to a fifth of their size.
constexpr uint64_t kMostGrowth = 16, kSmallFile = uint64_t{4} << 20U;

Error unreadable(const std::string& path, const std::string& why) {
  return {Code::kBadDebugInfo, path, Error::kNoOffset, why, "compare the file with its package"};
}

// Does not wait for the other end of a pipe.
int open_regular(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (fd >= 0 && (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    ::close(fd);
    return -1;
  }
  if (fd >= 0) FilesRead::note(path, status);
  return fd;
}

// Bytes that the sections of debug information will take when they are unpacked; of the old form
// (".zdebug_line": "ZLIB", then the size) as of the new one.
uint64_t unpacked_size(Elf* elf) {
  uint64_t all = 0;
  const auto add = [&](uint64_t n) { all = n > UINT64_MAX - all ? UINT64_MAX : all + n; };
  size_t names = 0;
  if (elf_getshdrstrndx(elf, &names) != 0) return 0;
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(elf, s)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(s, &header) == nullptr) continue;
    const char* name = elf_strptr(elf, names, header.sh_name);
    GElf_Chdr packed;
    if ((header.sh_flags & SHF_COMPRESSED) != 0 && gelf_getchdr(s, &packed) != nullptr) {
      add(packed.ch_size);
    } else if (name != nullptr && std::string_view(name).starts_with(".zdebug_")) {
      const Elf_Data* data = elf_rawdata(s, nullptr);
      uint64_t size = 0;
      for (size_t i = 4; data != nullptr && data->d_size >= 12 && i < 12; ++i)
        size = size << 8U | static_cast<const uint8_t*>(data->d_buf)[i];
      add(size);
    }
  }
  return all;
}

Result<void> check_sections(const std::string& path, Elf* elf) {
  size_t size = 0;
  if (elf == nullptr || elf_kind(elf) != ELF_K_ELF)
    return std::unexpected(unreadable(path, "not an ELF file"));
  if (elf_rawfile(elf, &size) == nullptr ||
      unpacked_size(elf) / kMostGrowth > std::max(kSmallFile, uint64_t{size}))
    return std::unexpected(unreadable(path, "its debug sections claim to unpack to far more than such do"));
  return {};
}

}  // namespace

Result<void> check_split_file(const std::string& path) {
  elf_version(EV_CURRENT);
  const int file = open_regular(path);
  if (file < 0) return std::unexpected(unreadable(path, "cannot open it"));
  Elf* const elf = elf_begin(file, ELF_C_READ_MMAP, nullptr);
  const auto ok = check_sections(path, elf);
  elf_end(elf);
  ::close(file);
  return ok;
}

std::string libdw_reason() {
  const char* text = dwarf_errmsg(-1);
  return text == nullptr ? "unknown error" : text;
}

Result<std::unique_ptr<DwarfFile>> DwarfFile::open(const std::string& path) {
  std::unique_ptr<DwarfFile> file(new DwarfFile);
  if (auto ok = file->open_elf(path); !ok) return std::unexpected(ok.error());
  return file;
}

DwarfFile::~DwarfFile() {
  if (dwarf_ != nullptr) dwarf_end(dwarf_);
  if (supplement_ != nullptr) dwarf_end(supplement_);
  if (elf_ != nullptr) elf_end(elf_);
  for (const int file : {fd_, supplement_fd_}) {
    if (file >= 0) ::close(file);
  }
}

Result<void> DwarfFile::open_elf(const std::string& path) {
  elf_version(EV_CURRENT);
  fd_ = open_regular(path);
  if (fd_ < 0) return std::unexpected(unreadable(path, "cannot open it"));
  if (is_compressed_name(path)) expanded_ = expand_file(path);
  elf_ = expanded_ ? elf_over(*expanded_) : elf_begin(fd_, ELF_C_READ_MMAP, nullptr);
  if (auto ok = check_sections(path, elf_); !ok) return ok;
  if (auto ok = open_module(path); !ok) return ok;
  dwarf_ = dwarf_begin_elf(elf_, DWARF_C_READ, nullptr);
  if (dwarf_ == nullptr) {
    const std::string reason = libdw_reason();
    if (reason.find("no DWARF") != std::string::npos)
      return fail(Code::kNoDebugInfo, path, Error::kNoOffset, "it has no debug information");
    return std::unexpected(unreadable(path, reason));
  }
  return open_supplement(path);
}

Result<void> DwarfFile::open_module(const std::string& path) {
  size_t size = 0;
  const char* const bytes = elf_rawfile(elf_, &size);
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes), bytes == nullptr ? 0 : size);
  if (!is_relocatable(file)) return {};
  auto made = relocate_module(file, path);
  if (!made) return std::unexpected(made.error());
  module_ = *std::move(made);
  elf_end(std::exchange(elf_, nullptr));
  elf_ = elf_over(module_.bytes);
  if (elf_ == nullptr) return std::unexpected(unreadable(path, "not an ELF file"));
  return {};
}

// Strings that dwz(1) shares between files. libdw would open whatever file a name in the file refers to.
Result<void> DwarfFile::open_supplement(const std::string& path) {
  const char* name = nullptr;
  const void* id = nullptr;
  if (dwelf_dwarf_gnu_debugaltlink(dwarf_, &name, &id) <= 0 || name == nullptr) return {};
  namespace fs = std::filesystem;
  const fs::path where = fs::path(name).is_absolute() ? fs::path(name) : fs::path(path).parent_path() / name;
  supplement_fd_ = open_regular(where.string());
  if (supplement_fd_ >= 0) supplement_ = dwarf_begin(supplement_fd_, DWARF_C_READ);
  if (supplement_ == nullptr) {
    return std::unexpected(unreadable(
        path, fmt::format("it needs the supplementary file {}, which cannot be read", where.string())));
  }
  dwarf_setalt(dwarf_, supplement_);
  return {};
}

}  // namespace asof
