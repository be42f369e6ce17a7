#include "decoder/live/same_past.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

namespace asof {
namespace {

// Versions that are possible up to `until`.
std::span<const Version> up_to(const Cell& cell, Time until) { return cell.possible_in({kTimeMin, until}); }

bool same_bytes(const Version& a, uint64_t skip_a, const Version& b, uint64_t skip_b, uint64_t size) {
  if (a.bytes == nullptr || b.bytes == nullptr) return a.bytes == b.bytes;
  const uint8_t *x = a.bytes + skip_a, *y = b.bytes + skip_b;
  return x == y || std::memcmp(x, y, size) == 0;
}

bool unknown(std::span<const Version> versions) {
  return std::ranges::all_of(versions, [](const Version& v) { return v.bytes == nullptr; });
}

// A part of a cell: its versions up to `until`, those that follow each other with the same bytes there as one. Where a poke
// of one byte is followed by one of five at its place, the cell of one byte became one of five, and the first poke left four
// of them as they were.
class Part {
 public:
  Part(const Cell& cell, AddrRange shared, Time until)
      : skip_(shared.begin - cell.range.begin), size_(shared.size()) {
    for (const Version& v : up_to(cell, until)) {
      const Time end = std::min(v.until, until);
      if (!all_.empty() && all_.back().until != kTimeMax && all_.back().until + 1 == v.from &&
          all_.back().unsure == v.unsure && same_bytes(all_.back(), skip_, v, skip_, size_))
        all_.back().until = end;
      else
        all_.push_back(v), all_.back().until = end;
    }
  }
  bool operator==(const Part& other) const {
    return std::ranges::equal(all_, other.all_, [&](const Version& a, const Version& b) {
      return a.from == b.from && a.until == b.until && a.unsure == b.unsure &&
             same_bytes(a, skip_, b, other.skip_, size_);
    });
  }

