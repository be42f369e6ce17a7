#include "decoder/lines/dwarf_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "decoder/io/descriptor.h"
#include "decoder/io/files_read.h"
#include "decoder/lines/module_debug.h"

namespace asof {
namespace {

// The largest real files are browsers and kernels with all options on: a few million ranges, and some ten
// million rows for all code that ever ran of them. Compressed sections are a third to a fifth of their size.
constexpr uint64_t kMostGrowth = 16, kSmallFile = uint64_t{4} << 20U;
constexpr size_t kMostRanges = size_t{1} << 24U;
constexpr size_t kMostUnits = size_t{1} << 20U;
constexpr uint64_t kMostRows = uint64_t{1} << 25U;
constexpr size_t kMostOverlap = 64;  // units that cover one address

Error unreadable(const std::string& path, const std::string& why) {
  return {Code::kBadDebugInfo, path, Error::kNoOffset, why, "compare the file with its package"};
}

std::string libdw_reason() {
  const char* text = dwarf_errmsg(-1);
  return text == nullptr ? "unknown error" : text;
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

}  // namespace

struct DwarfLines::Impl {
  struct Unit {
    uint64_t begin = 0, end = 0;
    uint64_t highest_end = 0;  // of this and all before it
    Dwarf_Off die = 0;
  };
  std::string path;
  int fd = -1;
  Elf* elf = nullptr;
  Dwarf* dwarf = nullptr;
  Dwarf* supplement = nullptr;
  int supplement_fd = -1;
  std::vector<Unit> units;                // by begin
  std::vector<Dwarf_Off> without_ranges;  // units that may have code elsewhere
  std::vector<Dwarf_Off> counted;         // units whose rows are counted; sorted
  uint64_t rows = 0;
  std::string problem;
  bool reported = false;
  ModuleDebug module;
  std::optional<DwarfInlines> inlines;

  ~Impl() {
    if (dwarf != nullptr) dwarf_end(dwarf);
    if (supplement != nullptr) dwarf_end(supplement);
    if (elf != nullptr) elf_end(elf);
    for (const int file : {fd, supplement_fd}) {
      if (file >= 0) ::close(file);
    }
  }

  Result<void> open();
  Result<void> open_module();
  Result<void> open_supplement();
  void read_units();
  bool add_ranges(Dwarf_Die& die);
  void add_ranges_of_lines();
  void sort_units();
  DwarfLine find(uint64_t address);
  DwarfLine line_in(Dwarf_Off unit, uint64_t address);
  // Of the units that cover the address, the first for which `take` is true.
  template <class Take>
  void in_units(uint64_t address, Take&& take);
  std::vector<InlinedCall> functions_at(uint64_t address);
  // By offset, each once.
  std::vector<Dwarf_Off> all_units();
  void each_line(const std::function<void(std::string_view, uint32_t)>& take);
  bool affordable(Dwarf_Die& die);
  void complain(std::string why) {
    if (!std::exchange(reported, true)) problem = std::move(why);
  }
};

Result<void> DwarfLines::Impl::open() {
  elf_version(EV_CURRENT);
  fd = open_regular(path);
  if (fd < 0) return std::unexpected(unreadable(path, "cannot open it"));
  elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
  if (elf == nullptr || elf_kind(elf) != ELF_K_ELF)
    return std::unexpected(unreadable(path, "not an ELF file"));
  struct stat status {};
  if (::fstat(fd, &status) != 0 ||
      unpacked_size(elf) / kMostGrowth > std::max(kSmallFile, static_cast<uint64_t>(status.st_size)))
    return std::unexpected(unreadable(path, "its debug sections claim to unpack to far more than such do"));
  if (auto ok = open_module(); !ok) return ok;
  dwarf = dwarf_begin_elf(elf, DWARF_C_READ, nullptr);
  if (dwarf == nullptr) {
    const std::string reason = libdw_reason();
    if (reason.find("no DWARF") != std::string::npos)
      return fail(Code::kNoDebugInfo, path, Error::kNoOffset, "it has no debug information");
    return std::unexpected(unreadable(path, reason));
  }
  if (auto ok = open_supplement(); !ok) return ok;
  read_units();
  if (units.empty() && without_ranges.empty() && problem.empty())
    return fail(Code::kNoDebugInfo, path, Error::kNoOffset, "it has no debug information");
  return {};
}

Result<void> DwarfLines::Impl::open_module() {
  size_t size = 0;
  const char* const bytes = elf_rawfile(elf, &size);
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes), bytes == nullptr ? 0 : size);
  if (!is_relocatable(file)) return {};
  auto made = relocate_module(file, path);
  if (!made) return std::unexpected(made.error());
  module = *std::move(made);
  elf_end(std::exchange(elf, nullptr));
  elf = elf_memory(reinterpret_cast<char*>(module.bytes.data()), module.bytes.size());
  if (elf == nullptr) return std::unexpected(unreadable(path, "not an ELF file"));
  return {};
}

