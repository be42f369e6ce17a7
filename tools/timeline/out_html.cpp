#include "tools/timeline/out_html.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "textstore/time.h"
#include "tools/output/format.h"
#include "tools/timeline/html_code.h"
#include "tools/timeline/html_cycles.h"
#include "tools/timeline/html_json.h"
#include "tools/timeline/html_pack.h"
#include "tools/timeline/html_page.h"
#include "tools/timeline/html_spread.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

// Beyond these a page would be slow to open; what is left out is said in it.
constexpr size_t kMostPokes = 50'000, kMostGaps = 50'000, kMostLifetimes = 20'000;

class HtmlWriter {
 public:
  HtmlWriter(const Capture& capture, const Timeline& timeline, const HtmlOptions& options)
      : t_(timeline),
        capture_(capture),
        options_(options),
        spread_(timeline),
        code_(capture, options.inlined),
        cycles_(options.cycles) {}

  std::vector<Notice> run(const std::function<void(std::string_view)>& write) {
    json_.open('{');
    head();
    tracks();
    cpus();
    functions();
    kinds();
    threads();
    code_.put_blocks(json_, cycles_);
    cycles_.put_calls(json_);
    pokes();
    gaps();
    lifetimes();
    contents();
    json_.close('}');
    std::string_view page = kHtmlPage;
    put_until(write, page, "/*META*/");
    write(packed(json_.all()));
    put_until(write, page, "/*BYTES*/");
    write(packed(pack_.bytes()));
    write(page);
    return code_.take_notices();
  }

 private:
  static void put_until(const std::function<void(std::string_view)>& write, std::string_view& page,
                        std::string_view mark) {
    const size_t at = page.find(mark);
    write(page.substr(0, at));
    page.remove_prefix(at + mark.size());
  }
  // Nanoseconds after the beginning; null for a time outside of the capture.
  void time(std::string_view key, Time t) {
    json_.key(key);
    if (t == kTimeMin || t == kTimeMax) {
      json_.null();
    } else {
      json_.number(after_begin(t));
    }
  }
  // Times of records may be anything.
  Time after_begin(Time t) const {
    Time out = 0;
    return __builtin_sub_overflow(t, t_.summary.begin, &out) ? (t < 0 ? kTimeMin : kTimeMax) : out;
  }
  void head();
  void tracks();
  void track(const TimelineTrack& track, size_t first, size_t last);
  uint32_t kind_of(const Slice& s);
  void cpus();
  void functions();
  void kinds();
  void threads();
  void pokes();
  void poke(const PokeSlice& p);
  void gaps();
  void lifetimes();
  void contents();

  const Timeline& t_;
  const Capture& capture_;
  const HtmlOptions& options_;
  TimelineSpread spread_;
  HtmlCode code_;
  HtmlCycles cycles_;
  HtmlJson json_;
  PackedNumbers pack_;
  using Kind = std::tuple<uint32_t, uint32_t, OriginRef, Confidence, int32_t>;  // flags, version, ..., CPU
  std::map<Kind, uint32_t> kinds_;
  using Thread = std::tuple<int32_t, int32_t, std::string>;
  std::map<Thread, uint32_t> threads_;
};

void HtmlWriter::head() {
  const TimelineSummary& s = t_.summary;
  json_.pair_number("format", 1).pair("title", options_.title.empty() ? capture_.path : options_.title);
  json_.pair("clock", s.clock == TimelineSummary::Clock::kNanoseconds ? "ns" : "instructions");
  json_.pair("begin", std::to_string(s.begin)).pair_number("unit", kHtmlUnit);
  json_.pair_number("length", std::max<Time>(elapsed(s.begin, s.end), 1));
  json_.pair_number("closeUp", s.clock == TimelineSummary::Clock::kNanoseconds ? 20'000 : 2'000);
  json_.pair("again", options_.command);
  json_.key("about").open('[');
  const auto row = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) json_.open('[').text(name).text(value).close(']');
  };
  row("kind", capture_.kind);
  row("machine", capture_.machine);
  row("host", capture_.hostname);
  row("system", capture_.os_release);
  row("CPU", capture_.cpu_desc);
  row("recorded by", capture_.command_line);
  json_.close(']');
}

