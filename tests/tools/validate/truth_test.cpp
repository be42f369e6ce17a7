// Truth files: what is read from good ones, and what is reported for others.
#include "tools/validate/truth.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/truth.h"

namespace asof {
namespace {

class TruthFiles : public ::testing::Test {
 protected:
  static std::vector<uint8_t> runs(uint64_t count) {
    test::ByteSink b;
    for (uint64_t i = 0; i < count; ++i) {
      b.u64(0x1000 + 16 * i), b.u32(8), b.u32(3),
          b.u32(i % 2 == 0 ? TruthRun::kTraceStart : TruthRun::kByException);
      b.u32(0), b.u64(100 + i);
    }
    return std::move(b).take();
  }
  void write(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream(dir.path() / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir.path() / name) << text;
  }
  std::string path() const { return dir.path().string(); }
  test::TempDir dir;
};

TEST_F(TruthFiles, RunsComeInOrder) {
  constexpr uint64_t kRuns = 20'000;  // more than one buffer
  write("cpu0.blocks.zst", test::zstd_compress(runs(kRuns)));
  auto reader = TruthReader::open(truth_file(path(), {.cpu = 0}));
  ASSERT_TRUE(reader.has_value());
  TruthRun run;
  uint64_t n = 0;
  for (; reader->next(run); ++n) {
    ASSERT_EQ(run.ip, 0x1000 + 16 * n);
    ASSERT_EQ(run.end(), run.ip + 8);
    ASSERT_EQ(run.count, 3U);
    ASSERT_EQ(run.time, static_cast<Time>(100 + n));
    ASSERT_EQ(run.flags, n % 2 == 0 ? TruthRun::kTraceStart : TruthRun::kByException);
  }
  EXPECT_EQ(n, kRuns);
  EXPECT_FALSE(reader->error().has_value());
}

TEST_F(TruthFiles, DamageIsDistinguishedFromTheEnd) {
  auto cut = test::zstd_compress(runs(20'000));
  cut.resize(cut.size() / 2);
  write("cpu0.blocks.zst", cut);
  auto odd = runs(3);
  odd.resize(odd.size() - 5);
  write("cpu1.blocks.zst", test::zstd_compress(odd));
  write("cpu2.blocks.zst", std::string("no zstd at all, but long enough to hold a record"));
  for (int cpu = 0; cpu < 3; ++cpu) {
    auto reader = TruthReader::open(truth_file(path(), {.cpu = cpu}));
    ASSERT_TRUE(reader.has_value());
    TruthRun run;
    while (reader->next(run)) {
    }
    ASSERT_TRUE(reader->error().has_value()) << cpu;
    EXPECT_EQ(reader->error()->code, Code::kBadTruth);
    EXPECT_FALSE(reader->next(run)) << "it stays at the end";
  }
  EXPECT_FALSE(TruthReader::open(truth_file(path(), {.cpu = 9})).has_value());
}

TEST_F(TruthFiles, CpusByTheirFiles) {
  EXPECT_FALSE(truth_ids(path()).has_value()) << "an empty folder";
  EXPECT_FALSE(truth_ids(path() + "/nowhere").has_value());
  for (const char* name : {"cpu10.blocks.zst", "cpu2.blocks.zst", "cpuX.blocks.zst", "cpu3.blocks",
                           "cpu-1.blocks.zst", "tid0.blocks.zst", "tid-4.blocks.zst"})
    write(name, std::string("x"));
  const auto cpus = truth_ids(path());
  ASSERT_TRUE(cpus.has_value());
  EXPECT_EQ(*cpus, (std::vector<TruthId>{{.cpu = 2}, {.cpu = 10}}));
}

TEST_F(TruthFiles, ThreadsHaveTheirOwn) {
  write("tid1201.blocks.zst", test::zstd_compress(runs(2)));
  const auto ids = truth_ids(path());
  ASSERT_TRUE(ids.has_value());
  ASSERT_EQ(*ids, (std::vector<TruthId>{{.tid = 1201}}));
  EXPECT_EQ(truth_name(ids->front()), "thread 1201");
  Stream stream;
  stream.tid = 1201;
  EXPECT_EQ(truth_id(stream), ids->front());
  stream.cpu = 3;
  EXPECT_EQ(truth_name(truth_id(stream)), "cpu 3");
  auto reader = TruthReader::open(truth_file(path(), ids->front()));
  ASSERT_TRUE(reader.has_value());
  TruthRun run;
  EXPECT_TRUE(reader->next(run));
  write("summary.json", std::string("{\"threads\":{\"1201\":{\"instructions\":12,\"ip_hash\":\"0x00ff\"}}}"));
  const auto summary = read_truth_summary(path());
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->at(ids->front()).instructions, 12U);
}

// CoreSight: one stream for each CPU that wrote trace of the thread.
TEST_F(TruthFiles, AThreadHasOneForEachCpuOfItsStreams) {
  for (const char* name : {"tid1201-cpu1.blocks.zst", "tid1201-cpu0.blocks.zst", "tid1201-.blocks.zst",
                           "tid1201cpu1.blocks.zst", "cpu1-tid1201.blocks.zst"})
    write(name, test::zstd_compress(runs(2)));
  const auto ids = truth_ids(path());
  ASSERT_TRUE(ids.has_value());
  ASSERT_EQ(*ids, (std::vector<TruthId>{{0, 1201}, {1, 1201}}));
  Stream stream;
  stream.tid = 1201;
  stream.name = "tid1201:cpu1";
  EXPECT_EQ(truth_id(stream), ids->back());
  EXPECT_EQ(truth_name(ids->back()), "thread 1201 on cpu 1");
  EXPECT_TRUE(TruthReader::open(truth_file(path(), ids->back())).has_value());
  write("summary.json",
        std::string("{\"threads\":{\"1201-cpu1\":{\"instructions\":12,\"ip_hash\":\"0x00ff\"}}}"));
  const auto summary = read_truth_summary(path());
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->at(ids->back()).instructions, 12U);
}

TEST_F(TruthFiles, SummaryMustHoldCounts) {
  EXPECT_FALSE(read_truth_summary(path()).has_value());
  for (const char* bad :
       {"{", "[]", "{\"cpus\":[]}", "{\"cpus\":{\"x\":{\"instructions\":1,\"ip_hash\":\"0x1\"}}}",
        "{\"cpus\":{\"0\":{\"instructions\":-1,\"ip_hash\":\"0x1\"}}}",
        "{\"cpus\":{\"0\":{\"instructions\":1,\"ip_hash\":1}}}",
        "{\"cpus\":{\"0\":{\"instructions\":1,\"ip_hash\":\"zz\"}}}",
        "{\"cpus\":{\"0\":{\"instructions\":1}}}",
        "{\"threads\":{\"-1\":{\"instructions\":1,\"ip_hash\":\"0x1\"}}}"}) {
    write("summary.json", std::string(bad));
    const auto summary = read_truth_summary(path());
    ASSERT_FALSE(summary.has_value()) << bad;
    EXPECT_EQ(summary.error().code, Code::kBadTruth);
  }
  write("summary.json", std::string("{\"cpus\":{\"0\":{\"instructions\":12,\"ip_hash\":\"0x00ff\"},\"3\":{"
                                    "\"instructions\":1,\"ip_hash\":\"ab\"}}}"));
  const auto summary = read_truth_summary(path());
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->at({.cpu = 0}).instructions, 12U);
  EXPECT_EQ(summary->at({.cpu = 0}).ip_hash, 0xffU);
  EXPECT_EQ(summary->at({.cpu = 3}).ip_hash, 0xabU);
}

}  // namespace
}  // namespace asof
