// Text of files that the process, or a uprobe in it, may have changed in memory. mprotect() leaves a record
// only where it makes pages executable (mm/mprotect.c mprotect_fixup() calls perf_event_mmap(), which leaves
// out what is not executable unless perf requested data mappings): a record of the same bytes of the same
// file at the same address may mean that they were writable in between.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decoder/io/address_ranges.h"
#include "decoder/user_text/mapping_fit.h"
#include "decoder/user_text/user_text.h"

namespace asof {
namespace {

// Mappings of parents to be examined, for all children together; processes for which no steps are left are
// not trusted.
constexpr uint64_t kMostSteps = 1ULL << 28;

}  // namespace

UserText::Mapping UserText::mapping_of(const TaskFact& fact) {
  return {.range = fact.range,
          .from = fact.time,
          .pgoff = fact.pgoff,
          .name = fact.name,
          .build_id = fact.build_id,
          .file = fact.file,
          .writable = fact.writable,
          .written = fact.writable};
}

// What of `range` a process has mapped now: its own mappings, and elsewhere those it inherited.
void UserText::each_alive(const Process& process, AddrRange range,
                          const std::function<void(const Mapping&, AddrRange)>& visit) {
  std::vector<AddrRange> covered;
  const auto see = [&](const Mapping& m) {
    const AddrRange part = m.range.intersect(range);
    if (part.empty()) return;
    each_uncovered(part, covered, [&](AddrRange r) { visit(m, r); });
  };
  std::vector<AddrRange> own;
  auto it = process.current.upper_bound(range.begin);
  if (it != process.current.begin()) --it;
  for (; it != process.current.end() && it->first < range.end; ++it) {
    const Mapping& m = process.mappings[it->second];
    see(m);
    if (!m.range.empty()) own.push_back(m.range);
  }
  covered = merged_ranges(std::move(own));
  Time forked = process.forked;
  for (size_t at = process.parent; at != SIZE_MAX; at = processes_[at].parent) {
    const std::vector<Mapping>& mappings = processes_[at].mappings;
    if (kMostSteps - steps_ < mappings.size()) return builder_.distrust(process.space);
    steps_ += mappings.size();
    std::vector<AddrRange> more = covered;
    for (const Mapping& m : mappings) {
      if (m.from > forked || m.until < forked || !m.range.overlaps(range)) continue;
      see(m);
      more.push_back(m.range);
    }
    covered = merged_ranges(std::move(more));
    forked = processes_[at].forked;
  }
}

// The parts of a mapping where the same bytes of its file were mapped before, and may have been written
// since.
std::vector<AddrRange> UserText::mapped_again(const Process& process, const TaskFact& fact) {
  std::vector<AddrRange> out;
  if (fact.time == kTimeMin) return out;  // synthesised when the recording began: what existed then
  each_alive(process, fact.range, [&](const Mapping& old, AddrRange part) {
    const bool same = old.file == fact.file && old.pgoff - old.range.begin == fact.pgoff - fact.range.begin;
    if (same && (old.name != 0 || old.written)) out.push_back(part);
  });
  return merged_ranges(std::move(out));
}

bool UserText::is_misplaced(const Mapping& mapping) {
  const std::string& name = side_.names[mapping.name];
  // perf inject makes files of a JIT's code, and records of mappings where the JIT put it.
  if (mapping.name == 0 || name.find("vdso") != std::string::npos ||
      name.find("/jitted-") != std::string::npos)
    return false;
  const TextFile* const file = file_of(mapping);
  if (file == nullptr || !file->elf || can_be_mapped(*file->elf, mapping.range, mapping.pgoff)) return false;
  notices_.error(
      Code::kMappingDoesNotFit, name,
      fmt::format("a process has {:#x} bytes from {:#x} of it at {:#x}, which no program header of {} "
                  "allows: nothing of it is certain there",
                  mapping.range.size(), mapping.pgoff, mapping.range.begin, file->path),
      "the record is damaged, or the file is not the one that was mapped", Error::kNoOffset, mapping.from);
  return true;
}

void UserText::note_written(const Mapping& mapping, bool probed) {
  if (!written_.insert(mapping.name).second) return;
  notices_.info(
      Code::kSelfModifyingProcess, side_.names[mapping.name],
      probed ? "a process that has it has a trampoline of uprobes: no-ops in its code may be calls, and "
               "nothing in it is certain from then on"
             : "mapped writable and executable, or mapped again where it was: the process may have "
               "changed its code, and nothing in it is certain from then on");
}

// Linux 6.18 and later turn a uprobe on a no-op of five bytes into a call, when it is hit first, into a page
// that they map before they write the call (arch/x86/kernel/uprobes.c arch_uprobe_optimize()). No record says
// which of the many forms of no-ops.
void UserText::add_uprobes(Process& process, Time t) {
  process.probed = true;
  std::vector<AddrRange> jits;
  jits.reserve(process.live_jit.size());
  for (const auto& [begin, index] : process.live_jit) jits.push_back(process.jit[index].range);
  jits = merged_ranges(std::move(jits));
  each_alive(process, {0, UINT64_MAX}, [&](const Mapping& m, AddrRange part) {
    if (m.name == 0 || file_of(m) == nullptr) return;
    each_uncovered(part, jits, [&](AddrRange r) {
      Mapping changed = m;
      changed.pgoff += r.begin - m.range.begin;
      changed.range = r;
      changed.from = t;
      changed.written = true;
      add_layer(process, changed);
    });
  });
}

// Writable and executable: the bytes may change from the record on. Made executable again: what was written
// before may run a moment before the record's time, but not before any other record of a mapping, as all are
// made with the process's mmap_lock held for writing.
UserText::Mapping UserText::add_mapped(Process& process, const TaskFact& fact,
                                       std::span<const AddrRange> parts) {
  Mapping mapping = mapping_of(fact);
  mapping.misplaced = is_misplaced(mapping);
  const std::vector<AddrRange> again = mapped_again(process, fact);
  const Time before = std::exchange(process.last_map, fact.time);
  const auto add = [&](AddrRange part, Time from, bool written) {
    Mapping rest = mapping;
    rest.pgoff += part.begin - rest.range.begin;
    rest.range = part;
    rest.from = from;
    rest.written = written;
    add_layer(process, rest);
  };
  const auto has_jit = [&](AddrRange part) {
    return std::ranges::any_of(
        process.live_jit, [&](const auto& code) { return process.jit[code.second].range.overlaps(part); });
  };
  for (const AddrRange& part : parts) {
    each_uncovered(part, again, [&](AddrRange r) { add(r, fact.time, fact.writable || process.probed); });
    for (const AddrRange& place : again) {
      const AddrRange both = place.intersect(part);
      const bool since = fact.kind == TaskFact::Kind::kMap && !has_jit(both);
      if (!both.empty()) add(both, since ? before : fact.time, true);
    }
  }
  mapping.written = mapping.written || !again.empty();
  return mapping;
}

}  // namespace asof
