// xdc_peers [--rounds N] BUNDLE...: asof and libxdc (github.com/nyx-fuzz/libxdc, a decoder for fuzzers) on the same bytes,
// alternately, in one process and thread. libxdc decodes traces without time packets and return compression only, as KVM-PT
// writes them, and finds which edges ran, not how often; what it says that asof does not is its result code.
//
// Two figures for each: the first decode of a new decoder, which must find the code, and the best of those that follow, by
// the same decoder. Opening the capture is not measured. libxdc gets its pages from a sorted table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include <libxdc.h>
}

#include "decoder/model/capture.h"
#include "tests/bench/chunk_count.h"

namespace asof::bench {
namespace {

constexpr size_t kPage = 4096, kMap = 0x10000;
constexpr int kRepeats = 5;

struct Times {
  double first = 0, repeated = 0;
};
struct Result {
  Times times;
  uint64_t instructions = 0, gaps = 0;
  int code = 0;
};

template <class Decode>
Times time_of(Decode decode) {
  Times t;
  t.first = cpu_seconds_of(decode);
  for (int i = 0; i < kRepeats; ++i) {
    const double seconds = cpu_seconds_of(decode);
    t.repeated = i == 0 ? seconds : std::min(t.repeated, seconds);
  }
  return t;
}

class Count final : public ChunkSink {
 public:
  Chunk spare() override { return std::exchange(spare_, Chunk{}); }
  void take(Chunk&& chunk) override {
    count.add(chunk);
    spare_ = std::move(chunk);
    spare_.clear();
  }
  ChunkCount count{false};

 private:
  Chunk spare_;
};

Result with_asof(const Capture& capture) {
  Result result;
  std::unique_ptr<SegmentDecoder> decoder;
  const auto arch = capture.arch();
  if (!arch) throw std::runtime_error(arch.error().reason);
  result.times = time_of([&] {
    if (!decoder) decoder = (*arch)->decoder(capture.streams, *capture.text, {});
    Count count;
    for (size_t i = 0; i < capture.streams.size(); ++i) {
      for (const Segment& s : (*arch)->split(capture.streams[i], i)) decoder->decode(s, count);
    }
    result.instructions = count.count.outcome.instructions;
    result.gaps = count.count.outcome.errors;
  });
  return result;
}

// Whole pages of the text, as libxdc asks for them.
class Pages {
 public:
  explicit Pages(const Capture& capture)
      : text_(*capture.text),
        space_(capture.streams.at(0).contexts.empty() ? kKernelSpace : capture.streams[0].contexts[0].space) {
  }

  void* page(uint64_t address) {
    const uint64_t at = address & ~(kPage - 1);
    auto& page = pages_[at];
    if (!page && !missing_.contains(at)) page = read(at);
    if (!page) missing_[at] = true;
    return page.get();
  }

 private:
  std::unique_ptr<uint8_t[]> read(uint64_t at) const {
    auto page = std::make_unique<uint8_t[]>(kPage);
    bool any = false;
    for (uint64_t a = at; a < at + kPage;) {
      const Cell cell = text_.cell(space_, a);
      const uint64_t end = std::min(at + kPage, cell.range.end);
      if (!cell.versions.empty() && cell.versions[0].bytes != nullptr) {
        std::copy_n(cell.versions[0].bytes + (a - cell.range.begin), end - a, page.get() + (a - at));
        any = true;
      }
      a = end;
    }
    return any ? std::move(page) : nullptr;
  }

  const TextStore& text_;
  const Space space_;
  std::map<uint64_t, std::unique_ptr<uint8_t[]>> pages_;
  std::map<uint64_t, bool> missing_;
};

void* fetch(void* pages, uint64_t address, bool* success) {
  void* const page = static_cast<Pages*>(pages)->page(address);
  *success = page != nullptr;
  return page;
}

Result with_libxdc(const Capture& capture) {
  Result result;
  std::vector<uint8_t> scratch;
  const Stream& stream = capture.streams.at(0);
  std::vector<uint8_t> trace;
  for (const StreamPiece& p : stream.pieces) {
    const auto part = stream.bytes(p.offset, p.offset + p.size(), scratch);
    trace.insert(trace.end(), part.begin(), part.end());
  }
  const size_t size = trace.size();
  trace.insert(trace.end(), 16, PT_TRACE_END);
  Pages pages(capture);
  std::vector<uint8_t> map(kMap);
  uint64_t filter[4][2] = {{kPage, 0x7fffffffffff}};
  const std::unique_ptr<libxdc_t, void (*)(libxdc_t*)> decoder(
      libxdc_init(filter, fetch, &pages, map.data(), map.size()), libxdc_free);
  result.times = time_of([&] { result.code = libxdc_decode(decoder.get(), trace.data(), size); });
  return result;
}

void print(const char* name, const std::vector<Result>& rounds, uint64_t instructions, double unit) {
  std::vector<double> first, repeated;
  for (const Result& r : rounds) {
    first.push_back(r.times.first);
    repeated.push_back(r.times.repeated);
  }
  const double f = median(first), r = median(repeated);
  fmt::print("  {:10} {:12} {:10.3f} {:10.1f} {:12.3f} {:10.1f} {:8.2f} {:6}\n", name, instructions, 1e3 * f,
             static_cast<double>(instructions) / f / 1e6, 1e3 * r,
             static_cast<double>(instructions) / r / 1e6, unit == 0 ? 1.0 : r / unit, rounds.back().code);
}

void compare(const std::string& path, int rounds) {
  const auto capture = open_capture(path, {});
  if (!capture) throw std::runtime_error(path + ": " + capture.error().reason);
  std::vector<Result> ours, theirs;
  for (int i = 0; i < rounds; ++i) {
    ours.push_back(with_asof(*capture));
    theirs.push_back(with_libxdc(*capture));
  }
  fmt::print("{}\n  {:10} {:>12} {:>10} {:>10} {:>12} {:>10} {:>8} {:>6}\n", path, "", "instructions",
             "first ms", "M insn/s", "repeated ms", "M insn/s", "slower", "result");
  print("asof", ours, ours.back().instructions, 0);
  std::vector<double> unit;
  for (const Result& r : ours) unit.push_back(r.times.repeated);
  print("libxdc", theirs, ours.back().instructions, median(unit));
}

int run(int argc, char** argv) {
  int rounds = 9;
  std::vector<std::string> bundles;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else
      bundles.emplace_back(argv[i]);
  }
  if (bundles.empty()) {
    fmt::print(stderr, "usage: xdc_peers [--rounds N] BUNDLE...\n");
    return 1;
  }
  fmt::print("machine: {}\n", machine_name());
  for (const std::string& b : bundles) compare(b, rounds);
  return 0;
}

}  // namespace
}  // namespace asof::bench

int main(int argc, char** argv) {
  try {
    return asof::bench::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "xdc_peers: {}\n", e.what());
    return 1;
  }
}