// Strings that dwz(1) shares between files. libdw would open whatever file a name in the file refers to.
Result<void> DwarfLines::Impl::open_supplement() {
  const char* name = nullptr;
  const void* id = nullptr;
  if (dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &id) <= 0 || name == nullptr) return {};
  namespace fs = std::filesystem;
  const fs::path where = fs::path(name).is_absolute() ? fs::path(name) : fs::path(path).parent_path() / name;
  supplement_fd = open_regular(where.string());
  if (supplement_fd >= 0) supplement = dwarf_begin(supplement_fd, DWARF_C_READ);
  if (supplement == nullptr) {
    return std::unexpected(unreadable(
        path, fmt::format("it needs the supplementary file {}, which cannot be read", where.string())));
  }
  dwarf_setalt(dwarf, supplement);
  return {};
}

// False: the unit has none.
bool DwarfLines::Impl::add_ranges(Dwarf_Die& die) {
  Dwarf_Addr base = 0, begin = 0, end = 0;
  bool any = false;
  for (ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &begin, &end)) != 0;) {
    if (at < 0) {
      complain(libdw_reason());
      break;
    }
    if (units.size() >= kMostRanges) {
      complain(fmt::format("more than {} ranges of code", kMostRanges));
      break;
    }
    any = any || begin < end;
    if (begin < end) units.push_back({begin, end, 0, dwarf_dieoffset(&die)});
  }
  return any;
}

// For units that do not say where their code is, or not for all of it: DWARF 2 cannot express several ranges.
// By their lines.
void DwarfLines::Impl::add_ranges_of_lines() {
  for (const Dwarf_Off offset : std::exchange(without_ranges, {})) {
    Dwarf_Die die;
    Dwarf_Lines* lines = nullptr;
    size_t count = 0;
    if (dwarf_offdie(dwarf, offset, &die) == nullptr || !affordable(die) ||
        dwarf_getsrclines(&die, &lines, &count) != 0)
      continue;
    bool open = false;
    Dwarf_Addr begin = 0;
    for (size_t i = 0; i < count && units.size() < kMostRanges; ++i) {
      Dwarf_Line* row = dwarf_onesrcline(lines, i);
      Dwarf_Addr at = 0;
      bool last = false;
      if (dwarf_lineaddr(row, &at) != 0 || dwarf_lineendsequence(row, &last) != 0) break;
      if (!open) begin = at;
      open = !last;
      if (last && begin < at) units.push_back({begin, at, 0, offset});
    }
  }
  sort_units();
}

void DwarfLines::Impl::sort_units() {
  std::ranges::sort(units, {}, [](const Unit& u) { return std::pair(u.begin, u.end); });
  uint64_t highest = 0;
  for (Unit& u : units) u.highest_end = highest = std::max(highest, u.end);
}

void DwarfLines::Impl::read_units() {
  size_t count = 0;
  Dwarf_Off next = 0;
  for (Dwarf_Off at = 0; units.size() < kMostRanges; at = next) {
    size_t header = 0;
    Dwarf_Half version = 0;
    Dwarf_Off abbrevs = 0;
    uint8_t address_size = 0, offset_size = 0;
    const int status = dwarf_next_unit(dwarf, at, &next, &header, &version, &abbrevs, &address_size,
                                       &offset_size, nullptr, nullptr);
    if (status > 0) break;
    if (status < 0 || next <= at || ++count > kMostUnits) {
      complain(status < 0 ? libdw_reason() : "too many units");
      break;
    }
    Dwarf_Die die;
    if (dwarf_offdie(dwarf, at + header, &die) == nullptr) {
      complain(libdw_reason());
      continue;
    }
    const int tag = dwarf_tag(&die);
    if (tag != DW_TAG_compile_unit && tag != DW_TAG_skeleton_unit) continue;
    const bool whole = add_ranges(die) && version > 2;
    if (!whole && dwarf_hasattr(&die, DW_AT_stmt_list) != 0) without_ranges.push_back(dwarf_dieoffset(&die));
  }
  sort_units();
}

// Tables overlap in a hostile file: their total is bounded.
bool DwarfLines::Impl::affordable(Dwarf_Die& die) {
  if (dwarf_hasattr(&die, DW_AT_stmt_list) == 0) return false;
  const Dwarf_Off offset = dwarf_dieoffset(&die);
  const auto at = std::ranges::lower_bound(counted, offset);
  if (at != counted.end() && *at == offset) return true;
  if (rows > kMostRows) {
    complain(fmt::format("more than {} rows of lines", kMostRows));
    return false;
  }
  counted.insert(at, offset);
  Dwarf_Lines* lines = nullptr;
  size_t n = 0;
  if (dwarf_getsrclines(&die, &lines, &n) != 0) {
    complain(libdw_reason());
    return true;
  }
  rows += n;
  return true;
}

DwarfLines::DwarfLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DwarfLines::~DwarfLines() = default;

Result<std::unique_ptr<DwarfLines>> DwarfLines::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (auto ok = impl->open(); !ok) return std::unexpected(ok.error());
  return std::unique_ptr<DwarfLines>(new DwarfLines(std::move(impl)));
}

