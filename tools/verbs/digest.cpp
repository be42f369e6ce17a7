// asof digest: what was executed as a few numbers, to compare runs, machines and decoders. The hash is h = h
// * 0x9E3779B97F4A7C15 + ip over every instruction, composed over chunks (tally.h).
#include <fmt/format.h>

#include <atomic>

#include "tools/cli/decode_run.h"
#include "tools/cli/verbs.h"
#include "tools/output/coverage.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/output/tally.h"

namespace asof {
namespace {

// 64-bit FNV-1a over addresses as eight little-endian bytes each. Does not compose, so it runs in one thread.
struct Fnv {
  uint64_t value = 0xcbf29ce484222325ULL;
  void append(Addr ip) {
    for (int i = 0; i < 8; ++i) {
      value ^= ip >> (8 * i) & 0xff;
      value *= 0x100000001b3ULL;
    }
  }
};

struct StreamDigest {
  IpHash ips;
  uint64_t branches = 0;
  Fnv fnv;
};

class DigestConsumer : public ChunkConsumer {
 public:
  DigestConsumer(const Capture& capture, bool fnv, const DecodeChoice& choice)
      : coverage_(capture, choice.pipeline),
        streams_(capture.streams.size()),
        fnv_(fnv),
        max_errors_(choice.max_errors) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream&) override {
    auto tally = std::make_unique<Tally>();
    count_steps(chunk, *tally);
    return tally;
  }

  void deliver(Chunk& chunk, const Stream&, Prepared* prepared) override {
    const auto& tally = static_cast<const Tally&>(*prepared);
    StreamDigest& d = streams_[chunk.stream];
    d.ips.append(tally.ips);
    d.branches += tally.branches;
    coverage_.add(chunk, tally.ips.count);
    if (coverage_.errors() > max_errors_) stopped_ = true;
    if (!fnv_) return;
    for (const Step& step : chunk.steps) {
      Addr ip = step.block->ip;
      for (uint32_t i = 0; i < step.count; ++i) {
        d.fnv.append(ip);
        total_fnv_.append(ip);
        ip += step.block->lengths[i];
      }
    }
  }

  bool delivers_steps() const override { return fnv_; }

  // Called by all workers.
  bool stopped() const override { return interrupted() || stopped_; }

  void print(const Capture& capture, Output& out) const {
    IpHash total;
    uint64_t branches = 0;
    for (size_t i = 0; i < streams_.size(); ++i) {
      total.append(streams_[i].ips);
      branches += streams_[i].branches;
      out.write(
          line("stream " + capture.streams[i].name, streams_[i].ips, streams_[i].branches, streams_[i].fnv));
    }
    out.write(line("total", total, branches, total_fnv_));
  }
  Coverage& coverage() { return coverage_; }

 private:
  std::string line(const std::string& name, const IpHash& ips, uint64_t branches, const Fnv& fnv) const {
    std::string text =
        fmt::format("{} instructions {} branches {} ip_hash {:016x}", name, ips.count, branches, ips.hash);
    if (fnv_) text += fmt::format(" ip_fnv1a64 {:016x}", fnv.value);
    return text + '\n';
  }

  Coverage coverage_;
  std::vector<StreamDigest> streams_;
  Fnv total_fnv_;
  bool fnv_;
  uint64_t max_errors_;
  std::atomic<bool> stopped_ = false;
};

struct DigestOptions {
  InputOptions input;
  DecodeChoice choice;
  bool fnv = false;
};

ExitCode run_digest(DigestOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  auto out = Output::open("-");
  if (!out) return kExitInput;
  o.choice.pipeline.decode.sum_runs = true;
  DigestConsumer consumer(*capture, o.fnv, o.choice);
  if (const auto done = run_with_progress(consumer, *capture, o.choice, "digest", ChunkOrder::kByStream);
      !done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  consumer.print(*capture, *out);
  if (interrupted()) out->write("interrupted: figures and hashes are of a part of the trace\n");
  out->flush();
  tell_causes(consumer.coverage(), diagnostics);
  if (consumer.coverage().nothing_to_decode()) diagnostics.note(consumer.coverage().line());
  return exit_code_for(consumer.coverage(), o.choice);
}

}  // namespace

RunVerb add_digest(CLI::App& app) {
  auto options = std::make_shared<DigestOptions>();
  CLI::App* verb = app.add_subcommand("digest", "counts and hash of all executed instructions, by stream");
  add_input_options(*verb, options->input);
  add_decode_options(*verb, options->choice, options->input.capture);
  verb->add_flag("--fnv", options->fnv, "add the 64-bit FNV-1a hash of the addresses");
  return [options] { return run_digest(*options); };
}

}  // namespace asof
