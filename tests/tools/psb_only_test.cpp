// Live text with next to no time: a board capture whose trace keeps no timing packet but the TSC of its sync
// points. Text, records and truth are those of the recording. A sync point comes once in thousands of
// instructions, so nearly every visit to changed text must be told by the trace; what it cannot tell must be
// said to be in doubt. Skipped where the captures beside the project are absent.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "arch/x86/packet.h"
#include "decoder/capture.h"
#include "decoder/pipeline.h"
#include "tools/compare.h"
#include "tools/truth.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

// The trace without time: sync points keep their TSC.
std::vector<uint8_t> without_timing(std::span<const uint8_t> in) {
  using x86::Pk;
  std::vector<uint8_t> out;
  bool sync = false;
  uint8_t block_bytes = 0;
  for (const uint8_t *p = in.data(), *end = p + in.size(); p < end;) {
    const x86::Packet k = x86::read_packet(p, end, block_bytes);
    if (k.type == Pk::kEnd || k.type == Pk::kBad || k.size == 0) break;
    block_bytes = x86::next_block_bytes(k, block_bytes);
    if (k.type == Pk::kPsb) sync = true;
    if (k.type == Pk::kPsbend || k.type == Pk::kOvf) sync = false;
    const bool timing = k.type == Pk::kTma || k.type == Pk::kMtc || k.type == Pk::kCyc ||
                        k.type == Pk::kCbr || (k.type == Pk::kTsc && !sync);
    if (!timing && k.type != Pk::kPad) out.insert(out.end(), p, p + k.size);
    p += k.size;
  }
  return out;
}

class Counter : public ChunkConsumer {
 public:
  explicit Counter(std::string directory) : directory_(std::move(directory)) {}

  void deliver(Chunk& chunk, const Stream& stream, Prepared*) override {
    if (stream.cpu != cpu_) start(stream.cpu);
    size_t gap = 0;
    const auto gaps_before = [&](size_t position) {
      for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= position; ++gap) {
        comparer_->add_gap(chunk.gaps[gap].code, chunk.gaps[gap].reason);
        ++gaps[chunk.gaps[gap].code];
      }
    };
    for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
      gaps_before(step.position());
      add(*step);
    }
    gaps_before(chunk.steps.size());
  }
  void finish() {
    if (comparer_ == nullptr) return;
    comparer_->finish();
    results[cpu_] = comparer_->result();
    comparer_.reset();
  }

  std::map<int, CompareResult> results;
  std::map<std::string, uint64_t> gaps;

 private:
  void start(int cpu) {
    finish();
    cpu_ = cpu;
    auto reader = TruthReader::open(truth_file(directory_, cpu));
    ASSERT_TRUE(reader.has_value());
    reader_.emplace(std::move(*reader));
    comparer_ = std::make_unique<Comparer>([this](TruthRun& run) { return reader_->next(run); });
  }
  void add(const Step& step) {
    const Block& b = *step.block;
    DecodedPiece piece{b.ip, 0, step.count, b.lengths, step.time, step.confidence, 0};
    for (uint32_t i = 0; i < step.count; ++i) piece.bytes += b.lengths[i];
    comparer_->add(piece);
  }

  std::string directory_;
  int cpu_ = -1;
  std::optional<TruthReader> reader_;
  std::unique_ptr<Comparer> comparer_;
};

TEST(PsbOnly, NothingSureIsWrongOnTheStormBoard) {
  const std::string board = std::string(ASOF_SHARED_DIR) + "/captures/x86-board-storm";
  if (!fs::exists(board)) GTEST_SKIP() << "captures beside the project are absent";
  CaptureOptions options;
  options.symfs = board + "/perf.data/symfs";
  auto capture = open_capture(board + "/perf.data", options);
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  std::vector<std::vector<uint8_t>> traces;
  traces.reserve(capture->streams.size());
  for (Stream& s : capture->streams) {
    std::vector<uint8_t> scratch;
    traces.push_back(without_timing(s.bytes(s.begin(), s.end(), scratch)));
    StreamPiece piece;
    piece.bytes = traces.back();
    piece.reference = s.pieces[0].reference;
    s.pieces = {piece};
  }
  Counter counter(board + "/truth");
  ASSERT_TRUE(run_pipeline(*capture, {.jobs = 2}, ChunkOrder::kByStream, counter).has_value());
  counter.finish();
  ASSERT_EQ(counter.results.size(), 2U);
  for (const auto& [cpu, r] : counter.results) {
    SCOPED_TRACE(cpu);
    constexpr auto kCertain = static_cast<size_t>(Confidence::kCertain),
                   kProved = static_cast<size_t>(Confidence::kProved);
    EXPECT_EQ(r.wrong_by_confidence[kCertain], 0U);
    EXPECT_EQ(r.wrong_by_confidence[kProved], 0U);
    EXPECT_GT(r.right, 100'000U);
    EXPECT_EQ(r.late, 0U);
    // perf runs away on nearly all of this CPU; here nearly all of it is known.
    const uint64_t sure = r.right_by_confidence[kCertain] + r.right_by_confidence[kProved];
    EXPECT_GT(sure * 100, r.right * (cpu == 1 ? 95 : 50));
    EXPECT_LT(r.wrong * 10'000, r.right);
    std::string line = std::to_string(r.right) + " right, " + std::to_string(r.wrong) + " wrong, " +
                       std::to_string(r.missing) + " missing; right by confidence";
    for (const uint64_t n : r.right_by_confidence) line += " " + std::to_string(n);
    line += "; wrong by confidence";
    for (const uint64_t n : r.wrong_by_confidence) line += " " + std::to_string(n);
    RecordProperty("cpu" + std::to_string(cpu), line);
  }
}

}  // namespace
}  // namespace asof::test