uint32_t HtmlWriter::kind_of(const Slice& s) {
  const Kind kind{s.flags, s.version, s.origin, s.confidence, s.cpu};
  return kinds_.try_emplace(kind, static_cast<uint32_t>(kinds_.size())).first->second;
}

void HtmlWriter::track(const TimelineTrack& track, size_t first, size_t last) {
  const uint64_t begin = pack_.size();
  uint64_t at = 0;
  uint32_t depth = 0;
  for (size_t i = first; i < last; ++i) {
    const Slice& s = t_.slices[i];
    const Span span = spread_.slices[i];
    pack_.number(span.begin - at);
    pack_.signed_number(static_cast<int64_t>(s.depth) - depth);
    pack_.number(span.end - span.begin);
    pack_.number(s.function);
    pack_.number(uint64_t{kind_of(s)} << 1 | (s.folded != 0 ? 1 : 0));
    if (s.folded != 0) pack_.number(s.folded);
    pack_.number(s.self_instructions);
    pack_.number(s.instructions - std::min(s.self_instructions, s.instructions));
    at = span.begin;
    depth = s.depth;
  }
  json_.open('{').pair_number("id", track.id).pair("name", track.name);
  json_.pair("kind", track.kind == TimelineTrack::Kind::kCpu ? "cpu" : "thread")
      .pair_number("cpu", track.cpu);
  json_.pair_number("count", last - first).key("slices").open('[').number(begin).number(pack_.size() - begin);
  json_.close(']').close('}');
}

void HtmlWriter::tracks() {
  json_.key("tracks").open('[');
  for (size_t first = 0; first < t_.slices.size();) {
    size_t last = first;
    while (last < t_.slices.size() && t_.slices[last].track == t_.slices[first].track) ++last;
    track(t_.tracks[t_.slices[first].track], first, last);
    first = last;
  }
  json_.close(']');
}

void HtmlWriter::cpus() {
  std::map<int32_t, std::string> names;
  for (const auto& [cpu, points] : spread_.points) {
    if (cpu >= 0) names[cpu] = fmt::format("CPU {}", cpu);
  }
  json_.key("cpus").open('[');
  const auto place = [&](std::string_view key, uint64_t begin, uint64_t count) {
    json_.key(key).open('{').pair_number("count", count).key("place").open('[').number(begin);
    json_.number(pack_.size() - begin).close(']').close('}');
  };
  for (const auto& [cpu, name] : names) {
    json_.open('{').pair_number("id", cpu).pair_number("cpu", cpu).pair("name", name);
    uint64_t begin = pack_.size(), count = 0, at = 0;
    const auto span = [&](uint64_t from, uint64_t to, uint64_t what) {
      from = std::max(from, at);
      pack_.number(from - at);
      pack_.number(std::max(to, from) - from);
      pack_.number(what);
      at = from;
      ++count;
    };
    for (const RunSlice& r : t_.runs) {
      if (r.cpu != cpu) continue;
      const uint32_t who =
          threads_.try_emplace({r.pid, r.tid, r.comm}, static_cast<uint32_t>(threads_.size())).first->second;
      span(html_position(t_.summary, r.begin), html_position(t_.summary, r.end), who);
    }
    place("runs", begin, count);
    begin = pack_.size();
    count = at = 0;
    for (size_t i = 0; i < t_.blocks.size(); ++i) {
      if (t_.blocks[i].cpu == cpu)
        span(spread_.blocks[i].begin, spread_.blocks[i].end, code_.block_of(t_.blocks[i]));
    }
    place("blocks", begin, count);
    begin = pack_.size();
    Time last = t_.summary.begin;
    for (const Time t : spread_.points[cpu]) {
      const Time inside = std::clamp(t, last, std::max(last, t_.summary.end));
      pack_.number(static_cast<uint64_t>(inside - last));
      last = inside;
    }
    place("points", begin, spread_.points[cpu].size());
    json_.key("gaps").open('[');
    for (size_t i = 0; i < std::min(t_.gaps.size(), kMostGaps); ++i) {
      if (t_.gaps[i].cpu == cpu) json_.number(i);
    }
    json_.close(']').close('}');
  }
  json_.close(']');
}

