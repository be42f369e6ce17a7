// Perfetto: TrackEvent packets (protos/perfetto/trace/trace_packet.proto, track_event/*.proto) with interned
// names. Tracks: a group for each CPU (calls, thread, health), threads below their processes, a group for
// text. A slice's begin and end are packets of their own; where times are equal, the order in the file
// decides how they nest, so every track is written in the order of its tree.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <unordered_map>

#include "tools/decode_style.h"
#include "tools/format.h"
#include "tools/timeline_outputs.h"

namespace asof {
namespace {

using protozero::pbf_writer;

// Field numbers of the protos named above.
namespace field {
constexpr uint32_t kPacket = 1;
constexpr uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12, kSequenceFlags = 13,
                   kTrackDescriptor = 60;
constexpr uint32_t kUuid = 1, kTrackName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8,
                   kChildOrdering = 11, kSiblingRank = 12;
constexpr uint32_t kProcessPid = 1, kProcessName = 6, kThreadPid = 1, kThreadTid = 2, kThreadName = 5;
constexpr uint32_t kUnitName = 6;
constexpr uint32_t kCategoryIid = 3, kAnnotation = 4, kType = 9, kNameIid = 10, kTrackUuid = 11,
                   kCounterDouble = 44;
constexpr uint32_t kInternedCategories = 1, kInternedNames = 2, kInternedAnnotationNames = 3, kIid = 1,
                   kInternedName = 2;
constexpr uint32_t kAnnotationNameIid = 1, kAnnotationUint = 3, kAnnotationInt = 4, kAnnotationString = 6,
                   kAnnotationPointer = 7;
}  // namespace field
enum EventType : int32_t { kBegin = 1, kEnd = 2, kInstant = 3, kCounterValue = 4 };
constexpr uint32_t kStateCleared = 1, kNeedsState = 2, kOneSequence = 1, kExplicitOrder = 3;
constexpr uint64_t kRoot = 1;

class PerfettoWriter {
 public:
  PerfettoWriter(const Capture& capture, const Timeline& timeline,
                 const std::function<void(std::string_view)>& write)
      : c_(capture), t_(timeline), write_(write) {}

  void run() {
    packet([](pbf_writer& p) { p.add_uint32(field::kSequenceFlags, kStateCleared); });
    cpus();
    threads();
    text();
    if (!buffer_.empty()) write_(buffer_);
  }

 private:
  template <class Fill>
  void packet(Fill&& fill) {
    packet_.clear();
    pbf_writer p(packet_);
    p.add_uint32(field::kSequence, kOneSequence);
    fill(p);
    pbf_writer out(buffer_);
    out.add_message(field::kPacket, packet_);
    if (buffer_.size() > 1 << 20) {
      write_(buffer_);
      buffer_.clear();
    }
  }

  // Iids of names not written yet go into the next packet that needs them.
  using Iids = std::unordered_map<std::string, uint64_t>;
  uint64_t iid(Iids& known, uint32_t where, std::string_view name) {
    const auto [at, fresh] = known.try_emplace(std::string(name), known.size() + 1);
    if (fresh) {
      pbf_writer all(interned_);
      pbf_writer one(all, where);
      one.add_uint64(field::kIid, at->second);
      one.add_string(field::kInternedName, at->first);
    }
    return at->second;
  }

  uint64_t track(uint64_t parent, std::string_view name, int32_t rank, const std::string& unit = {}) {
    const uint64_t uuid = next_uuid_++;
    packet([&](pbf_writer& p) {
      pbf_writer d(p, field::kTrackDescriptor);
      d.add_uint64(field::kUuid, uuid);
      if (parent != 0) d.add_uint64(field::kParent, parent);
      d.add_string(field::kTrackName, name.data(), name.size());
      d.add_enum(field::kChildOrdering, kExplicitOrder);
      d.add_int32(field::kSiblingRank, rank);
      if (unit.empty()) return;
      pbf_writer counter(d, field::kCounter);
      counter.add_string(field::kUnitName, unit);
    });
    return uuid;
  }

  static uint64_t stamp(Time t) { return t < 0 ? 0 : static_cast<uint64_t>(t); }

