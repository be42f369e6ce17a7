#include "tools/verbs/report_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/doctor/open_matters.h"
#include "tools/output/diagnostics.h"
#include "tools/output/error_table.h"
#include "tools/output/fold.h"
#include "tools/output/format.h"
#include "tools/output/remedies.h"

namespace asof {
namespace {

constexpr size_t kNoticesShown = 10;

// What there is to do about missing bytes depends on whose they are.
std::string_view remedy_of(const Capture& c, Code code, const Coverage::Cause& cause) {
  if (!c.perf) return remedy_for(c, code);
  if (code == Code::kNoBytes && cause.in_user == cause.count)
    return "give the recorded programs' files: --symfs or --buildid-dir; of a JIT its jitdump (perf record "
           "-k 1); the "
           "notices name each file not used";
  if (code == Code::kNoBytes && cause.in_user == 0)
    return "record with perf record --kcore; give --vmlinux and --modules; the notices name each file not "
           "used";
  return remedy_for(c, code);
}

}  // namespace

void put_line(Output& out, std::string_view line) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size()) + 4;
  out.write(fold_line(line, indent, out.columns()) + "\n");
}

void print_capture(const Capture& c, Output& out) {
  std::string head = fmt::format("{}: {}", c.path, c.kind);
  for (const std::string& part : {c.machine, c.os_release, c.cpu_desc}) {
    if (!part.empty()) head += ", " + part;
  }
  put_line(out, head);
  if (!c.command_line.empty()) put_line(out, "  recorded by: " + c.command_line);
  uint64_t bytes = 0;
  for (const Stream& s : c.streams) bytes += s.end() - s.begin();
  out.write(fmt::format("  {}, {} of trace\n", format_plural(c.streams.size(), "stream", "streams"),
                        format_size(bytes)));
  if (!c.record_counts.empty()) {
    std::string line = "  records:";
    for (const auto& [type, count] : c.record_counts) {
      line += fmt::format(" {} {}", record_type_name(type), format_count(count));
    }
    put_line(out, line);
  }
}

void print_text_facts(const Capture& c, const TimeBounds& time, Output& out) {
  if (!c.text) return;
  const TextStore& store = *c.text;
  const auto programs = bpf_programs_within(c, time);
  out.write(fmt::format("text: {}, {}\n", format_plural(pokes_within(c, time), "poke", "pokes"),
                        format_plural(programs.size(), "BPF program", "BPF programs")));
  for (const BpfProgram* p : programs) {
    put_line(out,
             fmt::format("  bpf prog id {} \"{}\" tag {}: {}, {}{}", p->id, p->name, p->tag,
                         format_plural(p->functions.size(), "function", "functions"),
                         format_interval(p->loaded, p->unloaded), p->has_image ? "" : ", no bytes recorded"));
  }
  // A block stream has the pokes, but not the text they were made on: the findings are in its notices.
  std::vector<TextNotice> notices;
  if (!c.blocks)
    std::ranges::copy_if(store.notices(), std::back_inserter(notices),
                         [&](const TextNotice& n) { return n.from <= time.hi && n.until >= time.lo; });
  for (size_t i = 0; i < std::min(notices.size(), kNoticesShown); ++i) {
    put_line(out, fmt::format("  {:x} {}: {}", notices[i].addr,
                              format_interval(notices[i].from, notices[i].until), notices[i].text));
  }
  if (notices.size() > kNoticesShown) {
    out.write(fmt::format("  and {} more\n", format_count(notices.size() - kNoticesShown)));
  }
}

void print_stream_losses(const Capture& c, const TimeBounds& time, Output& out) {
  constexpr size_t kShown = 5;  // of each stream
  const auto is_within = [&](const StreamLoss& loss) {
    return loss.time <= time.hi && (loss.until == kTimeMax ? loss.time : loss.until) >= time.lo;
  };
  for (const Stream& s : c.streams) {
    std::vector<StreamLoss> losses;
    std::ranges::copy_if(s.losses, std::back_inserter(losses), is_within);
    for (size_t i = 0; i < std::min(losses.size(), kShown); ++i) {
      const StreamLoss& loss = losses[i];
      put_line(out, fmt::format("loss: {} at {}, trace offset {:#x}, {}: {} {}", stream_place(s),
                                format_time(loss.time), loss.offset,
                                loss.bytes ? format_size(*loss.bytes) : "size not known",
                                code_text(loss.code), loss.reason));
    }
    if (losses.size() > kShown) {
      out.write(fmt::format("loss: {}: {} more\n", stream_place(s), format_count(losses.size() - kShown)));
    }
  }
}

void print_causes(const Capture& c, const Coverage& coverage, Output& out) {
  if (const std::string starts = coverage.ring_start_text(); !starts.empty()) put_line(out, starts);
  for (const bool errors : {false, true}) {
    bool headed = false;
    for (const auto& [code, cause] : coverage.causes()) {
      if (is_error_code(code) != errors) continue;
      if (!headed) out.write(errors ? "errors by cause:\n" : "losses in the recording:\n");
      headed = true;
      const CodeInfo& info = info_of(code);
      std::string line =
          fmt::format("  {} {}: {}", info.code, info.title, format_plural(cause.count, "time", "times"));
      if (cause.bytes != 0) line += fmt::format(", {} of trace", format_size(cause.bytes));
      if (cause.time != 0) line += fmt::format(", {}", format_duration(cause.time));
      put_line(out, line);
      put_line(out, "    first: " + cause.first);
      put_line(out, fmt::format("    remedy: {}", remedy_of(c, code, cause)));
    }
  }
  // One line for each code; the rest under -v.
  std::map<Code, std::pair<const Notice*, uint64_t>> by_code;
  for (const Notice& n : c.notices) {
    if (n.severity == Notice::Severity::kInfo) continue;
    auto& [first, count] = by_code[n.code];
    if (first == nullptr) first = &n;
    count += n.count;
  }
  if (!by_code.empty()) out.write("notices about the input:\n");
  for (const auto& [code, entry] : by_code) {
    const auto& [first, count] = entry;
    const std::string place = place_text(first->where, first->offset);
    put_line(out, fmt::format("  {} {}: first {}{}{}", code_text(code), format_plural(count, "time", "times"),
                              place, place.empty() ? "" : ": ", first->reason));
    if (!first->hint.empty()) put_line(out, "    remedy: " + first->hint);
  }
}

void print_open_matters(const Capture& c, Output& out) {
  const auto open = open_matters(c);
  if (!open.empty()) out.write("what the recording leaves open:\n");
  for (const OpenFinding& f : open) {
    put_line(out, "  " + open_matter_text(*f.matter));
    put_line(out, "    " + f.evidence);
    if (!f.matter->remedy.empty()) put_line(out, fmt::format("    remedy: {}", f.matter->remedy));
  }
}

}  // namespace asof
