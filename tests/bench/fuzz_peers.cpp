// fuzz_peers [--rounds N] [--alone] BUNDLE...: asof, libxdc and iptr on the same bytes, alternately, in one process and thread. The other
// two are decoders for fuzzers: they take traces without return compression only, libxdc also without time packets, and
// find which edges ran, not how often nor in which order; what they say that asof does not is whether they stopped.
//
// Two figures for each: the first decode of a new decoder, which must find the code, and the best of those that follow, by
// the same decoder. Opening the capture is not measured. asof's hash over all addresses is printed, to compare with the truth.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/model/capture.h"
#include "tests/bench/chunk_count.h"
#include "tests/bench/coverage_peer.h"

namespace asof::bench {
namespace {

constexpr int kRepeats = 5;

struct Times {
  double first = 0, repeated = 0;
};
struct Contender {
  std::string name;
  std::function<std::string()> decode;  // with a new decoder after `start`
  std::function<void()> start;
  std::vector<Times> times{};
  std::string stopped{};
};

class Count final : public ChunkSink {
 public:
  explicit Count(bool hash) : count(hash) {}
  Chunk spare() override { return std::exchange(spare_, Chunk{}); }
  void take(Chunk&& chunk) override {
    count.add(chunk);
    spare_ = std::move(chunk);
    spare_.clear();
  }
  ChunkCount count;

 private:
  Chunk spare_;
};

// asof, for one thread and all streams.
class Asof {
 public:
  Asof(const Capture& capture, bool hash) : capture_(capture), hash_(hash) {}
  void start() {
    decoder_.reset();
    auto arch = capture_.arch();
    if (!arch) throw std::runtime_error(arch.error().reason);
    arch_ = std::move(*arch);
  }
  Outcome decode() {
    if (!decoder_) decoder_ = arch_->decoder(capture_.streams, *capture_.text, {.sum_runs = hash_});
    Count count(hash_);
    for (size_t i = 0; i < capture_.streams.size(); ++i) {
      for (const Segment& s : arch_->split(capture_.streams[i], i)) decoder_->decode(s, count);
    }
    return count.count.outcome;
  }

 private:
  const Capture& capture_;
  const bool hash_;
  std::unique_ptr<Arch> arch_;
  std::unique_ptr<SegmentDecoder> decoder_;
};

// The trace of the first stream, in one piece.
class Trace {
 public:
  explicit Trace(const Capture& capture) {
    const Stream& stream = capture.streams.at(0);
    std::vector<uint8_t> scratch;
    for (const StreamPiece& p : stream.pieces) {
      const auto part = stream.bytes(p.offset, p.offset + p.size(), scratch);
      bytes_.insert(bytes_.end(), part.begin(), part.end());
    }
    bytes_.resize(bytes_.size() + CoveragePeer::kPadding);
  }
  std::span<uint8_t> bytes() { return {bytes_.data(), bytes_.size() - CoveragePeer::kPadding}; }

 private:
  std::vector<uint8_t> bytes_;
};

Times time_of(Contender& c) {
  c.start();
  const auto decode = [&] { c.stopped = c.decode(); };
  Times t;
  t.first = cpu_seconds_of(decode);
  for (int i = 0; i < kRepeats; ++i) {
    const double seconds = cpu_seconds_of(decode);
    t.repeated = i == 0 ? seconds : std::min(t.repeated, seconds);
  }
  return t;
}

void print(const std::vector<Contender>& all, uint64_t instructions) {
  const auto median_of = [](const Contender& c, double Times::*which) {
    std::vector<double> values;
    for (const Times& t : c.times) values.push_back(t.*which);
    return median(values);
  };
  fmt::print("  {:8} {:>10} {:>9} {:>7} {:>12} {:>9} {:>7}\n", "", "first ms", "M insn/s", "slower",
             "repeated ms", "M insn/s", "slower");
  const auto millions = static_cast<double>(instructions) / 1e6;
  for (const Contender& c : all) {
    const double first = median_of(c, &Times::first), repeated = median_of(c, &Times::repeated);
    fmt::print("  {:8} {:10.3f} {:9.1f} {:7.2f} {:12.3f} {:9.1f} {:7.2f}  {}\n", c.name, 1e3 * first,
               millions / first, first / median_of(all[0], &Times::first), 1e3 * repeated,
               millions / repeated, repeated / median_of(all[0], &Times::repeated), c.stopped);
  }
}

void compare(const std::string& path, int rounds, bool alone) {
  const auto capture = open_capture(path, {});
  if (!capture) throw std::runtime_error(path + ": " + capture.error().reason);
  Asof asof(*capture, false), hashing(*capture, true);
  Trace trace(*capture);
  std::unique_ptr<CoveragePeer> peer;
  std::vector<Contender> all;
  all.push_back({"asof", [&] { return asof.decode().errors == 0 ? "" : "gaps"; }, [&] { asof.start(); }});
  [[maybe_unused]] const auto add = [&](const char* name,
                                        std::unique_ptr<CoveragePeer> (*make)(const Capture&)) {
    all.push_back({name, [&] { return peer->decode(trace.bytes()); }, [&, make] { peer = make(*capture); }});
  };
#ifdef ASOF_LIBXDC
  add("libxdc", new_libxdc);
#endif
#ifdef ASOF_IPTR
  add("iptr", new_iptr);
#endif
  if (alone) all.resize(1);
  for (int i = 0; i < rounds; ++i) {
    for (Contender& c : all) c.times.push_back(time_of(c));
  }
  hashing.start();
  const Outcome outcome = hashing.decode();
  fmt::print("{}: {} instructions, hash {:016x}\n", path, outcome.instructions, outcome.hash);
  print(all, outcome.instructions);
}

int run(int argc, char** argv) {
  int rounds = 9;
  bool alone = false;
  std::vector<std::string> bundles;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (std::string_view(argv[i]) == "--alone")
      alone = true;
    else
      bundles.emplace_back(argv[i]);
  }
  if (bundles.empty()) {
    fmt::print(stderr, "usage: fuzz_peers [--rounds N] [--alone] BUNDLE...\n");
    return 1;
  }
  fmt::print("machine: {}\n", machine_name());
  for (const std::string& b : bundles) compare(b, rounds, alone);
  return 0;
}

}  // namespace
}  // namespace asof::bench

int main(int argc, char** argv) {
  try {
    return asof::bench::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fuzz_peers: {}\n", e.what());
    return 1;
  }
}