  // Annotations are collected before the event they belong to.
  void note(std::string_view key, uint64_t value) {
    annotation(key, [&](pbf_writer& a) { a.add_uint64(field::kAnnotationUint, value); });
  }
  void note(std::string_view key, const std::string& value) {
    annotation(key, [&](pbf_writer& a) { a.add_string(field::kAnnotationString, value); });
  }
  void note_address(std::string_view key, Addr value) {
    annotation(key, [&](pbf_writer& a) { a.add_uint64(field::kAnnotationPointer, value); });
  }
  template <class Fill>
  void annotation(std::string_view key, Fill&& fill) {
    const uint64_t name = iid(annotation_names_, field::kInternedAnnotationNames, key);
    pbf_writer all(annotations_);
    pbf_writer one(all, field::kAnnotation);
    one.add_uint64(field::kAnnotationNameIid, name);
    fill(one);
  }

  void event(uint64_t uuid, Time t, EventType type, std::string_view name, std::string_view category) {
    const uint64_t name_iid = name.empty() ? 0 : iid(names_, field::kInternedNames, name);
    const uint64_t category_iid =
        category.empty() ? 0 : iid(categories_, field::kInternedCategories, category);
    packet([&](pbf_writer& p) {
      p.add_uint64(field::kTimestamp, stamp(t));
      p.add_uint32(field::kSequenceFlags, kNeedsState);
      if (!interned_.empty()) p.add_message(field::kInterned, interned_);
      pbf_writer e(p, field::kTrackEvent);
      e.add_enum(field::kType, type);
      e.add_uint64(field::kTrackUuid, uuid);
      if (category_iid != 0) e.add_uint64(field::kCategoryIid, category_iid);
      if (name_iid != 0) e.add_uint64(field::kNameIid, name_iid);
      annotations_into(e);
    });
    interned_.clear();
    annotations_.clear();
  }
  // They are encoded already: fields of the event, one behind the other.
  void annotations_into(pbf_writer& e) {
    protozero::pbf_reader all(annotations_);
    while (all.next()) e.add_message(field::kAnnotation, all.get_view());
  }
  void whole(uint64_t uuid, Time begin, Time end, std::string_view name, std::string_view category) {
    event(uuid, begin, kBegin, name, category);
    event(uuid, end, kEnd, {}, {});
  }
  void counter(uint64_t uuid, Time t, double value) {
    packet([&](pbf_writer& p) {
      p.add_uint64(field::kTimestamp, stamp(t));
      p.add_uint32(field::kSequenceFlags, kNeedsState);
      pbf_writer e(p, field::kTrackEvent);
      e.add_enum(field::kType, kCounterValue);
      e.add_uint64(field::kTrackUuid, uuid);
      e.add_double(field::kCounterDouble, value);
    });
  }

  void cpus();
  void threads();
  void text();
  void pokes(uint64_t group);
  void lives(uint64_t group);
  void counters(uint64_t group);
  void slices(uint32_t track, uint64_t uuid);
  void annotate(const Slice& s);
  void blocks(const TimelineTrack& track, uint64_t group);
  void health(int32_t cpu, uint64_t uuid);

  const Capture& c_;
  const Timeline& t_;
  const std::function<void(std::string_view)>& write_;
  std::string buffer_, packet_, interned_, annotations_;
  Iids names_, categories_, annotation_names_;
  uint64_t next_uuid_ = kRoot;
};

void PerfettoWriter::annotate(const Slice& s) {
  const TimelineFunction& f = t_.functions[s.function];
  note("slice", s.id);
  note("instructions", s.instructions);
  if (s.self_instructions != s.instructions) note("self instructions", s.self_instructions);
  if (s.entry != 0) note_address("entry", s.entry);
  if (s.call_site != 0) note_address("called from", s.call_site);
  if (s.flags != 0) note("flags", slice_flag_names(s.flags));
  if (f.versions() > 1) {
    note("version", uint64_t{s.version});
    note("versions", uint64_t{f.versions()});
  }
  if (f.versions() > 1 || f.kind != TimelineFunction::Kind::kKernel)
    note("source", format_origin(*c_.text, s.origin));
  if (f.bpf_id != 0) {
    note("bpf id", uint64_t{f.bpf_id});
    note("bpf tag", f.bpf_tag);
  }
  if (s.confidence != Confidence::kCertain) note("confidence", std::string(confidence_name(s.confidence)));
  if (s.folded != 0) note("folded slices", s.folded);
}

void PerfettoWriter::slices(uint32_t track, uint64_t uuid) {
  const auto begin = std::ranges::lower_bound(t_.slices, track, {}, &Slice::track);
  std::vector<const Slice*> open;
  auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) event(uuid, open.back()->end, kEnd, {}, {});
  };
  for (auto s = begin; s != t_.slices.end() && s->track == track; ++s) {
    close_to(s->depth);
    annotate(*s);
    event(uuid, s->begin, kBegin, t_.slice_name(*s), function_kind_name(t_.functions[s->function].kind));
    open.push_back(&*s);
  }
  close_to(0);
}

