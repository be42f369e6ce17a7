// Perfetto. Tracks: a group for each CPU (calls, thread, health, instructions), threads below their
// processes, a group for text. Every track is written in the order of its tree (perfetto_packets.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/decode/decode_style.h"
#include "tools/output/format.h"
#include "tools/timeline/perfetto_instructions.h"
#include "tools/timeline/perfetto_packets.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

using protozero::pbf_writer;

constexpr size_t kMostRows = 64;  // tracks of windows of changes

class PerfettoWriter {
 public:
  PerfettoWriter(const Capture& capture, const Timeline& timeline, bool inlined,
                 const std::function<void(std::string_view)>& write)
      : c_(capture), t_(timeline), out_(write), instructions_(capture, timeline, inlined, out_) {}

  PerfettoResult run() {
    cpus();
    threads();
    text();
    out_.finish();
    return {instructions_.take_notices(), instructions_.left_out()};
  }

 private:
  void cpus();
  void threads();
  void text();
  void pokes(uint64_t group);
  void lifetimes(uint64_t group);
  void annotate_lifetime(const LifetimeSlice& lifetime);
  void snapshots(uint64_t group);
  void counters(uint64_t group);
  void slices(uint32_t track, uint64_t uuid);
  void annotate(const Slice& s);
  void health(int32_t cpu, uint64_t uuid);

  const Capture& c_;
  const Timeline& t_;
  PerfettoPackets out_;
  PerfettoInstructions instructions_;
};

void PerfettoWriter::annotate(const Slice& s) {
  const TimelineFunction& f = t_.functions[s.function];
  out_.note("slice", s.id);
  out_.note("instructions", s.instructions);
  if (s.self_instructions != s.instructions) out_.note("self instructions", s.self_instructions);
  if (s.entry != 0) out_.note_address("entry", s.entry);
  if (s.call_site != 0) out_.note_address("called from", s.call_site);
  if (s.flags != 0) out_.note("flags", slice_flag_names(s.flags));
  if (f.versions() > 1) {
    out_.note("version", uint64_t{s.version});
    out_.note("versions", uint64_t{f.versions()});
  }
  if (c_.text && f.kind != TimelineFunction::Kind::kUntraced)
    out_.note("source", format_origin(*c_.text, s.origin));
  if (!f.line.empty()) out_.note("source line", f.line);
  if (f.bpf_id != 0) {
    out_.note("bpf id", uint64_t{f.bpf_id});
    out_.note("bpf tag", f.bpf_tag);
  }
  out_.note("confidence", std::string(confidence_name(s.confidence)));
  if (s.folded != 0) out_.note("folded slices", s.folded);
}

void PerfettoWriter::slices(uint32_t track, uint64_t uuid) {
  const auto begin = std::ranges::lower_bound(t_.slices, track, {}, &Slice::track);
  std::vector<const Slice*> open;
  auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back())
      out_.event(uuid, open.back()->end, PerfettoPackets::kEnd, {}, {});
  };
  for (auto s = begin; s != t_.slices.end() && s->track == track; ++s) {
    close_to(s->depth);
    annotate(*s);
    out_.event(uuid, s->begin, PerfettoPackets::kBegin, t_.slice_name(*s),
               function_kind_name(t_.functions[s->function].kind));
    open.push_back(&*s);
  }
  close_to(0);
}

void PerfettoWriter::health(int32_t cpu, uint64_t uuid) {
  for (const GapSlice& g : t_.gaps) {
    if (g.cpu != cpu) continue;
    out_.note("code", std::string(code_text(g.code)));
    out_.note("reason", g.reason);
    out_.note("trace bytes", g.bytes);
    if (g.ip != 0) out_.note_address("ip", g.ip);
    if (g.resume_ip != 0) out_.note_address("resume ip", g.resume_ip);
    if (g.flags != 0) out_.note("flags", slice_flag_names(g.flags));
    out_.whole(uuid, g.begin, g.end, fmt::format("{} {}", family_text(family_of(g.code)), code_text(g.code)),
               family_text(family_of(g.code)));
  }
  for (const EventMark& e : t_.events) {
    if (e.cpu != cpu) continue;
    if (e.event.ip != 0) out_.note_address("ip", e.event.ip);
    out_.note("a", e.event.a);
    out_.note("b", e.event.b);
    out_.event(uuid, e.event.time, PerfettoPackets::kInstant, event_name(e.event.kind), "event");
  }
}

void PerfettoWriter::cpus() {
  for (const TimelineTrack& track : t_.tracks) {
    if (track.kind != TimelineTrack::Kind::kCpu) continue;
    const uint64_t group = out_.track(0, track.name, track.cpu);
    slices(track.id, out_.track(group, track.name + " calls", 0));
    const uint64_t runs = out_.track(group, track.name + " thread", 1);
    for (const RunSlice& r : t_.runs) {
      if (r.cpu != track.cpu) continue;
      out_.note("pid", uint64_t{static_cast<uint32_t>(r.pid)});
      out_.note("tid", uint64_t{static_cast<uint32_t>(r.tid)});
      if (r.flags != 0) out_.note("flags", slice_flag_names(r.flags));
      const std::string name = r.tid == 0 ? "idle" : fmt::format("{} {}", r.comm, r.tid);
      out_.whole(runs, r.begin, r.end, name, "thread");
    }
    health(track.cpu, out_.track(group, track.name + " health", 2));
    instructions_.write(track, group, 3);
  }
}

