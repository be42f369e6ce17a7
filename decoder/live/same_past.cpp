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

// In the part that two cells share.
bool same_versions(const Cell& a, const Cell& b, AddrRange shared, Time until) {
  const auto x = up_to(a, until), y = up_to(b, until);
  if (unknown(x)) return unknown(y) || !is_kernel_address(shared.begin);
  if (x.size() != y.size()) return false;
  const uint64_t skip_x = shared.begin - a.range.begin, skip_y = shared.begin - b.range.begin;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].from != y[i].from || std::min(x[i].until, until) != std::min(y[i].until, until) ||
        x[i].unsure != y[i].unsure || !same_bytes(x[i], skip_x, y[i], skip_y, shared.size()))
      return false;
  }
  return true;
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
