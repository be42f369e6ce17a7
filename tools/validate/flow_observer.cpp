// FlowObserver: what validation needs to know of each chunk, besides the comparison with a truth.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/output/diagnostics.h"
#include "tools/output/format.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

bool never_changes(const Block& b) { return b.from == kTimeMin && b.until == kTimeMax; }

}  // namespace

std::string_view result_name(Check::Result r) {
  static constexpr std::array<std::string_view, 4> kNames{"pass", "note", "skip", "fail"};
  return kNames[static_cast<size_t>(r)];
}

FlowObserver::FlowObserver(const Capture& capture, const LiveEvents& events)
    : capture_(capture), events_(events) {
  // Each is called for every event of the CPU and of the task (kernel/events/core.c perf_iterate_sb(),
  // perf_iterate_ctx()), also for those that want no such record, are without a ring or find theirs full. A
  // record is written only after perf_output_begin(), and then perf_output_end() is called.
  for (const auto& [name, anchor] : {std::pair{"perf_event_switch_output", Anchor::kSwitch},
                                     std::pair{"perf_event_text_poke_output", Anchor::kTextPoke}}) {
    for (const Symbol* s : capture.symbols.named(name)) {
      if (s->space == kKernelSpace) anchors_[s->range.begin] = {anchor, s->range.end};
    }
  }
  for (const Symbol* s : capture.symbols.named("perf_output_end")) {
    if (s->space == kKernelSpace) written_.push_back(s->range.begin);
  }
}

// The writer that holds `ip`.
const FlowObserver::Writer* FlowObserver::writer_at(Addr ip) const {
  const auto after = anchors_.upper_bound(ip);
  if (after == anchors_.begin()) return nullptr;
  const Writer& w = std::prev(after)->second;
  return ip < w.end ? &w : nullptr;
}

void FlowObserver::find_visits(const Chunk& chunk, const Stream& stream, Prepared& out) const {
  if (anchors_.empty() || written_.empty()) return;
  const Block* previous = nullptr;
  std::array<Time, kAnchors> entered;  // by Anchor: time of the last entry, until it has written
  entered.fill(kTimeMin);
  size_t open = 0;  // visits whose end is not known yet
  size_t gap = 0;
  for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
    for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= step.position(); ++gap) {
      entered.fill(kTimeMin);
      previous = nullptr;
    }
    for (; open < out.visits.size() && step->time > out.visits[open].time.hi; ++open)
      out.visits[open].time.hi = step->time;
    const Block* const from = std::exchange(previous, step->block);
    const Addr ip = step->block->ip;
    if (step->block->space != kKernelSpace || step->time == kTimeMin) continue;
    if (const auto entry = anchors_.find(ip); entry != anchors_.end()) {
      entered[static_cast<size_t>(entry->second.anchor)] = step->time;
    } else if (from != nullptr && std::ranges::find(written_, ip) != written_.end()) {
      const Writer* const w = writer_at(from->ip);
      if (w == nullptr) continue;
      const Time since = std::exchange(entered[static_cast<size_t>(w->anchor)], kTimeMin);
      if (since != kTimeMin) out.visits.push_back({w->anchor, stream.cpu, {since, step->time}});
    }
  }
  out.visits.resize(open);
}

void FlowObserver::prepare(const Chunk& chunk, const Stream& stream, Prepared& out) const {
  count_steps(chunk, out.tally);
  const auto& sure = out.tally.by_confidence;
  if (std::any_of(sure.begin() + 1, sure.end(), [](uint64_t n) { return n != 0; })) out.constant = false;
  const auto codes = chunk.steps.codes();
  const auto& loose = chunk.steps.loose();
  for (size_t at = 0, i = 0; i < loose.size(); ++at) {
    if (codes[at] != StepCode::kLoose) continue;
    if (!never_changes(*loose[i].block)) {
      out.constant = false;
      out.versioned.push_back({at, i});
    }
    ++i;
  }
  find_visits(chunk, stream, out);
}

void FlowObserver::add_gap(const Chunk& chunk, const Stream& stream, const Gap& gap) {
  FlowFacts::Cause& cause = facts_.gaps[gap.code];
  ++cause.count;
  if (family_of(gap.code) == CodeFamily::kFlow && facts_.disagreements.size() < FlowFacts::kMostDisagreements)
    facts_.disagreements.emplace_back(chunk.stream, chunk.segment);
  if (cause.places.size() == Check::kMaxPlaces || !is_error_code(gap.code)) return;
  const Time time = known_time(gap.time);
  std::string text = fmt::format("{} {}", code_text(gap.code), gap_text(capture_, stream, gap));
  if (is_kernel_address(gap.ip)) {
    const Cell cell = capture_.text->cell(kKernelSpace, gap.ip);
    for (const Version& v : cell.possible_in({time, time})) {
      if (v.bytes == nullptr) continue;
      text += fmt::format("; text there is of {}", format_origin(*capture_.text, v.origin));
      break;
    }
  }
  if (versioned_stream_ == chunk.stream) {
    const std::string symbol = symbol_text(capture_, stream, versioned_ip_, time);
    text += fmt::format("; the last changing text before it was {:x}{} as {} left it", versioned_ip_,
                        symbol.empty() ? "" : fmt::format(" ({})", symbol),
                        format_origin(*capture_.text, versioned_origin_));
  }
  if (const std::string near = events_.describe(time); !near.empty()) text += "; " + near;
  cause.places.push_back(std::move(text));
}

void FlowObserver::count_doubt(const Step& step, const Stream& stream) {
  const auto known = facts_.contradicted.find(step.block->ip);
  if (step.confidence != Confidence::kContradiction) {
    if (known != facts_.contradicted.end()) ++known->second.good_since;
    return;
  }
  if (known == facts_.contradicted.end() && facts_.contradicted.size() == FlowFacts::kMostDoubts) return;
  FlowFacts::Doubt& doubt = facts_.contradicted[step.block->ip];
  if (doubt.count++ == 0) doubt.time = step.time, doubt.cpu = stream.cpu;
  doubt.good += std::exchange(doubt.good_since, 0);
}

void FlowObserver::add(const Chunk& chunk, const Stream& stream, Prepared& prepared) {
  SegmentFacts& segment = facts_.segments[{chunk.stream, chunk.segment}];
  segment.ips.append(prepared.tally.ips);
  segment.constant = segment.constant && prepared.constant && chunk.gaps.empty();
  for (size_t c = 0; c < facts_.by_confidence.size(); ++c)
    facts_.by_confidence[c] += prepared.tally.by_confidence[c];
  for (const Event& e : chunk.events) {
    facts_.sync_points += e.kind == EventKind::kPsb ? 1 : 0;
    facts_.interrupted += e.kind == EventKind::kAsync && e.ip != 0 ? 1 : 0;
  }
  const size_t room = FlowFacts::kMostVisits - facts_.visits.size();
  facts_.visits.insert(facts_.visits.end(), prepared.visits.begin(),
                       prepared.visits.begin() + static_cast<long>(std::min(room, prepared.visits.size())));
  auto next = prepared.versioned.begin();
  const auto walk_to = [&](size_t until) {
    for (; next != prepared.versioned.end() && next->position < until; ++next) {
      const Step& s = chunk.steps.loose()[next->loose];
      versioned_stream_ = chunk.stream;
      versioned_ip_ = s.block->ip;
      versioned_origin_ = s.block->origin;
      count_doubt(s, stream);
    }
  };
  for (const Gap& gap : chunk.gaps) {
    walk_to(gap.step);
    add_gap(chunk, stream, gap);
  }
  walk_to(SIZE_MAX);
}

}  // namespace asof