void PerfettoWriter::health(int32_t cpu, uint64_t uuid) {
  Time last = kTimeMin;
  for (const GapSlice& g : t_.gaps) {
    if (g.cpu != cpu) continue;
    note("code", g.code);
    note("reason", g.reason);
    note("trace bytes", g.bytes);
    if (g.ip != 0) note_address("ip", g.ip);
    if (g.resume_ip != 0) note_address("resume ip", g.resume_ip);
    last = std::max(last, g.end);
    whole(uuid, g.begin, g.end, fmt::format("{} {}", gap_family(g.code), g.code), gap_family(g.code));
  }
  for (const EventMark& e : t_.events) {
    if (e.cpu != cpu) continue;
    if (e.event.ip != 0) note_address("ip", e.event.ip);
    note("a", e.event.a);
    note("b", e.event.b);
    event(uuid, e.event.time, kInstant, event_name(e.event.kind), "event");
  }
}

void PerfettoWriter::blocks(const TimelineTrack& track, uint64_t group) {
  const auto mine = [&](const BlockSlice& b) { return b.cpu == track.cpu && b.cpu >= 0; };
  if (std::ranges::none_of(t_.blocks, mine)) return;
  const uint64_t uuid = this->track(group, track.name + " instructions", 3);
  for (const BlockSlice& b : t_.blocks) {
    if (!mine(b)) continue;
    note_address("first", b.piece.ip);
    note("instructions", uint64_t{b.piece.lengths.size()});
    note("bytes", uint64_t{b.piece.text.size()});
    whole(uuid, b.begin, b.end, fmt::format("{:#x}", b.piece.ip), "instructions");
  }
}

void PerfettoWriter::cpus() {
  for (const TimelineTrack& track : t_.tracks) {
    if (track.kind != TimelineTrack::Kind::kCpu) continue;
    const uint64_t group = this->track(0, track.name, track.cpu);
    slices(track.id, this->track(group, track.name + " calls", 0));
    const uint64_t runs = this->track(group, track.name + " thread", 1);
    for (const RunSlice& r : t_.runs) {
      if (r.cpu != track.cpu) continue;
      note("pid", uint64_t{static_cast<uint32_t>(r.pid)});
      note("tid", uint64_t{static_cast<uint32_t>(r.tid)});
      const std::string name = r.tid == 0 ? "idle" : fmt::format("{} {}", r.comm, r.tid);
      whole(runs, r.begin, r.end, name, "thread");
    }
    health(track.cpu, this->track(group, track.name + " health", 2));
    blocks(track, group);
  }
}

void PerfettoWriter::threads() {
  std::map<int32_t, bool> processes;
  for (const TimelineTrack& track : t_.tracks) {
    if (track.kind != TimelineTrack::Kind::kThread) continue;
    // Idle tasks have no process.
    if (track.tid == 0) {
      slices(track.id, this->track(0, track.name, 1000 + track.cpu));
      continue;
    }
    const int32_t pid = track.pid > 0 ? track.pid : track.tid;
    const std::string comm = track.name.substr(0, track.name.rfind(' '));
    if (!processes[pid]) {
      processes[pid] = true;
      packet([&](pbf_writer& p) {
        pbf_writer d(p, field::kTrackDescriptor);
        d.add_uint64(field::kUuid, next_uuid_++);
        pbf_writer process(d, field::kProcess);
        process.add_int32(field::kProcessPid, pid);
        process.add_string(field::kProcessName, comm);
      });
    }
    const uint64_t uuid = next_uuid_++;
    packet([&](pbf_writer& p) {
      pbf_writer d(p, field::kTrackDescriptor);
      d.add_uint64(field::kUuid, uuid);
      pbf_writer thread(d, field::kThread);
      thread.add_int32(field::kThreadPid, pid);
      thread.add_int32(field::kThreadTid, track.tid);
      thread.add_string(field::kThreadName, comm);
    });
    slices(track.id, uuid);
  }
}

