// asof validate: can this capture, and what asof makes of it, be trusted. With a record of what really ran
// (--truth) every instruction is compared with it; without one, everything is checked that a capture can show
// about itself. Exit status 0: nothing was found against it; 3: something was, and the report says what and
// where.
#include <atomic>

#include "tools/cli/decode_run.h"
#include "tools/cli/verbs.h"
#include "tools/validate/validate_report.h"
#include "tools/validate/validate_truth.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

struct ValidateOptions {
  InputOptions input;
  DecodeChoice choice;
  std::string truth;
  std::string format = "text";
  double min_coverage = 99.9;
  uint64_t cross_check = 16U << 20;
};

class ValidateConsumer final : public ChunkConsumer {
 public:
  ValidateConsumer(const Capture& capture, const DecodeChoice& choice, const LiveEvents& events,
                   TruthComparison* truth)
      : coverage_(capture, choice.pipeline),
        observer_(capture, events),
        truth_(truth),
        max_errors_(choice.max_errors) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override {
    auto facts = std::make_unique<Facts>();
    observer_.prepare(chunk, stream, facts->flow);
    return facts;
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override {
    auto& flow = static_cast<Facts&>(*prepared).flow;
    coverage_.add(chunk, flow.tally.ips.count);
    observer_.add(chunk, stream, flow);
    if (truth_ != nullptr && !truth_->add(chunk, stream, flow.tally.ips)) failed_ = true;
    if (coverage_.errors() > max_errors_) enough_ = true;
  }
  bool delivers_steps() const override { return truth_ != nullptr; }
  // Called by all workers.
  bool stopped() const override { return interrupted() || failed_ || enough_; }

  Coverage& coverage() { return coverage_; }
  FlowFacts take_flow() { return observer_.take(); }

 private:
  struct Facts : Prepared {
    FlowObserver::Prepared flow;
  };
  Coverage coverage_;
  FlowObserver observer_;
  TruthComparison* truth_;
  uint64_t max_errors_;
  std::atomic<bool> failed_ = false, enough_ = false;
};

// CPUs with a truth that are to be decoded.
Result<std::vector<TruthId>> wanted_cpus(const ValidateOptions& o) {
  auto cpus = truth_ids(o.truth);
  const auto& chosen = o.choice.pipeline.cpus;
  if (cpus && !chosen.empty())
    std::erase_if(
        *cpus, [&](TruthId id) { return id.tid < 0 && std::ranges::find(chosen, id.cpu) == chosen.end(); });
  return cpus;
}

void ask(const ValidationInput& in, std::vector<Check>& checks) {
  for (const auto question : {check_flow, check_coverage, check_records, check_start_copy, check_batches,
                              check_times, check_reference})
    question(in, checks);
}

ExitCode run_validate(ValidateOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  Result<std::vector<TruthId>> cpus;
  if (!o.truth.empty()) cpus = wanted_cpus(o);
  if (!cpus) {
    diagnostics.error(cpus.error());
    return kExitInput;
  }
  const auto capture =
      open_for_verb(o.input, diagnostics, ShownNotices::kRecording, o.truth.empty() ? &o.choice : nullptr);
  if (!capture) return kExitInput;
  const HealthInput health = health_input(*capture);
  const LiveEvents events(*capture, health.side);
  std::optional<TruthComparison> truth;
  if (!o.truth.empty()) truth.emplace(*capture, events, o.truth);
  o.choice.pipeline.decode.sum_runs = true;
  ValidateConsumer consumer(*capture, o.choice, events, truth ? &*truth : nullptr);
  auto done = run_with_progress(consumer, *capture, o.choice, "validate", ChunkOrder::kByStream);
  if (interrupted()) return kExitInterrupted;
  if (truth) {
    if (const auto finished = truth->finish(*cpus, diagnostics); done && !finished) done = finished;
  }
  if (!done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  const FlowFacts flow = consumer.take_flow();
  Validation result;
  if (truth) {
    result.truth = &truth->results();
    check_truth(*result.truth, *capture, events, result.checks);
  }
  const ValidationInput in{*capture,          health,         events,       flow, consumer.coverage(),
                           o.choice.pipeline, o.min_coverage, o.cross_check};
  ask(in, result.checks);
  if (interrupted()) return kExitInterrupted;
  tell_stopped(consumer.coverage(), o.choice);
  auto out = Output::open("-");
  if (!out) return kExitInput;
  if (o.format == "json") {
    print_validation_json(result, *out);
  } else if (o.format == "jsonl") {
    print_validation_lines(result, *out);
  } else {
    print_validation_text(result, *capture, events, *out);
    out->write(consumer.coverage().line() + "\n");
  }
  const bool stopped = consumer.coverage().errors() > o.choice.max_errors;
  return result.pass() && !stopped ? kExitOk : kExitErrors;
}

}  // namespace

RunVerb add_validate(CLI::App& app) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* verb =
      app.add_subcommand("validate", "can it be trusted: against a record of what really ran, or by itself");
  add_input_options(*verb, options->input);
  add_decode_options(*verb, options->choice, options->input.capture);
  verb->add_option("--truth", options->truth,
                   "directory with cpu<N>.blocks.zst or tid<N>.blocks.zst, and summary.json")
      ->type_name("DIR");
  verb->add_option("--min-coverage", options->min_coverage,
                   "percent of traced time that must have text (default 99.9)")
      ->check(CLI::Range(0.0, 100.0));
  verb->add_option("--cross-check", options->cross_check,
                   "how much trace libipt or OpenCSD decodes, too (default 16MB; 0: none)")
      ->transform(CLI::AsSizeValue(false))
      ->transform(not_negative());
  verb->add_option("--format", options->format, "text; json: one object; jsonl: one object a line")
      ->check(CLI::IsMember({"text", "json", "jsonl"}));
  return [options] { return run_validate(*options); };
}

}  // namespace asof
