// What is known of the kernel besides its bytes: the file that has its source lines, when it was copied, when
// modules were present.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/kernel_text/kernel_text.h"

namespace asof {
namespace {

AddrRange hull(std::span<const KernelSnapshot::Piece> text) {
  if (text.empty()) return {};
  AddrRange all = text.front().range;
  for (const KernelSnapshot::Piece& p : text) all.end = std::max(all.end, p.range.end);
  return all;
}

const KernelModule* module_at(const KernelSnapshot* snapshot, AddrRange range) {
  if (snapshot == nullptr) return nullptr;
  const auto at = std::ranges::find_if(
      snapshot->modules(), [&](const KernelModule& m) { return m.live && m.range.overlaps(range); });
  return at == snapshot->modules().end() ? nullptr : &*at;
}

bool same_module(const KernelModule* a, const KernelModule& b) {
  return a != nullptr && a->name == b.name && a->range.begin == b.range.begin;
}

}  // namespace

// The distance by which the kernel was moved: the recording says where one symbol was, the file where it was
// linked.
void KernelText::add_code(CodeFileMap& code, FileFinder& files, const PerfData& data) const {
  std::string name = "_stext";
  std::optional<Addr> at;
  const Kallsyms* const kallsyms = start_ ? start_->kallsyms() : kallsyms_.get();
  if (kallsyms != nullptr) at = kallsyms->address(name);
  for (const KernelMapFact& map : side_.kernel_maps) {
    if (at || !map.name.starts_with("[kernel.kallsyms]") || map.pgoff == 0) continue;
    const std::string reference = map.name.substr(map.name.find(']') + 1);
    if (!reference.empty()) name = reference;
    at = map.pgoff;
  }
  if (!at) return;
  const Addr recorded_end = kallsyms != nullptr ? kallsyms->address("_etext").value_or(0) : 0;  // 0: unknown
  const std::shared_ptr<const ElfImage> elf = find_source(files, data);
  if (!elf) return add_absent(code, data, {*at, recorded_end != 0 ? recorded_end : UINT64_MAX}, name);
  const auto linked = elf->symbol_value(name);
  if (!linked) return;
  const uint64_t slide = *at - *linked;
  if (const auto end = elf->symbol_value("_etext")) {
    if (recorded_end != 0 && recorded_end != *end + slide) {
      return notices_.error(
          Code::kBadDebugInfo, elf->path(),
          "its text is not as long as that of the recorded kernel: no source lines of the kernel",
          "give the recorded kernel's vmlinux");
    }
  }
  code.files.push_back({elf->path(), "[kernel.kallsyms]", elf->build_id()});
  for (const ElfSegment& segment : elf->segments()) {
    const AddrRange range = range_of(segment.address + slide, segment.mem_size);
    if (!segment.executable || range.empty()) continue;
    code.mappings.push_back(
        {.range = range, .file = static_cast<uint32_t>(code.files.size() - 1), .slide = slide});
  }
}

// Whoever wants source lines may find it by its build-id (source_lines.h).
void KernelText::add_absent(CodeFileMap& code, const PerfData& data, AddrRange range,
                            const std::string& symbol) const {
  const std::string id = recorded_kernel_id(side_, data);
  if (id.empty() || range.empty()) return;
  code.files.push_back({{}, "[kernel.kallsyms]" + symbol, id});
  code.mappings.push_back(
      {.range = range, .file = static_cast<uint32_t>(code.files.size() - 1), .slide = range.begin});
}

void KernelText::add_copies(std::vector<TextCopy>& copies, const WatchedTexts& watched) const {
  // perf copies kcore before it starts the trace.
  if (start_) {
    copies.push_back(
        {OriginKind::kKcore, start_->path(), hull(start_->text()), {kTimeMin, side_.trace_start}});
  }
  for (const WatchedText& seen : watched.texts)
    copies.push_back({OriginKind::kWatcher, watched.path, seen.range, {seen.time, seen.time}});
  if (end_)
    copies.push_back({OriginKind::kKcoreEnd, end_->path(), hull(end_->text()), {end_time_, kTimeMax}});
}

void KernelText::add_modules(std::vector<ModuleLifetime>& lifetimes, const WatchedTexts& watched) const {
  const Time start = side_.trace_start == kTimeMax ? kTimeMin : side_.trace_start;
  // When the memory of a module was seen to belong to another, after `t`.
  const auto replaced = [&](AddrRange range, Time t) {
    for (const WatchedText& seen : watched.texts) {
      if (seen.type == WatchedText::kModule && seen.range.overlaps(range) && seen.time > t)
        return seen.time - 1;
    }
    return kTimeMax;
  };
  // When another one's was there, or none, before `t`: the watcher sees a module some time after it was loaded.
  const auto absent = [&](AddrRange range, Time t) {
    Time last = start_ ? start : kTimeMin;
    for (const WatchedText& seen : watched.texts) {
      if (seen.type == WatchedText::kModule && seen.range.overlaps(range) && seen.time < t)
        last = std::max(last, seen.time);
    }
    return last;
  };
  const auto gone_at_end = [&](const KernelModule& m) {
    return end_ != nullptr && !same_module(module_at(end_.get(), m.range), m);
  };
  const auto add_from_start = [&](const KernelModule& m) {
    ModuleLifetime lifetime{m.name, m.range, kTimeMin, replaced(m.range, kTimeMin), {kTimeMin, start}};
    if (gone_at_end(m)) lifetime.until = std::min(lifetime.until, end_time_);
    // With the copy at the end it was present all the time, as far as is known.
    if (end_ && !gone_at_end(m) && lifetime.until == kTimeMax) lifetime.seen.hi = kTimeMax;
    lifetimes.push_back(std::move(lifetime));
  };
  if (start_) {
    for (const KernelModule& m : start_->modules()) {
      if (m.live) add_from_start(m);
    }
  } else {
    for (const KernelMapFact& map : side_.kernel_maps) {
      std::string name = module_of_map(map.name);
      if (!name.empty()) add_from_start({std::move(name), map.range, true});
    }
  }
  for (const WatchedText& seen : watched.texts) {
    if (seen.type != WatchedText::kModule) continue;
    const KernelModule* named = module_at(end_.get(), seen.range);
    ModuleLifetime lifetime{named != nullptr ? named->name : fmt::format("module at {:#x}", seen.range.begin),
                            named != nullptr ? named->range : seen.range,
                            absent(seen.range, seen.time),
                            replaced(seen.range, seen.time),
                            {seen.time, seen.time}};
    if (lifetime.until == kTimeMax && end_ && named == nullptr) lifetime.until = end_time_;
    if (lifetime.until == kTimeMax && named != nullptr) lifetime.seen.hi = kTimeMax;
    lifetimes.push_back(std::move(lifetime));
  }
  if (!end_) return;
  for (const KernelModule& m : end_->modules()) {
    const bool known = std::ranges::any_of(
        lifetimes, [&](const ModuleLifetime& l) { return l.range.overlaps(m.range) && l.until == kTimeMax; });
    if (m.live && !known) lifetimes.push_back({m.name, m.range, start, kTimeMax, {end_time_, kTimeMax}});
  }
}

}  // namespace asof