void HtmlWriter::functions() {
  std::unordered_map<Time, std::vector<uint32_t>> pokes;
  for (uint32_t i = 0; i < std::min(t_.pokes.size(), kMostPokes); ++i) pokes[t_.pokes[i].time].push_back(i);
  json_.key("functions").open('[');
  for (const TimelineFunction& f : t_.functions) {
    json_.open('{').pair("name", f.name).pair("kind", function_kind_name(f.kind)).pair("dso", f.dso);
    if (!f.range.empty()) json_.pair("range", fmt::format("{:x}-{:x}", f.range.begin, f.range.end));
    if (!f.line.empty()) json_.pair("line", f.line);
    cycles_.put_function(json_, f.name, f.dso);
    if (f.bpf_id != 0) json_.pair("bpf", fmt::format("id {} tag {}", f.bpf_id, f.bpf_tag));
    if (!f.changes.empty()) {
      json_.key("changes").open('[');
      for (const Time t : f.changes) {
        int64_t which = -1;
        for (const uint32_t p : pokes[t]) {
          if (f.space == kKernelSpace && f.range.contains(t_.pokes[p].address)) which = p;
        }
        json_.open('[').number(after_begin(t)).number(which).close(']');
      }
      json_.close(']');
    }
    json_.close('}');
  }
  json_.close(']');
}

void HtmlWriter::kinds() {
  std::vector<const Kind*> order(kinds_.size());
  for (const auto& [kind, index] : kinds_) order[index] = &kind;
  json_.key("kinds").open('[');
  for (const Kind* kind : order) {
    const auto& [flags, version, from, confidence, cpu] = *kind;
    json_.open('{')
        .pair("flags", slice_flag_names(flags))
        .pair_number("version", version)
        .pair("origin", code_.origin(from));
    json_.pair("confidence", confidence_name(confidence)).pair_number("cpu", cpu);
    if ((flags & Slice::kAcrossGap) != 0) json_.pair_number("gap", 1);
    const int open =
        ((flags & Slice::kBeganBefore) != 0 ? 1 : 0) | ((flags & Slice::kEndUnknown) != 0 ? 2 : 0);
    if (open != 0) json_.pair_number("open", open);
    json_.close('}');
  }
  json_.close(']');
}

void HtmlWriter::threads() {
  std::vector<const Thread*> order(threads_.size());
  for (const auto& [thread, index] : threads_) order[index] = &thread;
  json_.key("threads").open('[');
  for (const Thread* thread : order) {
    const auto& [pid, tid, comm] = *thread;
    json_.open('{').pair_number("pid", pid).pair_number("tid", tid);
    json_.pair("name", tid == 0 ? "idle" : fmt::format("{} {}", comm, tid));
    if (tid == 0) json_.pair_number("idle", 1);
    json_.close('}');
  }
  json_.close(']');
}

void HtmlWriter::poke(const PokeSlice& p) {
  const PokeRecord& record = capture_.text->pokes()[p.index];
  json_.open('{').pair_number("number", p.index + 1).pair("address", fmt::format("{:x}", p.address));
  time("time", p.time);
  time("begin", p.begin);
  time("end", p.end);
  json_.pair("mechanism", mechanism_name(p.mechanism)).pair("action", p.action).pair("symbol", p.symbol);
  json_.pair("old", code_.instructions(record.old_bytes(), p.address, p.time));
  json_.pair("new", code_.instructions(record.new_bytes(), p.address, p.time));
  json_.key("visits").open('[');
  for (const PokeVisit& v : p.visits) {
    json_.open('{').pair_number("cpu", v.cpu).pair_number("breakpoints", v.breakpoints);
    time("old", v.last_old);
    time("new", v.first_new);
    json_.close('}');
  }
  json_.close(']').close('}');
}

void HtmlWriter::pokes() {
  json_.key("pokes").open('[');
  for (size_t i = 0; capture_.text && i < std::min(t_.pokes.size(), kMostPokes); ++i) poke(t_.pokes[i]);
  json_.close(']');
}

void HtmlWriter::gaps() {
  json_.key("gaps").open('[');
  for (size_t i = 0; i < std::min(t_.gaps.size(), kMostGaps); ++i) {
    const GapSlice& g = t_.gaps[i];
    json_.open('{').pair("code", code_text(g.code)).pair("reason", g.reason);
    json_.pair("where", g.cpu >= 0 ? fmt::format("CPU {}", g.cpu) : fmt::format("thread {}", g.tid));
    json_.pair_number("begin", after_begin(g.begin)).pair_number("end", after_begin(g.end));
    if (g.ip != 0) json_.pair("ip", fmt::format("{:x}", g.ip));
    if (g.resume_ip != 0) json_.pair("resume", fmt::format("{:x}", g.resume_ip));
    if (g.bytes != 0) json_.pair_number("bytes", g.bytes).pair("offset", fmt::format("{:#x}", g.file_offset));
    json_.close('}');
  }
  json_.close(']');
}

