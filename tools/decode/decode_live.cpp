#include "tools/decode/decode_live.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "decoder/live/live_input.h"
#include "decoder/live/same_past.h"
#include "decoder/live/settling.h"
#include "decoder/pipeline/continued.h"
#include "tools/cli/decode_run.h"
#include "tools/decode/decode_blocks.h"
#include "tools/decode/decode_lines.h"
#include "tools/output/format.h"
#include "tools/output/interrupt.h"

namespace asof {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

uint64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) << 10U;
}

class LiveDecode {
 public:
  LiveDecode(LiveRequest& request, Output& out, Diagnostics& diagnostics, LiveInput& input)
      : request_(request),
        out_(out),
        diagnostics_(diagnostics),
        input_(input),
        is_file_(request.input.input != "-"),
        settling_(request.choice.pipeline, is_file_),
        waits_for_(request.window_needs_end ? "percentages of the time are known at the end" : "") {}

  ExitCode run() {
    LiveInput::State state;
    while (!(state = wait()).ended && !stopped()) take(state);
    if (stopped()) return finish_early();
    if (state.failure) {
      diagnostics_.error(*state.failure);
      return kExitInput;
    }
    return finish(state);
  }

 private:
  // The recording as far as it is there, and what is made of it.
  struct View {
    View(Capture c, const LiveRequest& request)
        : capture(std::move(c)), job(capture, request.format, request.selection) {}
    Capture capture;
    DecodeJob job;
  };

  bool waits_for_text() const { return given_ && given_->text_missing(); }
  bool stopped() const {
    forget_sigint();
    return interrupted() || out_.closed() || (given_ && given_->stopped() && !waits_for_text());
  }

  // For a round that was not looked at, and longer where opening takes long, so that no more than a third of the time
  // goes into it.
  LiveInput::State wait() {
    constexpr milliseconds kLook{200};
    for (;;) {
      const auto pause = std::chrono::duration_cast<milliseconds>(not_before_ - Clock::now());
      const bool pausing = pause > milliseconds(0);
      const LiveInput::State state =
          input_.wait(pausing ? UINT64_MAX : rounds_, pausing ? std::min(pause, kLook) : kLook);
      if (state.ended || stopped() || (!pausing && state.is_pipe && state.rounds > rounds_)) return state;
    }
  }

  void take(const LiveInput::State& state) {
    const auto begin = Clock::now();
    rounds_ = state.rounds;
    if (request_.window_needs_end) return;
    FileBytes::set_standard_input(input_.fd(), state.round_end, true);
    auto capture = open_capture("-", request_.input.capture);
    if (!capture || without_trace(*capture)) return;
    if (!request_.input.no_demangle) capture->symbols.show(NameStyle::kWithParameters);
    auto view = std::make_unique<View>(*std::move(capture), request_);
    compare(view->capture, false);
    if (waits_for_text()) return;
    const Settling::Step step = settling_.step(view->capture);
    not_before_ = Clock::now() + 2 * (Clock::now() - begin);
    waits_for_ = step.waits_for;
    if (step.any) {
      decode(std::move(view), step);
      for (const FileRange& r : settling_.spent(view_->capture)) input_.discard(r.begin, r.end);
    }
    measure(step, state);
  }

  void decode(std::unique_ptr<View> view, const Settling::Step& step) {
    move_to(*view, step.options, true);
    view_ = std::move(view);
    given_until_ = step.until;
    ++steps_;
    const auto done =
        continue_pipeline(view_->capture, step.options, step.before, ChunkOrder::kByTime, *given_);
    if (!done) diagnostics_.error(done.error());
    given_->give_out(!waits_for_text() && step.reached > request_.selection.time.hi);
    if (!waits_for_text()) return;
    for (size_t i = 0; i < view_->capture.streams.size(); ++i)
      settling_.ends_with(view_->capture, i, given_->reached()[i].segment, given_->reached()[i].start);
  }

  void move_to(const View& view, const PipelineOptions& options, bool recording) {
    if (!given_) given_ = consumer(view, recording);
    given_->move_to(view.job, options, recording);
  }

  std::unique_ptr<LiveConsumer> consumer(const View& view, bool recording) {
    DecodeChoice none = request_.choice;
    none.pipeline.ranges.emplace();
    if (!request_.blocks) return std::make_unique<DecodeLines>(view.job, out_, diagnostics_, none);
    if (!recording) return std::make_unique<BlocksConsumer>(view.capture, out_, none, false);
    return std::make_unique<BlocksConsumer>(view.capture, out_, none, blocks::BlockWriter::Growing());
  }

  // What was given out was made of view_.
  // `now` is of the temporary file, if not `finished`.
  void compare(const Capture& now, bool finished) {
    if (!view_ || changed_) return;
    auto difference = past_difference(view_->capture, now, given_until_);
    if (!difference && !settling_.same_trace(view_->capture, now, !(finished && is_file_)))
      difference = "what trace is where";
    if (!difference) return;
    changed_ = true;
    diagnostics_.error(
        {Code::kLateRecords, now.path, Error::kNoOffset,
         fmt::format("records after {} change {}: what was given out before that time may not be what the "
                     "whole recording gives",
                     format_time(given_until_), *difference),
         "decode the whole recording"});
  }