void PerfettoWriter::threads() {
  std::map<int32_t, bool> processes;
  for (const TimelineTrack& track : t_.tracks) {
    if (track.kind != TimelineTrack::Kind::kThread) continue;
    // Idle tasks have no process.
    if (track.tid == 0) {
      slices(track.id, out_.track(0, track.name, 1000 + track.cpu));
      continue;
    }
    const int32_t pid = track.pid > 0 ? track.pid : track.tid;
    const std::string comm = track.name.substr(0, track.name.rfind(' '));
    if (!processes[pid]) {
      processes[pid] = true;
      out_.packet([&](pbf_writer& p) {
        pbf_writer d(p, perfetto_field::kTrackDescriptor);
        d.add_uint64(perfetto_field::kUuid, out_.new_uuid());
        pbf_writer process(d, perfetto_field::kProcess);
        process.add_int32(perfetto_field::kProcessPid, pid);
        process.add_string(perfetto_field::kProcessName, comm);
      });
    }
    const uint64_t uuid = out_.new_uuid();
    out_.packet([&](pbf_writer& p) {
      pbf_writer d(p, perfetto_field::kTrackDescriptor);
      d.add_uint64(perfetto_field::kUuid, uuid);
      pbf_writer thread(d, perfetto_field::kThread);
      thread.add_int32(perfetto_field::kThreadPid, pid);
      thread.add_int32(perfetto_field::kThreadTid, track.tid);
      thread.add_string(perfetto_field::kThreadName, comm);
    });
    slices(track.id, uuid);
    instructions_.write(track, uuid, 0);
  }
}

void PerfettoWriter::pokes(uint64_t group) {
  if (t_.pokes.empty()) return;
  const uint64_t uuid = out_.track(group, "pokes", 0);
  auto annotate_poke = [&](const PokeSlice& p) {
    out_.note("poke", uint64_t{p.index} + 1);
    out_.note_address("address", p.address);
    out_.note("symbol", p.symbol);
    out_.note("kind", std::string(mechanism_name(p.mechanism)));
    out_.note("bytes", poke_bytes(c_, p));
    out_.note("breakpoint visits", p.breakpoints);
    for (const PokeVisit& v : p.visits) {
      if (v.last_old != kTimeMin)
        out_.note(fmt::format("cpu {} last old", v.cpu), PerfettoPackets::stamp(v.last_old));
      if (v.first_new != kTimeMax)
        out_.note(fmt::format("cpu {} first new", v.cpu), PerfettoPackets::stamp(v.first_new));
    }
  };
  std::vector<const PokeSlice*> windows;
  for (const PokeSlice& p : t_.pokes) {
    annotate_poke(p);
    out_.event(uuid, p.time, PerfettoPackets::kInstant, poke_title(p), "poke");
    if (p.end > p.begin) windows.push_back(&p);
  }
  // Windows overlap without nesting: as many tracks as are open at one time.
  std::ranges::stable_sort(windows, {}, &PokeSlice::begin);
  std::vector<std::pair<Time, uint64_t>> rows;
  uint64_t left_out = 0;
  for (const PokeSlice* p : windows) {
    auto row = std::ranges::find_if(rows, [&](const auto& r) { return r.first <= p->begin; });
    if (row == rows.end()) {
      if (rows.size() >= kMostRows) {
        ++left_out;
        continue;
      }
      rows.emplace_back(0, out_.track(group, fmt::format("poke windows {}", rows.size() + 1), 1));
      row = rows.end() - 1;
    }
    row->first = p->end;
    annotate_poke(*p);
    out_.whole(row->second, p->begin, p->end, p->symbol.empty() ? poke_title(*p) : p->symbol, "poke window");
  }
  if (left_out != 0) {
    out_.event(
        uuid, t_.summary.begin, PerfettoPackets::kInstant,
        fmt::format("{} windows of changes are not shown: more than {} at one time", left_out, kMostRows),
        "folded");
  }
}

// Drawn as far as they are in the timeline; what they are beyond it is in their args.
void PerfettoWriter::annotate_lifetime(const LifetimeSlice& lifetime) {
  out_.note_address("address", lifetime.range.begin);
  out_.note("size", lifetime.range.size());
  uint32_t flags = 0;
  if (lifetime.begin < t_.summary.begin) flags |= Slice::kClippedBegin;
  if (lifetime.end > t_.summary.end) flags |= Slice::kClippedEnd;
  if (flags != 0) out_.note("flags", slice_flag_names(flags));
  const auto time = [&](std::string_view key, Time t) {
    if (t != kTimeMin && t != kTimeMax) out_.note(key, int64_t{t});
  };
  time("not before", lifetime.begin);
  time("not after", lifetime.end);
  if (lifetime.seen.lo <= lifetime.seen.hi) {
    time("seen from", lifetime.seen.lo);
    time("seen until", lifetime.seen.hi);
  }
}

