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
bool is_known(Time t) { return t != kTimeMin && t != kTimeMax; }

}  // namespace

// Without a clock, times are no times: files are then there from the beginning.
std::string function_line(SourceLines& lines, const TimelineFunction& f, Time t) {
  if (f.range.empty()) return {};
  for (const Time when : {t, kTimeMin}) {
    if (const SourceLine line = lines.at(f.space, f.range.begin, when)) return source_text(line);
  }
  return {};
}

void SliceSink::begin(const Capture& capture) {
  capture_ = &capture;
  if (format_ != Format::kCsv || !head_) return;
  write_(
      fmt::format("id,parent,track_kind,track,cpu,tid,begin,end,function,kind,dso,{}version,instructions,"
                  "self_instructions,entry,call_site,flags,source,confidence\n",
                  lines_ == nullptr ? "" : "line,"));
}

void SliceSink::track(const TimelineTrack& t) {
  if (tracks_.size() <= t.id) tracks_.resize(size_t{t.id} + 1);
  Track& track = tracks_[t.id];
  track = {t.tid, {}};
  if (format_ == Format::kCsv) {
    track.fields = fmt::format("{},{}", track_kind(t), csv_field(t.name));
  } else {
    put_json_key(track.fields, "track_kind", track_kind(t));
    put_json_key(track.fields, "track", t.name);
  }
}

void SliceSink::function(const TimelineFunction& f) {
  if (functions_.size() <= f.id) functions_.resize(size_t{f.id} + 1);
  functions_[f.id] = {f, {}};
}

const std::string& SliceSink::fields_of(const Slice& s) {
  const TimelineFunction& f = functions_[s.function].function;
  std::string& fields = functions_[s.function].fields;
  if (!fields.empty()) return fields;
  const std::string line = lines_ == nullptr ? std::string() : function_line(*lines_, f, s.begin);
  if (format_ == Format::kCsv) {
    fields = fmt::format("{},{},{}", csv_field(f.name), function_kind_name(f.kind), csv_field(f.dso));
    if (lines_ != nullptr) fields += "," + csv_field(line);
  } else {
    put_json_key(fields, "function", f.name);
    put_json_key(fields, "kind", function_kind_name(f.kind));
    put_json_key(fields, "dso", f.dso);
    if (!line.empty()) put_json_key(fields, "line", line);
  }
  return fields;
}

std::string_view SliceSink::last_fields(const Slice& s) {
  static_assert(sizeof s.origin == sizeof(uint32_t));
  const auto confidence = static_cast<uint64_t>(s.confidence);
  std::string& fields = last_fields_[uint64_t{s.origin} << 32U | uint64_t{s.flags} << 8U | confidence];
  if (!fields.empty()) return fields;
  const std::string flags = slice_flag_names(s.flags), source = format_origin(*capture_->text, s.origin);
  if (format_ == Format::kCsv) {
    fields = fmt::format("{},{},{}\n", flags, csv_field(source), confidence_name(s.confidence));
  } else {
    put_json_key(fields, "flags", flags);
    put_json_key(fields, "source", source);
    put_json_key(fields, "confidence", confidence_name(s.confidence));
    fields += "}\n";
  }
  return fields;
}

void SliceSink::slice(const Slice& s) {
  ++slices_;
  row_.clear();
  const int32_t tid = tracks_[s.track].tid;
  format_ == Format::kCsv ? csv(s, tid) : json(s, tid);
  row_.text(last_fields(s));
  write_(row_.view());
}

void SliceSink::csv(const Slice& s, int32_t tid) {
  row_.number(s.id).text(",").number(s.parent).text(",").text(tracks_[s.track].fields);
  row_.text(",").number(s.cpu).text(",").number(tid);
  for (const Time t : {s.begin, s.end}) {
    row_.text(",");
    if (is_known(t)) row_.number(t);
  }
  row_.text(",").text(fields_of(s)).text(",").number(s.version);
  row_.text(",").number(s.instructions).text(",").number(s.self_instructions);
  row_.text(",").address(s.entry).text(",").address(s.call_site).text(",");
}

void SliceSink::json(const Slice& s, int32_t tid) {
  const auto time = [&](std::string_view key, Time t) {
    row_.text(key);
    is_known(t) ? row_.number(t) : row_.text("null");
  };
  row_.text("{\"type\":\"slice\",\"id\":").number(s.id).text(",\"parent\":").number(s.parent);
  row_.text(tracks_[s.track].fields);
  if (s.cpu >= 0) row_.text(",\"cpu\":").number(s.cpu);
  if (tid >= 0) row_.text(",\"tid\":").number(tid);
  time(",\"begin\":", s.begin);
  time(",\"end\":", s.end);
  row_.text(fields_of(s)).text(",\"version\":").number(s.version);
  row_.text(",\"instructions\":").number(s.instructions);
  row_.text(",\"self_instructions\":").number(s.self_instructions);
  row_.text(",\"entry\":\"").address(s.entry).text("\",\"call_site\":\"").address(s.call_site).text("\"");
}

}  // namespace asof
