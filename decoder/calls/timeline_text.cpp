#include "decoder/calls/timeline_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace asof {
namespace {

constexpr size_t kMaxBuckets = 2048;
constexpr size_t kMaxCounterPoints = 100'000;

std::string place_name(const Capture& capture, Addr a, Time t) {
  const auto found = capture.symbols.find(kKernelSpace, a, t);
  if (!found) return {};
  return found->offset == 0 ? found->symbol->shown()
                            : fmt::format("{}+{:#x}", found->symbol->shown(), found->offset);
}

// A kprobe's stays until it is disarmed.
bool writes_breakpoint(const PokeRecord& p, bool arm64) {
  const auto bytes = p.new_bytes();
  if (!arm64) return !bytes.empty() && bytes[0] == 0xcc;
  uint32_t word = 0;
  if (bytes.size() < sizeof word) return false;
  std::memcpy(&word, bytes.data(), sizeof word);
  return (word & 0xffe0001f) == 0xd4200000;  // BRK: DDI 0487, C6.2
}

}  // namespace

PokeWindows::PokeWindows(const Capture& capture)
    : capture_(capture), arm64_(capture.machine == "aarch64" || capture.machine == "arm64") {
  const auto pokes = capture.text->pokes();
  windows_.resize(pokes.size());
  for (uint32_t i = 0; i < pokes.size(); ++i) sites_[pokes[i].addr].push_back(i);
}

PokeVisit& PokeWindows::visit_of(uint32_t poke, int32_t cpu) {
  auto& visits = windows_[poke].visits;
  const auto at = std::ranges::find(visits, cpu, &PokeVisit::cpu);
  if (at != visits.end()) return *at;
  visits.push_back({.cpu = cpu});
  return visits.back();
}

void PokeWindows::visited(int32_t cpu, Time t, const FlowVisit& v) {
  const auto site = sites_.find(v.site);
  if (site == sites_.end()) return;
  const auto& pokes = site->second;
  // The version that ran: the one that is valid for as long as the block's bytes are.
  const Cell cell = capture_.text->cell(kKernelSpace, v.site);
  const size_t offset = v.site - cell.range.begin;
  OriginRef origin = kNoOrigin;
  bool found = false;
  for (const Version& version : cell.versions) {
    if (version.from > v.valid.lo || version.until < v.valid.hi) continue;
    if (version.bytes == nullptr || version.bytes[offset] != v.first) continue;
    origin = version.origin;
    found = true;
  }
  if (!found) return;
  // After poke `made`, before the next one of the site.
  auto next = pokes.begin();
  if (is_poke(origin)) {
    next = std::ranges::find(pokes, poke_index(origin));
    if (next == pokes.end()) return;
    if (!is_before_poke(origin)) {
      PokeVisit& made = visit_of(*next, cpu);
      made.first_new = std::min(made.first_new, t);
      ++next;
    }
  }
  if (next == pokes.end()) return;
  PokeVisit& old = visit_of(*next, cpu);
  old.last_old = std::max(old.last_old, t);
}

// On arm64 by the vector: the kernel's synchronous exceptions (DDI 0487, D1.3.1.5, "current exception level with SP_ELx").
// On x86 by the name of the entry (arch/x86/entry/entry_64.S; `int3` before 5.8, Xen's has a prefix).
bool PokeWindows::is_breakpoint(Addr handler, Time t) const {
  constexpr uint64_t kTable = 0x800, kSynchronous = 0x200, kVector = 0x80;
  if (arm64_) return handler % kTable / kVector == kSynchronous / kVector;
  const auto found = capture_.symbols.find(kKernelSpace, handler, t);
  return found && found->symbol->name.find("int3") != std::string::npos;
}

void PokeWindows::interrupted(int32_t cpu, Time t, Addr ip, Addr to) {
  const auto site = sites_.find(ip);
  if (site == sites_.end() || !is_breakpoint(to, t)) return;
  const auto& pokes = site->second;
  const auto all = capture_.text->pokes();
  const auto after = std::ranges::lower_bound(pokes, t, {}, [&](uint32_t p) { return all[p].time; });
  uint32_t nearest = after != pokes.end() ? *after : pokes.back();
  if (after != pokes.begin() && after != pokes.end() &&
      (elapsed(all[*std::prev(after)].time, t) < elapsed(t, all[*after].time) ||
       writes_breakpoint(all[*std::prev(after)], arm64_)))
    nearest = *std::prev(after);
  Window& w = windows_[nearest];
  w.first = std::min(w.first, t);
  w.last = std::max(w.last, t);
  ++w.breakpoints;
  ++visit_of(nearest, cpu).breakpoints;
}

