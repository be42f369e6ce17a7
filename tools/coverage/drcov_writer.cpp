// dynamorio.org, drcov's library header drcovlib.h: bb_entry_t; Lighthouse's reader drcov.py: the table of modules.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "decoder/model/image.h"
#include "textstore/plain_text.h"
#include "tools/coverage/coverage_writers.h"

namespace asof {
namespace {

constexpr uint64_t kPage = 0x1000;
constexpr uint32_t kMostBlock = UINT16_MAX;

struct ModuleCode {   // of a module, by address in it
  uint64_t base = 0;  // in memory
  std::map<uint64_t, Executed> executed;
};
// By name, version and, where no file tells what one module is, by address space.
using ByModule = std::map<std::tuple<std::string, uint32_t, Space>, ModuleCode>;

// The lowest address of what is loaded of a file, as linked.
uint64_t image_base(const CodeFile& file) {
  const auto elf = ElfImage::open(file.path);
  uint64_t lowest = UINT64_MAX;
  if (elf) {
    for (const ElfSegment& s : (*elf)->segments()) lowest = std::min(lowest, s.address & ~(kPage - 1));
  }
  return lowest == UINT64_MAX ? 0 : lowest;
}

// What is not in a file that is known: a module of the kernel by its range, all else by what its symbols are of.
std::pair<std::string, uint64_t> unmapped(const Capture& capture, const ExecutedAt& at, Time t) {
  const bool kernel = is_kernel_address(at.address);
  if (kernel) {
    // The one that certainly was there, or the only one that can have been.
    const ModuleLifetime* possible = nullptr;
    bool several = false;
    for (const ModuleLifetime& m : capture.modules) {
      if (!m.range.contains(at.address) || t < m.from || t > m.until) continue;
      if (m.seen.lo <= t && t <= m.seen.hi) return {fmt::format("[{}]", m.name), m.range.begin};
      several = several || (possible != nullptr && possible->name != m.name);
      possible = &m;
    }
    if (possible != nullptr && !several) return {fmt::format("[{}]", possible->name), possible->range.begin};
  }
  const auto symbol = capture.symbols.find(kernel ? kKernelSpace : at.space, at.address, t);
  return {symbol ? symbol->symbol->dso : std::string(kernel ? "[kernel]" : "[unknown]"), 0};
}

void add_blocks(const ModuleCode& code, uint64_t base, DrcovModule& module) {
  uint64_t next = 0;
  const auto begin = [&](uint64_t at) {
    module.blocks.push_back({static_cast<uint32_t>(at - base), 0});
    next = at;
  };
  for (const auto& [at, e] : code.executed) {
    if (at - base > UINT32_MAX) continue;  // drcov cannot say it
    if (module.blocks.empty() || e.begins_block || at != next ||
        module.blocks.back().size + uint32_t{e.size} > kMostBlock)
      begin(at);
    module.blocks.back().size = static_cast<uint16_t>(module.blocks.back().size + e.size);
    next += e.size;
  }
}

}  // namespace

std::vector<DrcovModule> drcov_modules(const Capture& capture, const ExecutedCode::Map& executed,
                                       bool versions, const SourceLines& lines) {
  ByModule modules;
  std::map<uint32_t, uint64_t> bases;
  for (const auto& [at, e] : executed) {
    const auto place = lines.place_of(at.space, at.address, e.time);
    if (place) {
      const CodeFile& file = capture.code.files[place->file];
      auto known = bases.find(place->file);
      if (known == bases.end()) known = bases.emplace(place->file, image_base(file)).first;
      ModuleCode& code =
          modules[{file.recorded.empty() ? file.path : file.recorded, at.version, kKernelSpace}];
      code.base = at.address - place->address + known->second;
      code.executed[at.address - code.base].add(e);
      continue;
    }
    const auto [name, base] = unmapped(capture, at, e.time);
    ModuleCode& code = modules[{name, at.version, is_kernel_address(at.address) ? kKernelSpace : at.space}];
    code.base = base;
    code.executed[at.address - base].add(e);
  }
  std::vector<DrcovModule> out;
  for (auto& [which, code] : modules) {
    const auto& [name, version, space] = which;
    DrcovModule& m = out.emplace_back();
    m.path = plain_text(name);
    if (versions && version > 1) m.path += fmt::format(" (text version {})", version);
    const uint64_t first = code.executed.begin()->first, last = code.executed.rbegin()->first;
    // Without a known beginning, that of the page in which the first code is.
    const uint64_t skip = code.base == 0 ? first & ~(kPage - 1) : 0;
    m.base = code.base + skip;
    m.end = code.base + ((last + code.executed.rbegin()->second.size + kPage - 1) & ~(kPage - 1));
    add_blocks(code, skip, m);
  }
  return out;
}

void write_drcov(const std::vector<DrcovModule>& modules, const WriteText& write) {
  size_t blocks = 0;
  for (const DrcovModule& m : modules) blocks += m.blocks.size();
  std::string out = fmt::format(
      "DRCOV VERSION: 2\nDRCOV FLAVOR: drcov\nModule Table: version 2, count {}\nColumns: id, base, end, "
      "entry, "
      "path\n",
      modules.size());
  for (size_t i = 0; i < modules.size(); ++i)
    out += fmt::format("{:>3}, {:#018x}, {:#018x}, {:#018x}, {}\n", i, modules[i].base, modules[i].end, 0,
                       modules[i].path);
  out += fmt::format("BB Table: {} bbs\n", blocks);
  const auto put = [&](uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  };
  for (size_t i = 0; i < modules.size(); ++i) {
    for (const DrcovModule::Block& b : modules[i].blocks) {
      put(b.start, 4);
      put(b.size, 2);
      put(i, 2);
    }
  }
  write(out);
}

}  // namespace asof