 private:
  uint64_t skip_, size_;
  std::vector<Version> all_;
};

// In the part that two cells share.
bool same_versions(const Cell& a, const Cell& b, AddrRange shared, Time until) {
  const auto x = up_to(a, until), y = up_to(b, until);
  if (unknown(x)) return unknown(y) || !is_kernel_address(shared.begin);
  if (x.size() == 1 && y.size() == 1 && x[0].from == y[0].from && x[0].unsure == y[0].unsure &&
      x[0].until >= until && y[0].until >= until)
    return same_bytes(x[0], shared.begin - a.range.begin, y[0], shared.begin - b.range.begin, shared.size());
  return Part(a, shared, until) == Part(b, shared, until);
}

std::optional<AddrRange> cell_difference(std::span<const Cell> before, std::span<const Cell> now,
                                         Time until) {
  size_t i = 0, k = 0;
  while (i < before.size() && k < now.size()) {
    const AddrRange shared{std::max(before[i].range.begin, now[k].range.begin),
                           std::min(before[i].range.end, now[k].range.end)};
    if (!same_versions(before[i], now[k], shared, until)) return shared;
    if (before[i].range.end == shared.end) ++i;
    if (k < now.size() && now[k].range.end == shared.end) ++k;
  }
  return std::nullopt;
}

bool same(const ContextChange& a, const ContextChange& b) {
  return a.time == b.time && a.pid == b.pid && a.tid == b.tid && a.space == b.space &&
         a.preempts == b.preempts;
}

bool same_contexts(const Stream& before, const Stream& now, Time until) {
  const auto end = [until](const std::vector<ContextChange>& all) {
    return std::ranges::upper_bound(all, until, {}, &ContextChange::time);
  };
  return std::ranges::equal(before.contexts.begin(), end(before.contexts), now.contexts.begin(),
                            end(now.contexts), same);
}

using Comms = std::vector<std::tuple<int32_t, Time, int32_t, std::string>>;

Comms comms_of(const TaskTable& tasks, Time until) {
  Comms out;
  tasks.for_each([&](int32_t tid, const TaskTable::Comm& comm) {
    if (comm.from <= until) out.emplace_back(tid, comm.from, comm.pid, comm.comm);
  });
  return out;
}

bool same_clock(const std::optional<TimeConversion>& a, const std::optional<TimeConversion>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->shift == b->shift && a->mult == b->mult && a->zero == b->zero && a->cycles == b->cycles &&
         a->mask == b->mask && a->cap_short == b->cap_short;
}

bool same_machine(const Capture& a, const Capture& b, Time until) {
  const auto unsure_from = [until](const Capture& c) {
    return std::min(c.text->unsure_from(), saturating_add(until, 1));
  };
  return a.machine == b.machine && same_clock(a.x86.time, b.x86.time) &&
         same_clock(a.arm64.time, b.arm64.time) && a.x86.cpu.intel == b.x86.cpu.intel &&
         a.x86.cpu.family == b.x86.cpu.family && a.x86.cpu.model == b.x86.cpu.model &&
         a.x86.cpu.stepping == b.x86.cpu.stepping && a.x86.tsc_ctc_d == b.x86.tsc_ctc_d &&
         a.x86.tsc_ctc_n == b.x86.tsc_ctc_n && a.x86.perf_event_text_poke == b.x86.perf_event_text_poke &&
         a.x86.do_sync_core == b.x86.do_sync_core && a.arm64.time_error == b.arm64.time_error &&
         a.arm64.unrecorded_changes == b.arm64.unrecorded_changes &&
         a.arm64.patch_text_cb == b.arm64.patch_text_cb &&
         a.arm64.complete_text.begin == b.arm64.complete_text.begin &&
         a.arm64.complete_text.end == b.arm64.complete_text.end && unsure_from(a) == unsure_from(b);
}

// Each name, at the last instant that counts.
// `user`: of processes too.
std::optional<std::string> name_difference(const SymbolTable& before, const SymbolTable& now, Time until,
                                           bool user) {
  for (const Symbol* s : before.all()) {
    if (s->from > until || (!user && s->space != kKernelSpace)) continue;
    const Time t = std::min(until, s->until);
    const auto was = before.find(s->space, s->range.begin, t), is = now.find(s->space, s->range.begin, t);
    if (was && (!is || was->symbol->name != is->symbol->name || was->symbol->dso != is->symbol->dso ||
                was->offset != is->offset))
      return fmt::format("the name {} at {:#x}", s->name, s->range.begin);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> text_difference(const TextStore& before, const TextStore& now, Time until,
                                           bool user) {
  if (now.space_count() < before.space_count()) return "address spaces";
  for (Space space = 0; space < (user ? before.space_count() : 1); ++space) {
    const auto was = before.cells(space, {0, UINT64_MAX}), is = now.cells(space, {0, UINT64_MAX});
    if (const auto where = cell_difference(was, is, until))
      return fmt::format("text from {:#x} to {:#x}{}", where->begin, where->end,
                         space == kKernelSpace ? "" : fmt::format(" in address space {}", space));
  }
  return std::nullopt;
}

std::optional<std::string> past_difference(const Capture& before, const Capture& now, Time until) {
  const bool user = !before.exclude_user;
  if (!same_machine(before, now, until)) return "what is known of the machine";
  if (before.streams.size() != now.streams.size()) return "the number of streams";
  for (size_t i = 0; i < before.streams.size(); ++i) {
    if (before.streams[i].name != now.streams[i].name) return "the order of streams";
    if (!same_contexts(before.streams[i], now.streams[i], until))
      return fmt::format("the tasks on {}", before.streams[i].name);
  }
  if (comms_of(before.tasks, until) != comms_of(now.tasks, until)) return "names of threads";
  if (auto name = name_difference(before.symbols, now.symbols, until, user)) return name;
  return text_difference(*before.text, *now.text, until, user);
}

}  // namespace asof
