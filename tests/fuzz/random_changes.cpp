// Random changes of the corpora, with whatever the build has: without sanitizers many times as many as libFuzzer makes, for what
// targets compare. Each is a function of target and number.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "decoder/model/expanded_file.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/reached_code.h"
#include "tests/fuzz/record_mutator.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::fuzz {
namespace {

using Buffer = std::vector<uint8_t>;

// Packets of Intel PT and of ETM, whole: changes of single bytes seldom make any.
const std::vector<Buffer>& packets() {
  static const std::vector<Buffer> all = {
      {0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02,
       0x82},                                                                    // PSB
      {0x02, 0x23},                                                              // PSBEND
      {0x02, 0xf3},                                                              // OVF
      {0x02, 0x83},                                                              // TraceStop
      {0x19, 1, 2, 3, 4, 5, 6, 0},                                               // TSC
      {0x59, 7},                                                                 // MTC
      {0x02, 0x73, 0x10, 0, 0, 8, 0},                                            // TMA
      {0x02, 0x03, 0x20, 0},                                                     // CBR
      {0x99, 0x01},                                                              // MODE.Exec
      {0x99, 0x21},                                                              // MODE.TSX
      {0x02, 0x43, 0, 0x10, 0, 0, 0, 0},                                         // PIP
      {0x0d},                                                                    // TIP without an address
      {0x01},                                                                    // TIP.PGD without an address
      {0x1d},                                                                    // FUP without an address
      {0x2d, 0x10, 0x00},                                                        // TIP
      {0x31, 0x20, 0x00},                                                        // TIP.PGE
      {0x21, 0x10, 0x00},                                                        // TIP.PGD
      {0x3d, 0x12, 0x00},                                                        // FUP
      {0x06},                                                                    // TNT
      {0x02, 0xa3, 0xff, 0xff, 0xff, 0x1f, 0, 0},                                // long TNT
      {0x03},                                                                    // CYC
      {0, 0, 0},                                                                 // PAD
      {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80},  // A-Sync
      {0x01, 0x01, 0x00},                                                        // Trace Info
      {0x04},                                                                    // Trace On
      {0xf7},                                                                    // atoms
      {0x9d, 0x00, 0x04, 0x08, 0x10, 0, 0, 0, 0},                                // an address
      {0x06, 0x10},                                                              // Exception
      {0x02, 0x81, 0x01}};                                                       // Timestamp
  return all;
}

size_t place(const Buffer& b, test::SimRandom& random) { return random.below(b.size() + 1); }

void insert(Buffer& b, size_t at, std::span<const uint8_t> what) {
  b.insert(b.begin() + static_cast<std::ptrdiff_t>(at), what.begin(), what.end());
}

// A run of bytes of another input.
std::span<const uint8_t> part_of(const Buffer& other, test::SimRandom& random) {
  const size_t begin = place(other, random);
  return std::span(other).subspan(begin, std::min<size_t>(other.size() - begin, 1 + random.below(128)));
}

void change(Buffer& out, test::SimRandom& random) {
  std::map<std::string, Buffer> files;
  files["input"].swap(out);
  damage(files, {}, random);
  files["input"].swap(out);
}

// For mutate_record(), which knows libFuzzer's way to change bytes.
test::SimRandom* source = nullptr;
size_t change_bytes(uint8_t* data, size_t size, size_t most) {
  Buffer bytes(data, data + size);
  change(bytes, *source);
  if (bytes.size() > most) bytes.resize(most);
  std::ranges::copy(bytes, data);
  return bytes.size();
}

// What is inside of the records of a block stream, behind their checksums.
void change_record(Buffer& out, test::SimRandom& random) {
  source = &random;
  const size_t size = out.size(), most = 2 * size + 4096;
  const auto seed = static_cast<unsigned>(random.next());
  out.resize(most);
  out.resize(mutate_record(out.data(), size, most, seed, change_bytes));
}

class Changes {
 public:
  explicit Changes(const Target& target)
      : has_records_(std::ranges::find(kOfRecords, target.name) != kOfRecords.end()) {
    for (auto& [name, bytes] : read_corpus(std::string(ASOF_FUZZ_CORPUS) + "/" + target.name + ".tar.zst"))
      corpus_.push_back(std::move(bytes));
    if (target.name == std::string_view("archive")) add_unpacked();
    if (corpus_.empty()) throw std::runtime_error(std::string("no corpus of ") + target.name);
  }
  void make(uint64_t number, Buffer& out) const {
    test::SimRandom random(number);
    out = corpus_[random.below(corpus_.size())];
    if (has_records_ && number % 3 != 0) {
      for (uint64_t n = 1 + random.below(3); n > 0; --n) change_record(out, random);
      return;
    }
    for (uint64_t n = 1 + random.below(6); n > 0; --n) {
      switch (random.below(3)) {
        case 0:
          insert(out, place(out, random), packets()[random.below(packets().size())]);
          break;
        case 1:
          insert(out, place(out, random), part_of(corpus_[random.below(corpus_.size())], random));
          break;
        default:
          if (!out.empty()) change(out, random);
      }
    }
    if (out.size() > kMost) out.resize(kMost);
  }

