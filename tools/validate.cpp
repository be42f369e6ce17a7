// asof validate: the decoded flow against a record of what really ran (truth.h). Exit status 0 only when
// nothing is wrong, and nothing is missing but instructions whose bytes are nowhere in the capture and what
// follows them up to the end of that gap.
#include <fmt/format.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <tsl/robin_map.h>

#include <atomic>
#include <map>

#include "tools/compare.h"
#include "tools/coverage.h"
#include "tools/format.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/tally.h"
#include "tools/truth.h"
#include "tools/verbs.h"

namespace asof {
namespace {

constexpr const char* kEndOfTrace = "end of trace";  // of CompareResult::missing_by_cause

struct CpuResult {
  int cpu = -1;
  IpHash ips;  // as decoded
  CompareResult compare;
  std::optional<TruthSummary> summary;

  bool hash_agrees() const {
    if (!summary) return false;
    if (ips.count == summary->instructions) return ips.hash == summary->ip_hash;
    return ips.count == summary->instructions - summary->trailing &&
           ips.hash == summary->ip_hash_without_trailing;
  }
  // Nothing is missing but what no trace can show.
  bool nothing_missing() const {
    if (compare.missing == 0) return true;
    const auto at_end = compare.missing_by_cause.find(kEndOfTrace);
    return summary && compare.missing == summary->trailing && at_end != compare.missing_by_cause.end() &&
           at_end->second == compare.missing;
  }
  // The hash sees what the walk by address does not: lengths inside a run.
  bool pass() const {
    const bool complete = nothing_missing() && compare.late == 0;
    return compare.wrong == 0 && nothing_missing() && (!complete || !summary || hash_agrees());
  }
};

class ValidateConsumer : public ChunkConsumer {
 public:
  ValidateConsumer(const Capture& capture, std::string directory)
      : capture_(capture), directory_(std::move(directory)), coverage_(capture) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream&) override {
    auto tally = std::make_unique<Tally>();
    count_steps(chunk, *tally);
    return tally;
  }

  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override {
    const IpHash& ips = static_cast<const Tally&>(*prepared).ips;
    coverage_.add(chunk, ips.count);
    if (!open(chunk.stream, stream)) return;
    current_.ips.append(ips);
    size_t gap = 0;
    const auto gaps_before = [&](size_t position) {
      for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= position; ++gap) {
        comparer_->add_gap(chunk.gaps[gap].code, gap_text(capture_, stream, chunk.gaps[gap]));
      }
    };
    for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
      gaps_before(step.position());
      add(*step);
    }
    gaps_before(chunk.steps.size());
  }

  // Called by all workers.
  bool stopped() const override { return interrupted() || failed_; }

  void close() {
    if (!comparer_) return;
    comparer_->finish();
    if (reader_->error()) error_ = reader_->error();
    current_.compare = comparer_->result();
    results[current_.cpu] = std::move(current_);
    comparer_.reset();
  }

  const std::optional<Error>& error() const { return error_; }
  const Coverage& coverage() const { return coverage_; }
  std::map<int, CpuResult> results;

 private:
  bool open(size_t index, const Stream& stream) {
    if (index == open_stream_) return comparer_ != nullptr;
    close();
    open_stream_ = index;
    auto reader = TruthReader::open(truth_file(directory_, stream.cpu));
    if (!reader) {
      error_ = reader.error();
      failed_ = true;
      return false;
    }
    reader_.emplace(std::move(*reader));
    comparer_ = std::make_unique<Comparer>([this](TruthRun& run) { return reader_->next(run); });
    current_ = CpuResult{};
    current_.cpu = stream.cpu;
    return true;
  }

  void add(const Step& step) {
    const Block& b = *step.block;
    // The walk lags behind the pipeline, whose blocks do not outlive it: their lengths are kept here, once
    // each.
    auto [lengths, is_new] = lengths_.try_emplace(&b);
    if (is_new) lengths.value().assign(b.lengths, b.lengths + b.count);
    DecodedPiece piece{b.ip, b.size, step.count, lengths.value().data(), step.time, step.confidence, 0};
    if (!complete(step)) {
      piece.bytes = 0;
      for (uint32_t i = 0; i < step.count; ++i) piece.bytes += b.lengths[i];
    }
    comparer_->add(piece);
  }

  const Capture& capture_;
  std::string directory_;
  Coverage coverage_;
  size_t open_stream_ = SIZE_MAX;
  tsl::robin_map<const Block*, std::vector<uint8_t>> lengths_;
  std::optional<TruthReader> reader_;
  std::unique_ptr<Comparer> comparer_;
  CpuResult current_;
  std::optional<Error> error_;
  std::atomic<bool> failed_ = false;
};

