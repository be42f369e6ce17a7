// Validation: whether the trace agrees with the text, and whether there is text for all that ran.
#include <fmt/format.h>

#include <algorithm>

#include "tools/output/diagnostics.h"
#include "tools/output/error_table.h"
#include "tools/output/format.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

// The causes that `wanted` selects: how many, and the first locations.
template <class Wanted>
uint64_t gather(const FlowFacts& flow, std::vector<std::string>& places, Wanted wanted) {
  uint64_t count = 0;
  for (const auto& [code, cause] : flow.gaps) {
    if (!wanted(code)) continue;
    count += cause.count;
    for (const std::string& p : cause.places) {
      if (places.size() < Check::kMaxPlaces) places.push_back(p);
    }
  }
  return count;
}

// An address that the trace names, and the walk did not reach.
bool is_address_missed(Code code) {
  return code == Code::kInterruptNotReached || code == Code::kSyncPointNotReached;
}

// What lies before a sync point: the start of a buffer that wrapped, or what follows a loss. No packet of it
// was read, so nothing disagrees.
bool is_unread(Code code) { return code == Code::kNoSyncPoint; }

// What was not recorded disagrees with nothing either.
bool is_unrecorded(Code code) { return code == Code::kNoTntPackets || code == Code::kNoBranchPackets; }

bool is_disagreement(Code code) {
  const CodeFamily family = family_of(code);
  return family == CodeFamily::kFlow ||
         (family == CodeFamily::kData && !is_unread(code) && !is_unrecorded(code));
}

// Why a capture with trace has no instructions.
std::string_view why_nothing(const Capture& capture) {
  if (capture.x86.no_branches) return ": the trace was recorded without branch packets (E-DATA-012)";
  if (capture.x86.no_tnt) return ": the trace was recorded without TNT packets (E-DATA-011)";
  return "";
}

// A return to a call that lies in a gap without text or trace is no disagreement: what is missing has its own
// topic, and this follows from it.
bool returns_into_gaps(const FlowFacts& flow) {
  bool missing = false;
  bool other = false;
  for (const auto& [code, cause] : flow.gaps) {
    const CodeFamily family = family_of(code);
    missing = missing || family == CodeFamily::kText || family == CodeFamily::kLost;
    other = other || (code != Code::kReturnWithoutItsCall && is_disagreement(code));
  }
  return missing && !other;
}

// Sites none of whose versions the trace allows: there a change is missing, or happened at another time.
void add_doubtful(const ValidationInput& in, std::vector<std::string>& places) {
  std::vector<std::pair<Addr, FlowFacts::Doubt>> all(in.flow.contradicted.begin(),
                                                     in.flow.contradicted.end());
  std::ranges::stable_sort(all, std::greater<>(),
                           [](const auto& d) { return std::pair(d.second.share(), d.second.count); });
  for (const auto& [ip, doubt] : all) {
    if (places.size() == 2) break;
    const auto symbol = in.capture.symbols.find(kKernelSpace, ip, doubt.time);
    const std::string near = in.events.describe(doubt.time);
    places.push_back(
        fmt::format("no known version of {:x}{} fits the trace, {} of {}, first on cpu {} at {}{}", ip,
                    symbol ? fmt::format(" ({}+{:#x})", symbol->symbol->shown(), symbol->offset) : "",
                    format_count(doubt.count), format_plural(doubt.count + doubt.good, "visit", "visits"),
                    doubt.cpu, format_time(doubt.time), near.empty() ? "" : ", " + near));
  }
}

}  // namespace