void PerfettoWriter::pokes(uint64_t group) {
  if (t_.pokes.empty()) return;
  const uint64_t uuid = track(group, "pokes", 0);
  auto annotate_poke = [&](const PokeSlice& p) {
    note("poke", uint64_t{p.index});
    note_address("address", p.address);
    note("symbol", p.symbol);
    note("kind", std::string(mechanism_name(p.mechanism)));
    note("bytes", poke_bytes(c_, p));
    note("breakpoint visits", p.breakpoints);
    for (const PokeVisit& v : p.visits) {
      if (v.last_old != kTimeMin) note(fmt::format("cpu {} last old", v.cpu), stamp(v.last_old));
      if (v.first_new != kTimeMax) note(fmt::format("cpu {} first new", v.cpu), stamp(v.first_new));
    }
  };
  std::vector<const PokeSlice*> windows;
  for (const PokeSlice& p : t_.pokes) {
    annotate_poke(p);
    event(uuid, p.time, kInstant, poke_title(p), "poke");
    if (p.end > p.begin) windows.push_back(&p);
  }
  // Windows overlap without nesting: as many tracks as are open at one time.
  std::ranges::stable_sort(windows, {}, &PokeSlice::begin);
  std::vector<std::pair<Time, uint64_t>> rows;
  for (const PokeSlice* p : windows) {
    auto row = std::ranges::find_if(rows, [&](const auto& r) { return r.first <= p->begin; });
    if (row == rows.end()) {
      if (rows.size() >= 64) continue;
      rows.emplace_back(0, track(group, fmt::format("poke windows {}", rows.size() + 1), 1));
      row = rows.end() - 1;
    }
    row->first = p->end;
    annotate_poke(*p);
    whole(row->second, p->begin, p->end, p->symbol.empty() ? poke_title(*p) : p->symbol, "poke window");
  }
}

void PerfettoWriter::lives(uint64_t group) {
  for (const LifeSlice& life : t_.lives) {
    const std::string kind(life_kind_name(life.kind));
    std::string name = life.name;
    if (life.kind == LifeSlice::Kind::kBpf) name = fmt::format("{} (id {})", life.name, life.bpf_id);
    const uint64_t uuid = track(group, fmt::format("{} {} {:x}", kind, name, life.range.begin), 2);
    note_address("address", life.range.begin);
    note("size", life.range.size());
    if (life.bpf_id != 0) {
      note("bpf id", uint64_t{life.bpf_id});
      note("bpf tag", life.bpf_tag);
    }
    whole(uuid, std::clamp(life.begin, t_.summary.begin, t_.summary.end),
          std::clamp(life.end, t_.summary.begin, t_.summary.end), life.name, kind);
  }
}

void PerfettoWriter::counters(uint64_t group) {
  std::map<std::pair<CounterPoint::Kind, int32_t>, uint64_t> tracks;
  for (const CounterPoint& p : t_.counters) {
    auto& uuid = tracks[{p.kind, p.cpu}];
    if (uuid == 0) {
      switch (p.kind) {
        case CounterPoint::Kind::kTextVersion:
          uuid = track(group, "text version", 3, "changes");
          break;
        case CounterPoint::Kind::kInstructions:
          uuid = track(group, fmt::format("instructions/us CPU {}", p.cpu), 4, "1/us");
          break;
        case CounterPoint::Kind::kCoverage:
          uuid = track(group, fmt::format("decode coverage CPU {}", p.cpu), 5, "%");
          break;
      }
    }
    counter(uuid, p.time, p.value);
  }
}

void PerfettoWriter::text() {
  const uint64_t group = track(0, "Text", -1);
  pokes(group);
  lives(group);
  counters(group);
  if (t_.folded == 0) return;
  note("folded slices", t_.folded);
  note("kept slices", uint64_t{t_.slices.size()});
  note("shorter than ns", stamp(t_.folded_below));
  event(track(0, "folded", 2), t_.summary.begin, kInstant,
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

std::string_view gap_family(std::string_view code) {
  const size_t begin = code.find('-'), end = code.rfind('-');
  return begin == std::string_view::npos || end <= begin ? code : code.substr(begin + 1, end - begin - 1);
}

void write_perfetto(const Capture& capture, const Timeline& timeline,
                    const std::function<void(std::string_view)>& write) {
  PerfettoWriter(capture, timeline, write).run();
}

}  // namespace asof