void HtmlWriter::lifetimes() {
  json_.key("lives").open('[');
  for (size_t i = 0; i < std::min(t_.lifetimes.size(), kMostLifetimes); ++i) {
    const LifetimeSlice& l = t_.lifetimes[i];
    json_.open('{').pair_number("index", i).pair("kind", lifetime_kind_name(l.kind)).pair("name", l.name);
    json_.pair("range", fmt::format("{:x}-{:x}", l.range.begin, l.range.end));
    time("begin", l.begin);
    time("end", l.end);
    if (l.seen.lo <= l.seen.hi) {
      json_.key("seen").open('[');
      for (const Time t : {l.seen.lo, l.seen.hi})
        t == kTimeMin || t == kTimeMax ? json_.null() : json_.number(after_begin(t));
      json_.close(']');
    }
    if (l.bpf_id != 0) json_.pair("bpf", fmt::format("id {} tag {}", l.bpf_id, l.bpf_tag));
    json_.close('}');
  }
  json_.close(']');
}

// What the page has and what it lacks: for the first page, and for the view, which says so where it would be.
void HtmlWriter::contents() {
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("{} instructions were decoded; {} calls, {} and {} are here.",
                  format_count(t_.summary.instructions), format_count(t_.slices.size()),
                  format_plural(std::min(t_.pokes.size(), kMostPokes), "change of text", "changes of text"),
                  format_plural(std::min(t_.gaps.size(), kMostGaps), "gap", "gaps")));
  if (t_.folded != 0) {
    lines.push_back(
        fmt::format("{} calls shorter than {} are not: they are counted in the calls around them.",
                    format_count(t_.folded), timeline_length(t_.summary, t_.folded_below)));
  }
  const auto left_out = [&](size_t all, size_t most, std::string_view what) {
    if (all > most)
      lines.push_back(fmt::format("{} {} are not here: too many.", format_count(all - most), what));
  };
  left_out(t_.pokes.size(), kMostPokes, "changes of text");
  left_out(t_.gaps.size(), kMostGaps, "gaps");
  left_out(t_.lifetimes.size(), kMostLifetimes, "programs and modules");
  // Beyond a limit the last ones are missing: the data is complete up to the last one present.
  Time last = t_.blocks_left_out == 0 ? kTimeMax : t_.summary.begin;
  for (const BlockSlice& b : t_.blocks) last = t_.blocks_left_out == 0 ? last : std::max(last, b.begin);
  std::vector<TimeBounds> windows;
  for (const TimeBounds& asked : options_.detail) {
    const TimeBounds window{std::max(asked.lo, t_.summary.begin), std::min({asked.hi, t_.summary.end, last})};
    if (window.lo < window.hi) windows.push_back(window);
  }
  json_.key("windows").open('[');
  for (const TimeBounds& w : windows) {
    json_.open('[').number(after_begin(w.lo)).number(after_begin(w.hi)).close(']');
  }
  json_.close(']');
  if (t_.blocks.empty()) {
    lines.push_back("Single instructions are not here.");
  } else if (windows.size() == 1) {
    lines.push_back(fmt::format("Single instructions are here from {} to {}.",
                                timeline_time(t_.summary, windows[0].lo),
                                timeline_time(t_.summary, windows[0].hi)));
  } else {
    lines.push_back(
        fmt::format("Single instructions are here in {} windows: around changes of text, and now and then.",
                    format_count(windows.size())));
  }
  if (t_.blocks_left_out != 0) {
    lines.push_back(fmt::format("{} straight runs of instructions were left out: too many.",
                                format_count(t_.blocks_left_out)));
  }
  json_.key("contents").open('[');
  for (const std::string& line : lines) json_.text(line);
  json_.close(']');
}

}  // namespace

std::vector<Notice> write_html(const Capture& capture, const Timeline& timeline, const HtmlOptions& options,
                               const std::function<void(std::string_view)>& write) {
  return HtmlWriter(capture, timeline, options).run(write);
}

}  // namespace asof
