// Chrome's JSON ("Trace Event Format"): complete events, one after the other. Times are microseconds with
// three decimals. For small traces: its readers load all of it.
#include <fmt/format.h>

#include "textstore/time.h"
#include "tools/output/format.h"
#include "tools/output/json.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

constexpr int32_t kCpuPid = 1 << 30;  // "process" that holds the tracks of CPUs; above every real one
constexpr int32_t kTextPid = kCpuPid + 1;

class ChromeWriter {
 public:
  explicit ChromeWriter(const std::function<void(std::string_view)>& write) : write_(write) {}

  // Opens an event; key() adds to its args, end() closes it.
  void begin(std::string_view name, std::string_view category, char phase, Time t, int32_t pid, int32_t tid) {
    line_ = first_ ? "{\"name\":" : ",\n{\"name\":";
    first_ = false;
    put_json_string(line_, name);
    put_json_key(line_, "cat", category);
    fmt::format_to(std::back_inserter(line_), R"(,"ph":"{}","ts":{},"pid":{},"tid":{})", phase, us(t), pid,
                   tid);
  }
  void duration(Time d) { fmt::format_to(std::back_inserter(line_), ",\"dur\":{}", us(d)); }
  void key(std::string_view k, std::string_view v) { put_json_key(args_, k, v); }
  void key(std::string_view k, uint64_t v) { fmt::format_to(std::back_inserter(args_), ",\"{}\":{}", k, v); }
  void end() {
    if (!args_.empty()) line_ += ",\"args\":{" + args_.substr(1) + "}";
    line_ += "}";
    args_.clear();
    write_(line_);
  }
  void name_row(std::string_view what, int32_t pid, int32_t tid, std::string_view name) {
    begin(what, "__metadata", 'M', 0, pid, tid);
    key("name", name);
    end();
  }

 private:
  static std::string us(Time t) {
    const auto n = static_cast<uint64_t>(t < 0 ? -t : t);
    return fmt::format("{}{}.{:03}", t < 0 ? "-" : "", n / 1000, n % 1000);
  }
  const std::function<void(std::string_view)>& write_;
  std::string line_, args_;
  bool first_ = true;
};

std::pair<int32_t, int32_t> row_of(const TimelineTrack& t) {
  if (t.kind == TimelineTrack::Kind::kCpu) return {kCpuPid, t.cpu};
  return {t.pid > 0 ? t.pid : t.tid, t.tid};
}

}  // namespace

void write_chrome(const Capture& capture, const Timeline& t,
                  const std::function<void(std::string_view)>& write) {
  write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  ChromeWriter w(write);
  w.name_row("process_name", kCpuPid, 0, "CPUs");
  w.name_row("process_name", kTextPid, 0, "Text");
  for (const TimelineTrack& track : t.tracks) {
    const auto [pid, tid] = row_of(track);
    w.name_row("thread_name", pid, tid, track.name);
  }
  for (const Slice& s : t.slices) {
    const auto [pid, tid] = row_of(t.tracks[s.track]);
    w.begin(t.slice_name(s), function_kind_name(t.functions[s.function].kind), 'X', s.begin, pid, tid);
    w.duration(elapsed(s.begin, s.end));
    w.key("instructions", s.instructions);
    if (s.flags != 0) w.key("flags", slice_flag_names(s.flags));
    if (s.confidence != Confidence::kCertain) w.key("confidence", confidence_name(s.confidence));
    if (s.folded != 0) w.key("folded", s.folded);
    if (const std::string& line = t.functions[s.function].line; !line.empty()) w.key("source line", line);
    w.end();
  }
  for (const GapSlice& g : t.gaps) {
    w.begin(code_text(g.code), family_text(family_of(g.code)), 'X', g.begin, kCpuPid, g.cpu);
    w.duration(elapsed(g.begin, g.end));
    w.key("reason", g.reason);
    w.end();
  }
  for (const PokeSlice& p : t.pokes) {
    w.begin(poke_title(p), "poke", 'i', p.time, kTextPid, 0);
    w.key("symbol", p.symbol);
    w.key("bytes", poke_bytes(capture, p));
    w.end();
  }
  if (t.folded != 0) {
    w.begin("folded", "folded", 'i', t.summary.begin, kTextPid, 0);
    w.key("slices", t.folded);
    w.end();
  }
  write("\n]}\n");
}

}  // namespace asof