void PokeWindows::finish(TimelineSink& sink) const {
  const Recognizer recognizer(capture_);
  const auto pokes = capture_.text->pokes();
  for (uint32_t i = 0; i < pokes.size(); ++i) {
    const PokeRecord& p = pokes[i];
    const Window& w = windows_[i];
    PokeSlice s;
    s.index = i;
    s.address = p.addr;
    s.time = p.time;
    s.begin = std::min(p.time, w.first);
    s.end = std::max(p.time, w.last);
    const Recognized r = recognizer.poke(p);
    s.mechanism = r.mechanism;
    s.action = r.action;
    s.symbol = place_name(capture_, p.addr, p.time);
    s.breakpoints = w.breakpoints;
    s.visits = w.visits;
    std::ranges::sort(s.visits, {}, &PokeVisit::cpu);
    sink.poke(s);
  }
}

size_t RateBuckets::bucket(Time t) {
  if (origin_ == kTimeMin) origin_ = t;
  if (t < origin_) return 0;
  const uint64_t since = static_cast<uint64_t>(t) - static_cast<uint64_t>(origin_);
  while (since / static_cast<uint64_t>(width_) >= kMaxBuckets) widen();
  return since / static_cast<uint64_t>(width_);
}

void RateBuckets::widen() {
  width_ *= 2;
  for (auto& [cpu, c] : cpus_) {
    auto halve = [](auto& list) {
      for (size_t i = 0; i < list.size(); i += 2)
        list[i / 2] = list[i] + (i + 1 < list.size() ? list[i + 1] : 0);
      list.resize((list.size() + 1) / 2);
    };
    halve(c.instructions);
    halve(c.lost);
  }
}

void RateBuckets::add(int32_t cpu, Time t, uint64_t instructions) {
  const size_t at = bucket(t);
  auto& list = cpus_[cpu].instructions;
  if (list.size() <= at) list.resize(at + 1);
  list[at] += instructions;
}

void RateBuckets::lost(int32_t cpu, Time begin, Time end) {
  const size_t last = bucket(end), first = bucket(begin);
  auto& list = cpus_[cpu].lost;
  if (list.size() <= last) list.resize(last + 1);
  for (size_t i = first; i <= last; ++i) {
    const Time from = std::max(begin, start(i)), to = std::min(end, start(i + 1));
    if (from < to) list[i] = std::min(list[i] + (to - from), width_);
  }
}

Time RateBuckets::start(size_t i) const {
  const __int128 t = origin_ + static_cast<__int128>(i) * width_;
  return static_cast<Time>(std::min<__int128>(t, kTimeMax));
}

void RateBuckets::finish(TimelineSink& sink) const {
  auto emit = [&](CounterPoint::Kind kind, auto&& value) {
    for (const auto& [cpu, c] : cpus_) {
      const size_t size = std::max(c.instructions.size(), c.lost.size());
      for (size_t i = 0; i < size; ++i) {
        sink.counter({kind, cpu, start(i), value(c, i)});
      }
      // Nothing runs later; of what was decoded nothing is said.
      if (kind == CounterPoint::Kind::kInstructions) sink.counter({kind, cpu, start(size), 0});
    }
  };
  emit(CounterPoint::Kind::kInstructions, [this](const Cpu& c, size_t i) {
    const uint64_t n = i < c.instructions.size() ? c.instructions[i] : 0;
    return static_cast<double>(n) * 1000 / static_cast<double>(width_);
  });
  emit(CounterPoint::Kind::kCoverage, [this](const Cpu& c, size_t i) {
    const Time lost = i < c.lost.size() ? c.lost[i] : 0;
    return 100 - static_cast<double>(lost) * 100 / static_cast<double>(width_);
  });
}