template <class Take>
void DwarfLines::Impl::in_units(uint64_t address, Take&& take) {
  auto next = std::ranges::upper_bound(units, address, {}, &Unit::begin);
  for (size_t i = 0; i < kMostOverlap && next != units.begin(); ++i) {
    --next;
    if (next->highest_end <= address) break;
    if (next->end <= address) continue;
    if (take(next->die)) return;
  }
}

DwarfLine DwarfLines::Impl::line_in(Dwarf_Off unit, uint64_t address) {
  Dwarf_Die die;
  if (dwarf_offdie(dwarf, unit, &die) == nullptr || !affordable(die)) return {};
  Dwarf_Line* row = dwarf_getsrc_die(&die, address);
  DwarfLine out;
  int number = 0, column = 0;
  if (row == nullptr || dwarf_lineno(row, &number) != 0 || number <= 0) return {};
  const char* file = dwarf_linesrc(row, nullptr, nullptr);
  if (file == nullptr) return {};
  out.file = file;
  out.line = static_cast<uint32_t>(number);
  if (dwarf_linecol(row, &column) == 0 && column > 0) out.column = static_cast<uint32_t>(column);
  return out;
}

DwarfLine DwarfLines::Impl::find(uint64_t address) {
  DwarfLine out;
  in_units(address, [&](Dwarf_Off unit) {
    out = line_in(unit, address);
    return out.line != 0;
  });
  return out;
}

// Files of calls are in the unit's table of lines, whose rows are counted.
std::vector<InlinedCall> DwarfLines::Impl::functions_at(uint64_t address) {
  if (!inlines) inlines.emplace(dwarf);
  std::vector<InlinedCall> out;
  in_units(address, [&](Dwarf_Off unit) {
    Dwarf_Die die;
    if (dwarf_offdie(dwarf, unit, &die) == nullptr) return false;
    if (dwarf_hasattr(&die, DW_AT_stmt_list) == 0 || affordable(die)) out = inlines->at(unit, address);
    return !out.empty();
  });
  if (std::string why = inlines->take_problem(); !why.empty()) complain(std::move(why));
  return out;
}

DwarfLine DwarfLines::find(uint64_t address) {
  const DwarfLine found = impl_->find(address);
  if (found.line != 0 || impl_->without_ranges.empty()) return found;
  impl_->add_ranges_of_lines();
  return impl_->find(address);
}

std::vector<Dwarf_Off> DwarfLines::Impl::all_units() {
  add_ranges_of_lines();
  std::vector<Dwarf_Off> all;
  for (const Unit& u : units) all.push_back(u.die);
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

// A row that ends a sequence has no code.
void DwarfLines::Impl::each_line(const std::function<void(std::string_view, uint32_t)>& take) {
  for (const Dwarf_Off unit : all_units()) {
    Dwarf_Die die;
    Dwarf_Lines* lines = nullptr;
    size_t count = 0;
    if (dwarf_offdie(dwarf, unit, &die) == nullptr || !affordable(die) ||
        dwarf_getsrclines(&die, &lines, &count) != 0)
      continue;
    Dwarf_Addr at = 0, next = 0;
    for (size_t i = 0; i < count; ++i) {
      Dwarf_Line* row = dwarf_onesrcline(lines, i);
      bool last = true;
      int number = 0;
      if (dwarf_lineendsequence(row, &last) != 0 || last || dwarf_lineno(row, &number) != 0 || number <= 0)
        continue;
      // Of several rows of one address the last one counts.
      if (i + 1 < count && dwarf_lineaddr(row, &at) == 0 &&
          dwarf_lineaddr(dwarf_onesrcline(lines, i + 1), &next) == 0 && next == at)
        continue;
      if (const char* file = dwarf_linesrc(row, nullptr, nullptr)) take(file, static_cast<uint32_t>(number));
    }
  }
}

std::vector<DwarfFunction> DwarfLines::functions() {
  Impl& impl = *impl_;
  if (!impl.inlines) impl.inlines.emplace(impl.dwarf);
  std::vector<DwarfFunction> out;
  for (const Dwarf_Off unit : impl.all_units()) {
    Dwarf_Die die;
    if (dwarf_offdie(impl.dwarf, unit, &die) == nullptr || !impl.affordable(die)) continue;
    impl.inlines->each_function(unit, [&](const DwarfFunction& f) { out.push_back(f); });
  }
  if (std::string why = impl.inlines->take_problem(); !why.empty()) impl.complain(std::move(why));
  return out;
}

void DwarfLines::each_line(const std::function<void(std::string_view, uint32_t)>& take) {
  impl_->each_line(take);
}

std::vector<InlinedCall> DwarfLines::functions_at(uint64_t address) {
  find(address);  // units without ranges of their own
  return impl_->functions_at(address);
}

const std::vector<std::pair<std::string, uint64_t>>& DwarfLines::module_functions() const {
  return impl_->module.functions;
}

std::string DwarfLines::take_problem() { return std::exchange(impl_->problem, {}); }

}  // namespace asof