// CPUs without a stream in the capture: all of their truth is missing.
Result<void> add_absent(const std::string& directory, const std::vector<int>& cpus,
                        std::map<int, CpuResult>& results) {
  for (const int cpu : cpus) {
    if (results.contains(cpu)) continue;
    auto reader = TruthReader::open(truth_file(directory, cpu));
    if (!reader) return std::unexpected(reader.error());
    Comparer comparer([&](TruthRun& run) { return reader->next(run); });
    comparer.finish();
    if (reader->error()) return std::unexpected(*reader->error());
    results[cpu].cpu = cpu;
    results[cpu].compare = comparer.result();
  }
  return {};
}

std::string place_text(const Capture& capture, const CpuResult& cpu, const Difference& d) {
  const auto name = [&](Addr a) {
    if (a == 0) return std::string("nothing");
    const auto at = is_kernel_address(a) ? capture.symbols.find(kKernelSpace, a, d.time) : std::nullopt;
    return at ? fmt::format("{:x} {}+{:#x}", a, at->symbol->name, at->offset) : fmt::format("{:x}", a);
  };
  static constexpr std::array<const char*, 3> kNames{"wrong", "missing", "late text"};
  std::string text = fmt::format("  {} cpu {} {}: {} from {}", kNames[static_cast<size_t>(d.kind)], cpu.cpu,
                                 format_time(d.time), format_plural(d.count, "instruction", "instructions"),
                                 name(d.kind == Difference::Kind::kWrong ? d.decoded_ip : d.truth_ip));
  if (d.kind == Difference::Kind::kWrong) {
    text += fmt::format(", where {} ran", name(d.truth_ip));
  } else if (d.decoded_ip != 0) {
    text += fmt::format(", decoding goes on at {}", name(d.decoded_ip));
  }
  return text + (d.gap.empty() ? "; no gap reported\n" : fmt::format("; {}\n", d.gap));
}

std::string confidence_text(const std::array<uint64_t, 5>& counts) {
  std::string text;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", confidence_name(static_cast<Confidence>(c)),
                        format_count(counts[c]));
  }
  return text;
}

void print_text(const Capture& capture, const std::map<int, CpuResult>& results, Output& out) {
  for (const auto& [id, cpu] : results) {
    const CompareResult& r = cpu.compare;
    out.write(fmt::format("cpu {}: right {}, wrong {}, missing {}, late text {}; ip_hash {}\n", id,
                          format_count(r.right), format_count(r.wrong), format_count(r.missing),
                          format_count(r.late),
                          !cpu.summary        ? "not known"
                          : cpu.hash_agrees() ? "agrees"
                                              : "differs"));
    if (r.right != 0)
      out.write(fmt::format("  right by confidence: {}\n", confidence_text(r.right_by_confidence)));
    if (r.wrong != 0)
      out.write(fmt::format("  wrong by confidence: {}\n", confidence_text(r.wrong_by_confidence)));
    for (const auto& [cause, count] : r.missing_by_cause) {
      out.write(fmt::format("  missing by cause: {} {}\n", cause, format_count(count)));
    }
    for (const Difference& d : r.places) out.write(place_text(capture, cpu, d));
  }
}

using JsonWriter = rapidjson::Writer<rapidjson::StringBuffer>;

void put_counts(JsonWriter& w, const char* key, const std::array<uint64_t, 5>& counts) {
  w.Key(key);
  w.StartObject();
  for (size_t c = 0; c < counts.size(); ++c) {
    w.Key(confidence_name(static_cast<Confidence>(c)).data());
    w.Uint64(counts[c]);
  }
  w.EndObject();
}