// Instants, as far as they are known: the copy of a recording's start was made before the trace began.
void PerfettoWriter::snapshots(uint64_t group) {
  uint64_t uuid = 0;
  for (const LifetimeSlice& lifetime : t_.lifetimes) {
    if (lifetime.kind != LifetimeSlice::Kind::kSnapshot) continue;
    if (uuid == 0) uuid = out_.track(group, "snapshots", 1);
    annotate_lifetime(lifetime);
    const Time t = lifetime.begin == kTimeMin ? lifetime.end : lifetime.begin;
    out_.event(uuid, std::clamp(t, t_.summary.begin, t_.summary.end), PerfettoPackets::kInstant,
               lifetime.name, "snapshot");
  }
}

void PerfettoWriter::lifetimes(uint64_t group) {
  for (const LifetimeSlice& lifetime : t_.lifetimes) {
    if (lifetime.kind == LifetimeSlice::Kind::kSnapshot) continue;
    const std::string kind(lifetime_kind_name(lifetime.kind));
    std::string name = lifetime.name;
    if (lifetime.kind == LifetimeSlice::Kind::kBpf)
      name = fmt::format("{} (id {})", lifetime.name, lifetime.bpf_id);
    const uint64_t uuid = out_.track(group, fmt::format("{} {} {:x}", kind, name, lifetime.range.begin), 2);
    annotate_lifetime(lifetime);
    if (lifetime.bpf_id != 0) {
      out_.note("bpf id", uint64_t{lifetime.bpf_id});
      out_.note("bpf tag", lifetime.bpf_tag);
    }
    out_.whole(uuid, std::clamp(lifetime.begin, t_.summary.begin, t_.summary.end),
               std::clamp(lifetime.end, t_.summary.begin, t_.summary.end), lifetime.name, kind);
  }
}

void PerfettoWriter::counters(uint64_t group) {
  std::map<std::pair<CounterPoint::Kind, int32_t>, uint64_t> tracks;
  for (const CounterPoint& p : t_.counters) {
    auto& uuid = tracks[{p.kind, p.cpu}];
    if (uuid == 0) {
      switch (p.kind) {
        case CounterPoint::Kind::kTextVersion:
          uuid = out_.track(group, "text version", 3, "changes");
          break;
        case CounterPoint::Kind::kInstructions:
          uuid = out_.track(group, fmt::format("instructions/us CPU {}", p.cpu), 4, "1/us");
          break;
        case CounterPoint::Kind::kCoverage:
          uuid = out_.track(group, fmt::format("decode coverage CPU {}", p.cpu), 5, "%");
          break;
      }
    }
    out_.counter(uuid, p.time, p.value);
  }
}

void PerfettoWriter::text() {
  const uint64_t group = out_.track(0, "Text", -1);
  pokes(group);
  snapshots(group);
  lifetimes(group);
  counters(group);
  if (t_.folded == 0 && t_.blocks_left_out == 0 && instructions_.left_out() == 0) return;
  const uint64_t uuid = out_.track(0, "folded", 2);
  const auto note_left_out = [&](uint64_t n, std::string_view what) {
    if (n != 0)
      out_.event(uuid, t_.summary.begin, PerfettoPackets::kInstant, fmt::format("{} {}", n, what), "folded");
  };
  note_left_out(t_.blocks_left_out, "straight runs were left out: too many");
  note_left_out(instructions_.left_out(),
                "instructions have no slices of their own, only their runs: too many");
  if (t_.folded == 0) return;
  out_.note("folded slices", t_.folded);
  out_.note("kept slices", uint64_t{t_.slices.size()});
  out_.note("shorter than ns", PerfettoPackets::stamp(t_.folded_below));
  out_.event(uuid, t_.summary.begin, PerfettoPackets::kInstant,
             fmt::format("folded {} slices shorter than {} ns", t_.folded, t_.folded_below), "folded");
}

}  // namespace

std::string poke_title(const PokeSlice& poke) {
  const std::string_view mechanism = mechanism_name(poke.mechanism);
  return poke.action.empty() ? std::string(mechanism) : fmt::format("{}: {}", mechanism, poke.action);
}

std::string poke_bytes(const Capture& capture, const PokeSlice& poke) {
  const PokeRecord& p = capture.text->pokes()[poke.index];
  return fmt::format("{} -> {}", format_bytes(p.old_bytes()), format_bytes(p.new_bytes()));
}

PerfettoResult write_perfetto(const Capture& capture, const Timeline& timeline, bool inlined,
                              const std::function<void(std::string_view)>& write) {
  return PerfettoWriter(capture, timeline, inlined, write).run();
}

}  // namespace asof
