#include "tools/validate/validate_truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/output/format.h"

namespace asof {
namespace {

constexpr const char* kEndOfTrace = "end of trace";  // of CompareResult::missing_by_cause

}  // namespace

bool CpuResult::hash_agrees() const {
  if (!summary) return false;
  if (ips.count == summary->instructions) return ips.hash == summary->ip_hash;
  return ips.count == summary->instructions - summary->trailing &&
         ips.hash == summary->ip_hash_without_trailing;
}

bool CpuResult::nothing_missing() const {
  if (compare.missing == 0) return true;
  const auto at_end = compare.missing_by_cause.find(kEndOfTrace);
  return summary && compare.missing == summary->trailing && at_end != compare.missing_by_cause.end() &&
         at_end->second == compare.missing;
}

bool CpuResult::pass() const {
  const bool complete = nothing_missing() && compare.late == 0;
  return compare.wrong == 0 && nothing_missing() && (!complete || !summary || hash_agrees());
}

bool TruthComparison::open(size_t index, const Stream& stream) {
  if (index == open_stream_) return comparer_ != nullptr;
  close();
  open_stream_ = index;
  auto reader = TruthReader::open(truth_file(directory_, truth_id(stream)));
  if (!reader) {
    error_ = reader.error();
    return false;
  }
  reader_.emplace(std::move(*reader));
  cursor_ = 0;
  comparer_ = std::make_unique<Comparer>([this](TruthRun& run) { return reader_->next(run); },
                                         Comparer::kTruthSlack + capture_.arm64.time_error,
                                         [this](Time t) { return events_.classify(t, cursor_); });
  current_ = CpuResult{};
  current_.id = truth_id(stream);
  return true;
}

void TruthComparison::close() {
  if (!comparer_) return;
  comparer_->finish();
  if (reader_->error()) error_ = reader_->error();
  current_.compare = comparer_->result();
  results_[current_.id] = std::move(current_);
  comparer_.reset();
}

bool TruthComparison::add(const Chunk& chunk, const Stream& stream, const IpHash& ips) {
  if (error_ || !open(chunk.stream, stream)) return !error_;
  current_.ips.append(ips);
  size_t gap = 0;
  const auto gaps_before = [&](size_t position) {
    for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= position; ++gap) {
      comparer_->add_gap(chunk.gaps[gap].code, gap_text(capture_, stream, chunk.gaps[gap]));
    }
  };
  for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
    gaps_before(step.position());
    add_step(*step);
  }
  gaps_before(chunk.steps.size());
  return true;
}

void TruthComparison::add_step(const Step& step) {
  const Block& b = *step.block;
  // The walk lags behind the pipeline, whose blocks do not outlive it: their lengths are kept here, once
  // each.
  auto [lengths, is_new] = lengths_.try_emplace(&b);
  if (is_new) lengths.value().assign(b.lengths, b.lengths + b.count);
  DecodedPiece piece{b.ip, b.size, step.count, lengths.value().data(), step.time, step.confidence, 0};
  if (!is_complete(step)) {
    piece.bytes = 0;
    for (uint32_t i = 0; i < step.count; ++i) piece.bytes += b.lengths[i];
  }
  comparer_->add(piece);
}

Result<void> TruthComparison::finish(const std::vector<TruthId>& ids, Diagnostics& diagnostics) {
  close();
  if (error_) return std::unexpected(*error_);
  for (const TruthId id : ids) {  // without a stream in the capture: all of their truth is missing
    if (results_.contains(id)) continue;
    auto reader = TruthReader::open(truth_file(directory_, id));
    if (!reader) return std::unexpected(reader.error());
    cursor_ = 0;
    Comparer comparer([&](TruthRun& run) { return reader->next(run); }, Comparer::kTruthSlack,
                      [this](Time t) { return events_.classify(t, cursor_); });
    comparer.finish();
    if (reader->error()) return std::unexpected(*reader->error());
    results_[id].id = id;
    results_[id].compare = comparer.result();
  }
  const auto summary = read_truth_summary(directory_);
  if (!summary) {
    diagnostics.error(summary.error());
    return {};
  }
  for (auto& [id, cpu] : results_) {
    if (summary->contains(id)) cpu.summary = summary->at(id);
  }
  return {};
}