 private:
  static constexpr size_t kMost = 1 << 18;
  static constexpr std::array<std::string_view, 2> kOfRecords = {"block_stream", "parts"};
  // A change of what is packed is found by its checksum.
  void add_unpacked() {
    const test::TempDir folder;
    for (size_t i = 0, packed = corpus_.size(); i < packed; ++i) {
      test::write_bytes(folder.path() / "packed", corpus_[i]);
      const auto bytes = expand_file(folder.path() / "packed", kMost);
      if (bytes && *bytes != corpus_[i]) corpus_.push_back(*bytes);
    }
  }
  bool has_records_;
  std::vector<Buffer> corpus_;
};

// What is being run: a signal's handler writes it down.
struct Running {
  const char* target = "";
  uint64_t number = 0;
  Buffer input;
  std::string keep;
};
Running running;

void on_signal(int number) {
  std::signal(number, SIG_DFL);
  fmt::print(stderr, "{} {}: signal {}\n", running.target, running.number, number);
  if (!running.keep.empty())
    test::write_bytes(
        std::filesystem::path(running.keep) / fmt::format("{}-{}", running.target, running.number),
        running.input);
  std::raise(number);
}

void run(const Target& target, uint64_t first, uint64_t runs) {
  const Changes changes(target);
  running.target = target.name;
  for (running.number = first; running.number != first + runs; ++running.number) {
    changes.make(running.number, running.input);
    // Memory of its own, so that a sanitizer sees a read beyond its end.
    const auto copy = std::make_unique<uint8_t[]>(running.input.size());
    std::ranges::copy(running.input, copy.get());
    target.run({copy.get(), running.input.size()});
    if (running.number % 128 == 0) note_reached_code();
  }
  note_reached_code();
  fmt::print("{} {}\n", target.name, runs);
  std::fflush(stdout);
}

}  // namespace
}  // namespace asof::fuzz

int main(int argc, char** argv) {
  using namespace asof::fuzz;
  std::vector<std::string> names;
  std::string coverage;
  uint64_t runs = 100, first = 0;
  CLI::App app("runs fuzz targets on random changes of their corpora");
  app.add_option("--target", names, "default: all");
  app.add_option("--runs", runs, "of each target");
  app.add_option("--first", first, "number of the first");
  app.add_option("--keep", running.keep, "folder for the input of a run that ends by a signal")
      ->check(CLI::ExistingDirectory);
  app.add_option("--coverage", coverage, "file for what code was reached (scripts/fuzz.sh coverage)");
  CLI11_PARSE(app, argc, argv);
  if (!coverage.empty() && !counts_reached_code()) {
    fmt::print(stderr, "this build does not count what code is reached: preset fuzz\n");
    return 1;
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) std::signal(number, on_signal);
  for (const Target& t : targets()) {
    if (names.empty() || std::ranges::find(names, t.name) != names.end()) run(t, first, runs);
  }
  if (!coverage.empty()) write_reached_code(coverage);
  return 0;
}
