// Perfetto. Tracks: a group for each CPU (calls, thread, health, instructions, changes it ran), threads below
// their processes, a group for text. Every track is written in the order of its tree (perfetto_packets.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/decode/decode_style.h"
#include "tools/output/format.h"
#include "tools/timeline/perfetto_instructions.h"
#include "tools/timeline/perfetto_packets.h"
#include "tools/timeline/perfetto_sched.h"
#include "tools/timeline/perfetto_text.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

using protozero::pbf_writer;

class PerfettoWriter {
 public:
  PerfettoWriter(const Capture& capture, const Timeline& timeline, bool inlined,
                 const std::function<void(std::string_view)>& write)
      : c_(capture), t_(timeline), out_(write), instructions_(capture, timeline, inlined, out_) {}

  PerfettoResult run() {
    write_system(c_, out_);
    cpus();
    write_sched(t_, c_.os_release, out_);
    threads();
    PerfettoText(c_, t_, out_).write(groups_, instructions_.left_out());
    out_.finish();
    return {instructions_.take_notices(), instructions_.left_out()};
  }

 private:
  void cpus();
  void threads();
  void slices(uint32_t track, uint64_t uuid);
  void annotate(const Slice& s);
  void health(int32_t cpu, uint64_t uuid);

  const Capture& c_;
  const Timeline& t_;
  PerfettoPackets out_;
  PerfettoInstructions instructions_;
  std::map<int32_t, uint64_t> groups_;  // of tracks, by CPU
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
    const uint64_t group = groups_[track.cpu] = out_.track(0, track.name, track.cpu);
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

}  // namespace

PerfettoResult write_perfetto(const Capture& capture, const Timeline& timeline, bool inlined,
                              const std::function<void(std::string_view)>& write) {
  return PerfettoWriter(capture, timeline, inlined, write).run();
}

}  // namespace asof
