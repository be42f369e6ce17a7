#include "tools/decode/decode_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/calls/cycle_walk.h"
#include "tools/cli/task_options.h"
#include "tools/output/chunk_window.h"
#include "tools/output/format.h"
#include "tools/output/tally.h"

namespace asof {

namespace {

// Functions and files that are not there at all are told before.
Error nothing_ran(const Selection& s) {
  std::vector<std::string_view> options;
  if (!s.symbols.empty()) options.emplace_back("--symbols");
  if (!s.dsos.empty()) options.emplace_back("--dsos");
  if (!s.addresses.empty()) options.emplace_back("--addr-range");
  return {Code::kBadOption, "", Error::kNoOffset,
          fmt::format("of what {} selects, nothing ran", fmt::join(options, " and ")),
          "'asof report' shows what ran"};
}

}  // namespace

struct DecodeLines::Printed : ChunkConsumer::Prepared {
  TimedText lines;
  DecodePrinter::Last last;
  uint64_t instructions = 0, selected = 0;
  std::optional<Chunk> part;  // what is counted, if the chunk reaches beyond the time that was asked for
  uint64_t bytes() const override {
    return sizeof *this + lines.text.capacity() + lines.marks.capacity() * sizeof(TimedText::Mark);
  }
};

TimedText LinePool::take() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) return {};
  TimedText lines = std::move(free_.back());
  free_.pop_back();
  bytes_ -= lines.text.capacity();
  return lines;
}

void LinePool::give(TimedText&& lines) {
  lines.text.clear();
  lines.marks.clear();
  const std::scoped_lock lock(mutex_);
  if (bytes_ + lines.text.capacity() > kMaxBytes) return;
  bytes_ += lines.text.capacity();
  free_.push_back(std::move(lines));
}

DecodeLines::DecodeLines(const DecodeJob& job, Output& out, Diagnostics& diagnostics,
                         const DecodeChoice& choice)
    : job_(&job),
      out_(out),
      diagnostics_(diagnostics),
      max_errors_(choice.max_errors),
      coverage_(job.capture, choice.pipeline),
      last_(job.capture.streams.size()),
      merger_(
          job.capture.streams.size(), [&](std::string_view text) { out_.write(text); }, Merger::kDefaultLimit,
          [&](TimedText&& lines) { pool_.give(std::move(lines)); }),
      printers_(std::make_unique<tbb::enumerable_thread_specific<DecodePrinter>>(
          [&job] { return DecodePrinter(job); })) {}

DecodeLines::~DecodeLines() = default;

void DecodeLines::move_to(const DecodeJob& job, const PipelineOptions& options, bool recording) {
  LiveConsumer::move_to(job, options, recording);
  job_ = &job;
  coverage_.move_to(job.capture, options);
  last_.resize(std::max(last_.size(), job.capture.streams.size()));
  merger_.have_streams(job.capture.streams.size());
  printers_ =
      std::make_unique<tbb::enumerable_thread_specific<DecodePrinter>>([&job] { return DecodePrinter(job); });
}

// What comes after the start of the last segment waits for other streams otherwise.
void DecodeLines::give_out(bool all) {
  if (all) merger_.finish();
  out_.flush();
}

std::unique_ptr<ChunkConsumer::Prepared> DecodeLines::prepare(const Chunk& chunk, const Stream& stream) {
  auto printed = std::make_unique<Printed>();
  printed->lines = pool_.take();
  printed->part = chunk_within(chunk, job_->selection.time);
  Tally tally;
  count_steps(printed->part ? *printed->part : chunk, tally);
  printed->instructions = tally.ips.count;
  DecodePrinter& printer = printers_->local();
  printed->last = printer.print(chunk, stream, printed->lines);
  printed->selected = printer.take_printed();
  return printed;
}

std::unique_ptr<ChunkConsumer::Prepared> DecodeLines::keep(Prepared* prepared) {
  return std::make_unique<Printed>(std::move(static_cast<Printed&>(*prepared)));
}

void DecodeLines::write(Chunk& chunk, const Stream& stream, Prepared* prepared) {
  auto& printed = static_cast<Printed&>(*prepared);
  coverage_.add(chunk, printed.instructions);
  selected_ += printed.selected;
  any_cycles_ = any_cycles_ || has_cycles(chunk);
  DecodePrinter& printer = printers_->local();
  for (const Gap& gap : chunk.gaps) {
    if (printer.selected(gap, stream)) diagnostics_.gap(job_->capture, stream, gap);
  }
  TimedText seam;
  const auto after = printer.seam(last_[chunk.stream], chunk, stream, seam);
  any_lines_ = any_lines_ || !printed.lines.text.empty() || !seam.text.empty();
  last_[chunk.stream] = chunk.steps.empty() ? after : printed.last;
  merger_.add(chunk.stream, std::move(seam), chunk.segment_start);
  merger_.add(chunk.stream, std::move(printed.lines), chunk.segment_start);
  // While it is recording, a signal may be for the recorder; whoever decodes step by step looks at it.
  const bool interrupt = !recording() && interrupted();
  if (interrupt || out_.closed() || coverage_.errors() > max_errors_) stop();
}

// The flow may go on from the last blocks in the next run.
void DecodeLines::finished(const std::exception_ptr& error) {
  LiveConsumer::finished(error);
  kept_.resize(last_.size());
  for (size_t i = 0; i < last_.size(); ++i) {
    if (!last_[i] || (kept_[i] && last_[i]->block == &kept_[i]->block)) continue;
    const Block& b = *last_[i]->block;
    kept_[i] = std::make_unique<KeptBlock>(KeptBlock{b, std::vector<uint8_t>(b.bytes, b.bytes + b.size),
                                                     std::vector<uint8_t>(b.lengths, b.lengths + b.count)});
    kept_[i]->block.bytes = kept_[i]->bytes.data();
    kept_[i]->block.lengths = kept_[i]->lengths.data();
    last_[i]->block = &kept_[i]->block;
  }
}

void DecodeLines::finish() {
  merger_.finish();
  const Selection& s = job_->selection;
  if (job_->format.wants(kKindInstructions) && (s.tasks.any() || s.by_place()))
    coverage_.selected(fmt::format("{} of them selected", format_count(selected_)), selected_ != 0);
  out_.flush();
  if (job_->lines) {
    for (const Notice& n : job_->lines->take_notices()) diagnostics_.notice(n);
  }
  if (job_->format.wants(kKindCycles) && !any_cycles_) diagnostics_.warn(no_cycles(job_->capture));
  if (job_->selection.by_place() && !any_lines_ && !interrupted() && !out_.closed())
    diagnostics_.warn(nothing_ran(job_->selection));
  if (s.tasks.any() && !s.by_place() && !any_lines_ && !interrupted() && !out_.closed())
    warn_of_idle_tasks(s.tasks, diagnostics_);
  if (merger_.forced() != 0) {
    diagnostics_.note(
        "the order of lines over CPUs is approximate in places: a segment was too long to hold back the "
        "others");
  }
}

}  // namespace asof