std::string difference_text(const Capture& capture, const LiveEvents& events, TruthId id,
                            const Difference& d) {
  const auto name = [&](Addr a) {
    if (a == 0) return std::string("nothing");
    const auto at = is_kernel_address(a) ? capture.symbols.find(kKernelSpace, a, d.time) : std::nullopt;
    return at ? fmt::format("{:x} {}+{:#x}", a, at->symbol->shown(), at->offset) : fmt::format("{:x}", a);
  };
  static constexpr std::array<const char*, 3> kNames{"wrong", "missing", "late text"};
  std::string text = fmt::format("{} {} {}: {} from {}", kNames[static_cast<size_t>(d.kind)], truth_name(id),
                                 format_time(d.time), format_plural(d.count, "instruction", "instructions"),
                                 name(d.kind == Difference::Kind::kWrong ? d.decoded_ip : d.truth_ip));
  if (d.kind == Difference::Kind::kWrong) {
    text += fmt::format(", where {} ran", name(d.truth_ip));
  } else if (d.decoded_ip != 0) {
    text += fmt::format(", decoding goes on at {}", name(d.decoded_ip));
  }
  text += d.gap.empty() ? "; no gap reported" : "; " + d.gap;
  if (const std::string near = events.describe(d.time); !near.empty()) text += "; " + near;
  return text;
}

void check_truth(const std::map<TruthId, CpuResult>& results, const Capture& capture,
                 const LiveEvents& events, std::vector<Check>& out) {
  Check truth{.topic = "truth"};
  uint64_t right = 0, wrong = 0, missing = 0, late = 0, sure = 0, timed = 0;
  bool pass = true;
  std::vector<Time> errors;
  for (const auto& [id, cpu] : results) {
    const CompareResult& r = cpu.compare;
    right += r.right, wrong += r.wrong, missing += r.missing, late += r.late, timed += r.timed;
    sure += r.wrong_by_confidence[static_cast<size_t>(Confidence::kCertain)] +
            r.wrong_by_confidence[static_cast<size_t>(Confidence::kProved)];
    errors.insert(errors.end(), r.time_errors.begin(), r.time_errors.end());
    pass = pass && cpu.pass();
    for (const Difference& d : r.places) {
      if (!cpu.pass() && truth.places.size() < Check::kMaxPlaces)
        truth.places.push_back(difference_text(capture, events, id, d));
    }
  }
  truth.result = pass ? Check::Result::kPass : Check::Result::kFail;
  truth.answer =
      fmt::format("of what ran {} right, {} wrong ({} of them called certain or proved), {} missing",
                  format_plural(right, "instruction is", "instructions are"), format_count(wrong),
                  format_count(sure), format_count(missing));
  if (late != 0) truth.answer += fmt::format(", {} have no bytes anywhere", format_count(late));
  if (!pass && wrong + missing == 0) truth.answer += "; but the hash over all addresses differs";
  out.push_back(std::move(truth));

  constexpr uint64_t kEnough = 16;
  constexpr uint64_t kShare = 50;  // one in this many may be off: an observer has errors, too
  if (timed < kEnough) return;
  Check clock{.topic = "clock"};
  clock.result = errors.size() * kShare <= timed ? Check::Result::kPass : Check::Result::kFail;
  clock.answer = fmt::format("of {} looked at, {} have another time than they ran at",
                             format_plural(timed, "place", "places"), format_count(errors.size()));
  if (const Time open = capture.arm64.time_error; open > arm64::kCoarseClock)
    clock.answer +=
        fmt::format(", as far as a clock exact to {} shows", format_duration(static_cast<uint64_t>(open)));
  if (clock.result == Check::Result::kFail) {
    std::ranges::nth_element(errors, errors.begin() + static_cast<long>(errors.size() / 2));
    const Time by = errors[errors.size() / 2];
    clock.answer +=
        fmt::format(": the trace's clock is about {} {}",
                    format_duration(static_cast<uint64_t>(std::abs(by))), by > 0 ? "ahead" : "behind");
  }
  out.push_back(std::move(clock));
}

}  // namespace asof
