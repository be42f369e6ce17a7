#include "tools/timeline/out_slices.h"

#include <fmt/format.h>

#include "tools/output/csv.h"
#include "tools/output/format.h"
#include "tools/output/json.h"

namespace asof {
namespace {

std::string_view track_kind(const TimelineTrack& t) {
  return t.kind == TimelineTrack::Kind::kCpu ? "cpu" : "thread";
}
std::string time_cell(Time t) {
  return t == kTimeMin || t == kTimeMax ? std::string() : fmt::format("{}", t);
}

}  // namespace

void SliceSink::begin(const Capture& capture) {
  capture_ = &capture;
  if (format_ != Format::kCsv) return;
  write_(
      "id,parent,track_kind,track,cpu,tid,begin,end,function,kind,dso,version,instructions,self_instructions,"
      "entry,call_site,flags,source,confidence\n");
}

void SliceSink::function(const TimelineFunction& f) {
  if (functions_.size() <= f.id) functions_.resize(size_t{f.id} + 1);
  functions_[f.id] = f;
}

void SliceSink::slice(const Slice& s) {
  ++slices_;
  const TimelineTrack& track = tracks_[s.track];
  const TimelineFunction& f = functions_[s.function];
  format_ == Format::kCsv ? csv(s, track, f) : json(s, track, f);
}

void SliceSink::csv(const Slice& s, const TimelineTrack& track, const TimelineFunction& f) {
  write_(fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:#x},{:#x},{},{},{}\n", s.id, s.parent,
                     track_kind(track), csv_field(track.name), s.cpu, track.tid, time_cell(s.begin),
                     time_cell(s.end), csv_field(f.name), function_kind_name(f.kind), csv_field(f.dso),
                     s.version, s.instructions, s.self_instructions, s.entry, s.call_site,
                     slice_flag_names(s.flags), csv_field(format_origin(*capture_->text, s.origin)),
                     confidence_name(s.confidence)));
}

void SliceSink::json(const Slice& s, const TimelineTrack& track, const TimelineFunction& f) {
  JsonLine line("slice");
  line.number("id", s.id).number("parent", s.parent).text("track_kind", track_kind(track));
  line.text("track", track.name);
  if (s.cpu >= 0) line.number("cpu", static_cast<uint64_t>(s.cpu));
  if (track.tid >= 0) line.number("tid", static_cast<uint64_t>(track.tid));
  line.time("begin", s.begin).time("end", s.end);
  line.text("function", f.name).text("kind", function_kind_name(f.kind)).text("dso", f.dso);
  line.number("version", s.version).number("instructions", s.instructions);
  line.number("self_instructions", s.self_instructions);
  line.address("entry", s.entry).address("call_site", s.call_site);
  line.text("flags", slice_flag_names(s.flags));
  line.text("source", format_origin(*capture_->text, s.origin));
  line.text("confidence", confidence_name(s.confidence));
  write_(line.end());
}

}  // namespace asof