void put_place(JsonWriter& w, const Difference& d) {
  static constexpr std::array<const char*, 3> kNames{"wrong", "missing", "late"};
  w.StartObject();
  w.Key("kind");
  w.String(kNames[static_cast<size_t>(d.kind)]);
  w.Key("decoded_ip");
  w.String(fmt::format("{:#x}", d.decoded_ip).c_str());
  w.Key("truth_ip");
  w.String(fmt::format("{:#x}", d.truth_ip).c_str());
  w.Key("instructions");
  w.Uint64(d.count);
  if (d.time != kTimeMin) {
    w.Key("time");
    w.Int64(d.time);
  }
  w.Key("gap");
  w.String(d.gap.c_str());
  w.EndObject();
}

void print_json(const std::map<int, CpuResult>& results, bool pass, Output& out) {
  rapidjson::StringBuffer buffer;
  JsonWriter w(buffer);
  w.StartObject();
  w.Key("pass");
  w.Bool(pass);
  w.Key("cpus");
  w.StartObject();
  for (const auto& [id, cpu] : results) {
    const CompareResult& r = cpu.compare;
    w.Key(std::to_string(id).c_str());
    w.StartObject();
    for (const auto& [key, value] :
         {std::pair{"right", r.right}, {"wrong", r.wrong}, {"missing", r.missing}, {"late", r.late}}) {
      w.Key(key);
      w.Uint64(value);
    }
    w.Key("ip_hash");
    w.String(fmt::format("{:016x}", cpu.ips.hash).c_str());
    if (cpu.summary) {
      w.Key("ip_hash_agrees");
      w.Bool(cpu.hash_agrees());
    }
    put_counts(w, "right_by_confidence", r.right_by_confidence);
    put_counts(w, "wrong_by_confidence", r.wrong_by_confidence);
    w.Key("missing_by_cause");
    w.StartObject();
    for (const auto& [cause, count] : r.missing_by_cause) {
      w.Key(cause.c_str());
      w.Uint64(count);
    }
    w.EndObject();
    w.Key("places");
    w.StartArray();
    for (const Difference& d : r.places) put_place(w, d);
    w.EndArray();
    w.EndObject();
  }
  w.EndObject();
  w.EndObject();
  out.write(std::string_view(buffer.GetString(), buffer.GetSize()));
  out.write("\n");
}

struct ValidateOptions {
  InputOptions input;
  DecodeChoice choice;
  std::string truth;
  std::string format = "text";
};

ExitCode run_validate(ValidateOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  auto cpus = truth_cpus(o.truth);
  if (!cpus) {
    diagnostics.error(cpus.error());
    return kExitInput;
  }
  if (!o.choice.pipeline.cpus.empty()) {
    std::erase_if(*cpus, [&](int cpu) {
      return std::ranges::find(o.choice.pipeline.cpus, cpu) == o.choice.pipeline.cpus.end();
    });
  }
  const auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  ValidateConsumer consumer(*capture, o.truth);
  Result<void> done;
  {
    ProgressBar bar(o.choice.progress, "validate");
    done = run_pipeline(*capture, o.choice.pipeline, ChunkOrder::kByStream, consumer, bar.callback());
  }
  consumer.close();
  if (interrupted()) return kExitInterrupted;
  if (done && consumer.error()) done = std::unexpected(*consumer.error());
  if (done) done = add_absent(o.truth, *cpus, consumer.results);
  if (!done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  const auto summary = read_truth_summary(o.truth);
  if (!summary) diagnostics.error(summary.error());
  bool pass = true;
  for (auto& [id, cpu] : consumer.results) {
    if (summary && summary->contains(id)) cpu.summary = summary->at(id);
    pass = pass && cpu.pass();
  }
  auto out = Output::open("-");
  if (!out) return kExitInput;
  if (o.format == "json") {
    print_json(consumer.results, pass, *out);
  } else {
    print_text(*capture, consumer.results, *out);
    out->write(consumer.coverage().line() + "\n");
  }
  return pass ? kExitOk : kExitErrors;
}

}  // namespace

RunVerb add_validate(CLI::App& app) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* verb = app.add_subcommand("validate", "compare with a record of what really ran");
  add_input_options(*verb, options->input);
  add_decode_options(*verb, options->choice);
  verb->add_option("--truth", options->truth, "directory with cpu<N>.blocks.zst and summary.json")
      ->required()
      ->type_name("DIR");
  verb->add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}));
  return [options] { return run_validate(*options); };
}

}  // namespace asof
