#include "tools/timeline/out_slices.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>

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
  row_ += last_fields(s);
  write_(row_);
}

void SliceSink::csv(const Slice& s, int32_t tid) {
  const auto out = std::back_inserter(row_);
  fmt::format_to(out, FMT_COMPILE("{},{},{},{},{},"), s.id, s.parent, tracks_[s.track].fields, s.cpu, tid);
  if (is_known(s.begin)) fmt::format_to(out, FMT_COMPILE("{}"), s.begin);
  row_ += ',';
  if (is_known(s.end)) fmt::format_to(out, FMT_COMPILE("{}"), s.end);
  fmt::format_to(out, FMT_COMPILE(",{},{},{},{},{:#x},{:#x},"), fields_of(s), s.version, s.instructions,
                 s.self_instructions, s.entry, s.call_site);
}

void SliceSink::json(const Slice& s, int32_t tid) {
  const auto out = std::back_inserter(row_);
  const auto time = [&](std::string_view key, Time t) {
    if (is_known(t)) {
      fmt::format_to(out, FMT_COMPILE(",\"{}\":{}"), key, t);
    } else {
      fmt::format_to(out, FMT_COMPILE(",\"{}\":null"), key);
    }
  };
  fmt::format_to(out, FMT_COMPILE("{{\"type\":\"slice\",\"id\":{},\"parent\":{}{}"), s.id, s.parent,
                 tracks_[s.track].fields);
  if (s.cpu >= 0) fmt::format_to(out, FMT_COMPILE(",\"cpu\":{}"), s.cpu);
  if (tid >= 0) fmt::format_to(out, FMT_COMPILE(",\"tid\":{}"), tid);
  time("begin", s.begin);
  time("end", s.end);
  fmt::format_to(out,
                 FMT_COMPILE("{},\"version\":{},\"instructions\":{},\"self_instructions\":{},"
                             "\"entry\":\"{:#x}\",\"call_site\":\"{:#x}\""),
                 fields_of(s), s.version, s.instructions, s.self_instructions, s.entry, s.call_site);
}

}  // namespace asof