  void measure(const Settling::Step& step, const LiveInput::State& state) {
    const uint64_t given = settling_.given_bytes();
    most_bytes_ = std::max(most_bytes_, state.trace - std::min(state.trace, given));
    reached_ = step.reached;
    measure_time(step.newest);
  }

  void measure_time(Time newest) {
    if (settling_.given_bytes() == 0 || newest <= reached_ || reached_ == kTimeMin) return;
    most_time_ = std::max(most_time_, static_cast<uint64_t>(newest - reached_));
  }

  ExitCode finish(const LiveInput::State& state) {
    if (!is_file_) FileBytes::set_standard_input(input_.fd(), state.received);
    auto whole = request_.open_whole();
    if (!whole) return kExitInput;
    if (request_.window && !request_.window(*whole, request_.selection.time)) return kExitUsage;
    View view(*std::move(whole), request_);
    compare(view.capture, true);
    Settling::Step rest = settling_.rest(view.capture);
    rest.options.time = request_.choice.pipeline.time = request_.selection.time;
    move_to(view, rest.options, false);
    ProgressBar bar(request_.choice.progress, "decode");
    const auto done = continue_pipeline(view.capture, rest.options, rest.before, ChunkOrder::kByTime, *given_,
                                        bar.callback());
    const ExitCode status = told(finish_decode(done, *given_, request_.choice, out_, diagnostics_), *given_,
                                 request_.input.quiet);
    if (state.is_pipe) report(state, view.capture);
    return changed_ && status == kExitOk ? kExitErrors : status;
  }

  ExitCode finish_early() {
    if (!given_) return interrupted() ? kExitInterrupted : kExitOk;
    given_->finish();
    if (!flush_output(out_, diagnostics_)) return kExitInput;
    tell_stopped(given_->coverage(), request_.choice);
    if (!out_.closed()) diagnostics_.note(given_->coverage().line());
    return exit_code_for(given_->coverage(), request_.choice);
  }

  void report(const LiveInput::State& state, const Capture& whole) {
    const uint64_t given = settling_.given_bytes();
    most_bytes_ = std::max(most_bytes_, state.trace - std::min(state.trace, given));
    measure_time(settled_records(whole, is_file_).newest);
    if (given == 0) {
      diagnostics_.note(fmt::format("while recording, nothing was given out{}{}",
                                    waits_for_.empty() ? "" : ": ", waits_for_));
      return;
    }
    diagnostics_.note(fmt::format(
        "while recording, {:.1f} % of the trace was given out, in {} steps; at most {} and {} of trace "
        "waited{}; peak memory "
        "{}",
        100 * static_cast<double>(given) / static_cast<double>(std::max<uint64_t>(1, state.trace)), steps_,
        format_size(most_bytes_), format_duration(most_time_),
        waits_for_text() ? ", at the end for text that no record had told of" : "",
        format_size(peak_memory())));
  }

  LiveRequest& request_;
  Output& out_;
  Diagnostics& diagnostics_;
  LiveInput& input_;
  const bool is_file_;
  Settling settling_;
  std::unique_ptr<View> view_;  // that the last step was made of
  std::unique_ptr<LiveConsumer> given_;
  Time given_until_ = kTimeMin, reached_ = kTimeMin;
  Clock::time_point not_before_{};
  uint64_t rounds_ = 0, steps_ = 0, most_bytes_ = 0, most_time_ = 0;
  std::string waits_for_;
  bool changed_ = false;
};

// What lies beside it, as opening the directory would find it.
void find_beside(InputOptions& input) {
  std::error_code ignored;
  const std::string kcore = input.input + "/kcore_dir/kcore";
  if (input.capture.kcore.empty() && std::filesystem::exists(kcore, ignored)) input.capture.kcore = kcore;
}

// Nothing for a pipe.
Result<std::optional<FollowedFile>> open_followed(const LiveRequest& request) {
  if (request.input.input == "-") return std::nullopt;
  MachineFeatures features;
  if (!request.same_machine.empty()) {
    const auto other = PerfData::open(request.same_machine);
    if (!other) return std::unexpected(other.error());
    features = machine_features(**other);
  }
  auto file = FollowedFile::open(request.input.input, std::move(features));
  if (!file) return std::unexpected(file.error());
  return *std::move(file);
}

}  // namespace

bool is_live_pipe(const InputOptions& input) {
  struct stat status {};
  return input.input == "-" && ::fstat(STDIN_FILENO, &status) == 0 && !S_ISREG(status.st_mode) &&
         !S_ISDIR(status.st_mode);
}

ExitCode decode_live(LiveRequest request, Diagnostics& diagnostics) {
  // Before the output, which it must not be.
  auto file = open_followed(request);
  if (!file) {
    diagnostics.error(file.error());
    return kExitInput;
  }
  auto out = Output::open(request.output, Output::Named::kAtOnce);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  if (const auto ok = request.blocks ? check_not_terminal(*out) : Result<void>(); !ok) {
    diagnostics.error(ok.error());
    return kExitUsage;
  }
  auto input = *file ? LiveInput::start(**std::move(file)) : LiveInput::start(STDIN_FILENO);
  if (!input) {
    diagnostics.error(input.error());
    return kExitInput;
  }
  if (request.input.input != "-") find_beside(request.input);
  return LiveDecode(request, *out, diagnostics, **input).run();
}

}  // namespace asof