void check_flow(const ValidationInput& in, std::vector<Check>& out) {
  const FlowFacts& f = in.flow;
  Check flow{.topic = "flow"};
  add_doubtful(in, flow.places);
  const bool returns_follow = returns_into_gaps(f);
  const uint64_t disagree = gather(f, flow.places, [&](Code code) {
    if (code == Code::kReturnWithoutItsCall && returns_follow) return false;
    return is_disagreement(code) && !is_address_missed(code);
  });
  const uint64_t contradictions = f.by_confidence[static_cast<size_t>(Confidence::kContradiction)];
  flow.result = disagree + contradictions == 0 ? Check::Result::kPass : Check::Result::kFail;
  flow.answer = disagree == 0
                    ? "trace and text agree everywhere"
                    : fmt::format("trace and text disagree {}", format_plural(disagree, "time", "times"));
  if (contradictions != 0)
    flow.answer += fmt::format(", {} that the trace contradicts",
                               format_plural(contradictions, "instruction", "instructions"));
  if (flow.result == Check::Result::kFail) {
    if (const std::string shift = find_clock_shift(in); !shift.empty()) flow.answer += "; " + shift;
  }
  out.push_back(std::move(flow));

  Check sync{.topic = "sync"};
  const uint64_t missed = gather(f, sync.places, is_address_missed);
  sync.result = missed == 0 ? Check::Result::kPass : Check::Result::kFail;
  sync.answer = fmt::format(
      "{} and {}: {}", format_plural(f.sync_points, "sync point", "sync points"),
      format_plural(f.interrupted, "interrupt or exception", "interrupts and exceptions"),
      missed == 0 ? "each address they name was met"
                  : fmt::format("{} not met", format_plural(missed, "more address that they name was",
                                                            "more addresses that they name were")));
  out.push_back(std::move(sync));

  Check sure{.topic = "confidence"};
  uint64_t all = 0;
  for (const uint64_t n : f.by_confidence) all += n;
  const uint64_t doubt = f.by_confidence[static_cast<size_t>(Confidence::kAmbiguous)];
  sure.result = doubt == 0 ? Check::Result::kPass : Check::Result::kNote;
  sure.answer = fmt::format(
      "of {}, {}", format_plural(all, "instruction", "instructions"),
      doubt == 0
          ? "none is ambiguous"
          : fmt::format("{} are ambiguous: other text than is shown may have run", format_count(doubt)));
  if (all == 0) {
    sure.result = Check::Result::kFail;
    sure.answer = fmt::format("no instruction was decoded{}", why_nothing(in.capture));
  }
  out.push_back(std::move(sure));
}

void check_coverage(const ValidationInput& in, std::vector<Check>& out) {
  Check text{.topic = "text"};
  const uint64_t missing =
      gather(in.flow, text.places, [](Code code) { return family_of(code) == CodeFamily::kText; });
  const bool returns_follow = returns_into_gaps(in.flow);
  uint64_t without_text = 0;
  uint64_t lost = 0;
  uint64_t losses = 0;
  Check loss{.topic = "losses"};
  for (const auto& [code, cause] : in.coverage.causes()) {
    if (family_of(code) == CodeFamily::kText || (code == Code::kReturnWithoutItsCall && returns_follow))
      without_text += cause.time;
    if (family_of(code) != CodeFamily::kLost) continue;
    lost += cause.time;
    losses += cause.count;
    if (loss.places.size() < Check::kMaxPlaces)
      loss.places.push_back(fmt::format("{} {}", code_text(code), cause.first));
  }
  // Behind the last byte of a stream only trace that was announced is a gap.
  for (const Stream& stream : in.capture.streams) {
    for (const StreamLoss& l : stream.losses) {
      if (l.offset < stream.end() || l.code == Code::kTraceBytesMissing) continue;
      ++losses;
      if (loss.places.size() < Check::kMaxPlaces)
        loss.places.push_back(fmt::format("{} {} at its end: {}", code_text(l.code), stream.name, l.reason));
    }
  }
  const uint64_t traced = in.coverage.traced_ns() - std::min(in.coverage.traced_ns(), lost);
  const double percent = traced == 0 ? (missing == 0 ? 100.0 : 0.0)
                                     : 100.0 * static_cast<double>(traced - std::min(traced, without_text)) /
                                           static_cast<double>(traced);
  text.result = missing == 0                 ? Check::Result::kPass
                : percent >= in.min_coverage ? Check::Result::kNote
                                             : Check::Result::kFail;
  if (missing == 0) {
    text.answer = "all code that ran has bytes";
  } else {
    text.answer = fmt::format("code without bytes ran {}; ", format_plural(missing, "time", "times"));
    text.answer += traced == 0 ? std::string("without times nothing shows how much that is")
                               : fmt::format("{:.3f} % of the time has text, wanted is {} %",
                                             floored_percent(percent, 3), in.min_coverage);
  }
  out.push_back(std::move(text));

  const uint64_t unread = gather(in.flow, loss.places, is_unread);
  const bool early = early_end(in.capture) != nullptr;
  loss.result = losses + unread == 0 && !early ? Check::Result::kPass : Check::Result::kNote;
  loss.answer = losses == 0
                    ? early ? "what trace was behind the end of the file is not known" : "no trace was lost"
                    : fmt::format("trace was lost {} while recording, {}; nothing is said about that time",
                                  format_plural(losses, "time", "times"), format_duration(lost));
  if (unread != 0)
    loss.answer += fmt::format("; {} of trace without a sync point in front",
                               format_plural(unread, "stretch", "stretches"));
  out.push_back(std::move(loss));
}

}  // namespace asof
