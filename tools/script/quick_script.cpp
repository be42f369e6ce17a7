#include "tools/script/quick_script.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/pipeline/stream_choice.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/merge.h"
#include "tools/script/quick_records.h"

namespace asof {
namespace {

// Of one stream, up to where it has been read.
struct QuickStream {
  size_t index;
  QuickRecords records;
  bool ended = false;
};

class QuickScript {
 public:
  QuickScript(const Capture& capture, const ScriptFormat& format, const ScriptSelection& selection,
              Output& out)
      : capture_(capture),
        format_(format),
        out_(out),
        printer_(capture, format, selection, [&out](std::string_view text) { out.write(text); }),
        side_band_(capture, format.side_band),
        merger_(capture.streams.size() + 1, [this](std::string_view records) { printer_.take(records); }) {
    printer_.show(side_band_);
  }

  // False: nothing of it is Intel PT.
  bool open(const Arch& arch, const PipelineOptions& wanted) {
    for (size_t i = 0; i < capture_.streams.size(); ++i) {
      const Stream& stream = capture_.streams[i];
      if (!chosen_range(stream, i, wanted)) continue;
      if (auto packets = arch.packets(stream, i))
        streams_.push_back({i, QuickRecords(stream, std::move(packets), format_.itrace)});
    }
    return !streams_.empty();
  }

  void run() {
    while (!interrupted() && !out_.closed()) {
      // The one that is behind: what it has is before all that follows.
      const auto next = std::ranges::min_element(streams_, {}, [](const QuickStream& s) {
        return std::pair{s.ended, s.records.now()};
      });
      if (next->ended) break;
      constexpr uint64_t kAtOnce = 4096;
      TimedText records;
      next->ended = !next->records.read(kAtOnce, records);
      const Time behind = all_before();
      side_band_.add_to(merger_, capture_.streams.size(), behind);
      merger_.add(next->index, std::move(records), behind);
    }
    side_band_.add_to(merger_, capture_.streams.size(), kTimeMax);
    merger_.finish();
    out_.flush();
  }

  void tell(Diagnostics& diagnostics) {
    for (const Notice& n : printer_.take_notices()) diagnostics.notice(n);
    uint64_t packets = 0;
    for (const QuickStream& s : streams_) packets += s.records.packets();
    diagnostics.note(fmt::format("{} read, no code walked{}: what ran between these addresses is not known{}",
                                 format_plural(packets, "packet", "packets"),
                                 format_.itrace.quick > 1 ? ", of PSB+ alone" : "",
                                 interrupted() ? " (interrupted)" : ""));
    if (losses() != 0)
      diagnostics.note(fmt::format("trace is missing at {}; 'asof packets --type LOST' lists them",
                                   format_plural(losses(), "place", "places")));
    if (bad() == 0) return;
    diagnostics.warn({Code::kBadPacket, capture_.path, Error::kNoOffset,
                      fmt::format("{} without a packet", format_plural(bad(), "place", "places")),
                      "'asof packets --type BAD --raw' lists them"});
  }
  uint64_t bad() const { return sum(&QuickRecords::bad); }

 private:
  uint64_t losses() const { return sum(&QuickRecords::losses); }
  uint64_t sum(uint64_t (QuickRecords::*of)() const) const {
    uint64_t n = 0;
    for (const QuickStream& s : streams_) n += (s.records.*of)();
    return n;
  }
  Time all_before() const {
    Time t = kTimeMax;
    for (const QuickStream& s : streams_)
      if (!s.ended) t = std::min(t, s.records.now());
    return t;
  }

  const Capture& capture_;
  const ScriptFormat& format_;
  Output& out_;
  std::vector<QuickStream> streams_;
  ScriptPrinter printer_;
  SideBandLines side_band_;
  Merger merger_;
};

}  // namespace

ExitCode print_quick(const Capture& capture, const DecodeChoice& choice, const ScriptFormat& format,
                     const ScriptSelection& selection, Output& out, Diagnostics& diagnostics) {
  if (code_machine(capture.machine) != CodeMachine::kX86 || capture.blocks) {
    diagnostics.error({Code::kBadOption, capture.path, Error::kNoOffset,
                       "--itrace: letter 'q' is for packets of Intel PT, which this capture has not",
                       "'asof packets' lists those of CoreSight; without q the flow is decoded"});
    return kExitUsage;
  }
  const auto arch = capture.arch();
  if (!arch) {
    diagnostics.error(arch.error());
    return kExitInput;
  }
  PipelineOptions wanted;
  wanted.cpus = choice.pipeline.cpus;
  wanted.tids = selection.tasks.tids;
  QuickScript script(capture, format, selection, out);
  if (!script.open(**arch, wanted)) return kExitOk;
  script.run();
  if (!flush_output(out, diagnostics)) return kExitInput;
  if (!out.closed()) script.tell(diagnostics);
  if (interrupted()) return kExitInterrupted;
  return script.bad() > choice.max_errors || (choice.strict && script.bad() != 0) ? kExitErrors : kExitOk;
}

}  // namespace asof