namespace {

// Modules by the names of their symbols, where nothing else shows them.
void add_named_modules(const Capture& capture, std::vector<LifetimeSlice>& lifetimes) {
  std::map<std::string, LifetimeSlice> modules;
  for (const Symbol* s : capture.symbols.all()) {
    if (s->space != kKernelSpace || s->dso.size() < 3 || s->from != kTimeMin || s->until != kTimeMax)
      continue;
    if (s->dso.front() != '[' || s->dso.starts_with("[kernel") || s->dso.starts_with("[guest")) continue;
    auto [at, fresh] = modules.try_emplace(
        s->dso, LifetimeSlice{.kind = LifetimeSlice::Kind::kModule, .name = s->dso, .range = s->range});
    at->second.range.begin = std::min(at->second.range.begin, s->range.begin);
    at->second.range.end = std::max(at->second.range.end, s->range.end);
  }
  for (auto& [name, lifetime] : modules) lifetimes.push_back(std::move(lifetime));
}

// Of what was copied, and when.
std::string copy_name(const Capture& capture, const TextCopy& copy) {
  if (copy.kind == OriginKind::kKcore) return "kcore";
  if (copy.kind == OriginKind::kKcoreEnd) return "kcore at the end";
  const std::string name = place_name(capture, copy.range.begin, copy.time.lo);
  return name.empty() ? "copy" : "copy of " + name;
}

}  // namespace

void emit_lifetimes(const Capture& capture, TimelineSink& sink) {
  std::vector<LifetimeSlice> lifetimes;
  for (const BpfProgram& p : capture.bpf_programs) {
    LifetimeSlice lifetime{.kind = LifetimeSlice::Kind::kBpf,
                           .name = p.name,
                           .begin = p.loaded,
                           .end = p.unloaded,
                           .bpf_id = p.id,
                           .bpf_tag = p.tag};
    if (!p.functions.empty()) lifetime.range = p.functions.front();
    lifetimes.push_back(std::move(lifetime));
  }
  for (const Symbol* s : capture.symbols.all()) {
    const bool lived = s->from != kTimeMin || s->until != kTimeMax;
    if (s->space == kKernelSpace && s->dso.size() >= 3 && lived && !s->name.starts_with("bpf_prog_")) {
      lifetimes.push_back({.kind = LifetimeSlice::Kind::kOutOfLine,
                           .name = s->name,
                           .range = s->range,
                           .begin = s->from,
                           .end = s->until});
    }
  }
  for (const ModuleLifetime& m : capture.modules) {
    lifetimes.push_back({.kind = LifetimeSlice::Kind::kModule,
                         .name = "[" + m.name + "]",
                         .range = m.range,
                         .begin = m.from,
                         .end = m.until,
                         .seen = m.seen});
  }
  if (capture.modules.empty()) add_named_modules(capture, lifetimes);
  for (const TextCopy& c : capture.copies) {
    lifetimes.push_back({.kind = LifetimeSlice::Kind::kSnapshot,
                         .name = copy_name(capture, c),
                         .range = c.range,
                         .begin = c.time.lo,
                         .end = c.time.hi});
  }
  std::ranges::stable_sort(lifetimes, [](const LifetimeSlice& a, const LifetimeSlice& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.begin < b.begin;
  });
  for (const LifetimeSlice& lifetime : lifetimes) sink.lifetime(lifetime);
}

void emit_text_versions(const Capture& capture, TimelineSink& sink) {
  std::vector<Time> changes;
  for (const PokeRecord& p : capture.text->pokes()) changes.push_back(p.time);
  for (const BpfProgram& p : capture.bpf_programs) {
    if (p.loaded != kTimeMin) changes.push_back(p.loaded);
    if (p.unloaded != kTimeMax) changes.push_back(p.unloaded);
  }
  std::ranges::sort(changes);
  // Where there are more than anybody can examine, every n-th is delivered; the numbers stay correct.
  const size_t every = changes.size() / kMaxCounterPoints + 1;
  for (size_t i = 0; i < changes.size(); ++i) {
    const bool last_of_instant = i + 1 == changes.size() || changes[i + 1] != changes[i];
    if (last_of_instant && (i % every == 0 || i + 1 == changes.size()))
      sink.counter({CounterPoint::Kind::kTextVersion, -1, changes[i], static_cast<double>(i + 1)});
  }
}

}  // namespace asof
