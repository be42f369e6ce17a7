// Instructions, blocks, gaps and events by range-for: equal to what `asof decode` prints, for every number of
// jobs.
#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "api_test.h"
#include "program.h"

namespace asof_test {
namespace {

std::string line_of(const asof::Instruction& i) {
  char text[160];
  std::snprintf(text, sizeof text, "%d [%03d] %s: %llx ilen: %u insn: %s v%u %s", i.tid, i.cpu,
                seconds(i.time).c_str(), static_cast<unsigned long long>(i.ip), unsigned{i.size},
                hex_bytes(i.bytes, i.size).c_str(), i.version, std::string(asof::name(i.confidence)).c_str());
  return text;
}

std::vector<std::string> lines_of(const asof::Capture& capture, const asof::Filter& filter) {
  std::vector<std::string> out;
  for (const asof::Instruction& i : capture.instructions(filter)) out.push_back(line_of(i));
  return out;
}

std::vector<std::string> printed(const Input& input, const std::string& more) {
  std::vector<std::string> out = program_lines("decode " + input.arguments() +
                                               " --ns -F tid,cpu,time,ip,insn,insnlen,textver,conf " + more);
  for (std::string& line : out) line = words(line);
  return out;
}

void expect_equal(const std::vector<std::string>& got, const std::vector<std::string>& want) {
  ASSERT_EQ(got.size(), want.size());
  const auto [a, b] = std::mismatch(got.begin(), got.end(), want.begin());
  if (a != got.end()) FAIL() << "line " << a - got.begin() << ": " << *a << "\nwant: " << *b;
}

TEST(Flow, InstructionsEqualTheProgram) {
  expect_equal(lines_of(open(demo()), {}), printed(demo(), ""));
  EXPECT_EQ(printed(demo(), "").size(), 61625U);
  expect_equal(lines_of(open(demo_arm64()), {}), printed(demo_arm64(), ""));
  EXPECT_EQ(printed(demo_arm64(), "").size(), 22408U);
}

TEST(Flow, FiltersEqualTheProgram) {
  const asof::Capture capture = open(demo());
  expect_equal(lines_of(capture, {.cpus = {1}}), printed(demo(), "--cpu 1"));
  const int32_t tid = capture.instructions().next().front().tid;
  expect_equal(lines_of(capture, {.tids = {tid}}), printed(demo(), "--tid " + std::to_string(tid)));
  expect_equal(lines_of(capture, {.pids = {tid}}), printed(demo(), "--pid " + std::to_string(tid)));
  expect_equal(lines_of(capture, {.time = {6'000'030'000, 6'000'050'000}}),
               printed(demo(), "--time 6.00003,6.00005"));
  EXPECT_TRUE(lines_of(capture, {.cpus = {99}}).empty());
  expect_equal(lines_of(capture, {.text_at = asof::TextAt::kFirst}), printed(demo(), "--text-at first"));
}

TEST(Flow, TheNumberOfJobsChangesNothing) {
  for (const Input& input : {demo(), demo_arm64()}) {
    const asof::Capture capture = open(input);
    for (const asof::Order order : {asof::Order::kTime, asof::Order::kStream}) {
      const auto one = lines_of(capture, {.order = order, .jobs = 1});
      for (const unsigned jobs : {2U, 5U})
        expect_equal(lines_of(capture, {.order = order, .jobs = jobs}), one);
    }
  }
}

TEST(Flow, ByStreamOneCpuComesAfterTheOther) {
  auto want = printed(demo(), "--cpu 0");
  const auto second = printed(demo(), "--cpu 1");
  want.insert(want.end(), second.begin(), second.end());
  expect_equal(lines_of(open(demo()), {.order = asof::Order::kStream}), want);
}

TEST(Flow, LittleMemoryGivesUpTheOrderOverCpusOnly) {
  const asof::Capture capture = open(demo());
  auto all = capture.instructions({.max_memory = 1});
  std::map<int32_t, std::vector<std::string>> by_cpu;
  for (const asof::Instruction& i : all) by_cpu[i.cpu].push_back(line_of(i));
  EXPECT_GT(all.reordered(), 0U);
  expect_equal(by_cpu[0], printed(demo(), "--cpu 0"));
  expect_equal(by_cpu[1], printed(demo(), "--cpu 1"));
}

TEST(Flow, BlocksAreTheSameInstructions) {
  for (const Input& input : {demo(), demo_arm64()}) {
    const asof::Capture capture = open(input);
    auto blocks = capture.blocks();
    auto block = blocks.begin();
    uint32_t in_block = 0, offset = 0;
    for (const asof::Instruction& i : capture.instructions()) {
      ASSERT_FALSE(block == blocks.end());
      ASSERT_EQ(i.ip, block->ip + offset);
      ASSERT_EQ(i.time, block->time);
      ASSERT_EQ(i.size, block->lengths[in_block]);
      ASSERT_TRUE(std::equal(i.bytes, i.bytes + i.size, block->bytes + offset));
      ASSERT_LE(block->from, block->until);
      offset += i.size;
      if (++in_block < block->count) continue;
      ASSERT_EQ(offset, block->size);
      ++block;
      in_block = offset = 0;
    }
    EXPECT_TRUE(block == blocks.end());
  }
}

TEST(Flow, BranchesLeadWhereTheFlowGoes) {
  uint64_t direct = 0, fall_through = 0;
  for (const int32_t cpu : {0, 1}) {
    asof::Block last;  // kNone: none, or what comes after it is unknown
    for (const asof::FlowItem& item : open(demo()).flow({.cpus = {cpu}})) {
      const auto* block = std::get_if<asof::Block>(&item);
      if (block == nullptr) {
        last = {};
        continue;
      }
      const bool entered = (block->flags & (asof::kAfterGap | asof::kAsyncEntry)) != 0;
      if (!entered && last.branch == asof::Branch::kConditional) {
        const bool taken = (last.flags & asof::kTaken) != 0;
        ASSERT_EQ(block->ip, taken ? last.target : last.ip + last.size);
        ++(taken ? direct : fall_through);
      }
      last = *block;
    }
  }
  EXPECT_GT(direct, 1000U);
  EXPECT_GT(fall_through, 1000U);
}

// The demo's gap is from 6.000094999 to 6.000102.
TEST(Flow, AGapIsInEveryTimeThatItReachesInto) {
  const asof::Capture capture = open(demo());
  const auto gaps = [&](asof::Time first, asof::Time last) {
    size_t n = 0;
    for ([[maybe_unused]] const asof::Gap& g : capture.gaps({.time = {first, last}})) ++n;
    return n;
  };
  EXPECT_EQ(gaps(6'000'090'000, 6'000'096'000), 1U);
  EXPECT_EQ(gaps(6'000'097'000, 6'000'099'000), 1U);
  EXPECT_EQ(gaps(6'000'100'000, 6'000'110'000), 1U);
  EXPECT_EQ(gaps(6'000'103'000, 6'000'110'000), 0U);
}

TEST(Flow, OneWalkHasBlocksEventsAndGaps) {
  const asof::Capture capture = open(demo());
  size_t blocks = 0, events = 0, gaps = 0;
  for (const asof::FlowItem& item : capture.flow()) {
    blocks += std::holds_alternative<asof::Block>(item);
    events += std::holds_alternative<asof::Event>(item);
    gaps += std::holds_alternative<asof::Gap>(item);
  }
  const auto count = [](auto records) {
    size_t n = 0;
    for ([[maybe_unused]] const auto& r : records) ++n;
    return n;
  };
  EXPECT_EQ(blocks, count(capture.blocks()));
  EXPECT_EQ(events, count(capture.events()));
  EXPECT_EQ(gaps, count(capture.gaps()));
  EXPECT_GT(events, 0U);
}

TEST(Flow, EventsEqualTheProgram) {
  std::vector<std::string> got;
  for (const asof::Event& e : open(demo()).events()) {
    if (e.kind != asof::EventKind::kPsb && e.kind != asof::EventKind::kCbr) continue;
    got.push_back(std::to_string(e.tid) + " " + seconds(e.time) + ": " + std::string(asof::name(e.kind)));
  }
  std::vector<std::string> want;
  for (const std::string& line :
       program_lines("decode " + demo().arguments() + " --ns --itrace p -F tid,time")) {
    const std::string w = words(line);
    want.push_back(w.substr(0, w.find(':', w.find(':') + 1)));
  }
  expect_equal(got, want);
}

// The demo with a hole in its trace.
class Damaged : public ::testing::Test {
 protected:
  Damaged() {
    std::string name = (std::filesystem::temp_directory_path() / "asof-api-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    dir_ = name;
    std::filesystem::copy(demo().path, dir_ / "perf.data", std::filesystem::copy_options::recursive);
    const std::filesystem::path data = dir_ / "perf.data" / "data";
    std::fstream file(data, std::ios::binary | std::ios::in | std::ios::out);
    const auto size = static_cast<std::streamoff>(std::filesystem::file_size(data));
    for (const std::streamoff at : {size / 2, size * 2 / 3, size * 4 / 5}) {
      file.seekp(at);
      file.write("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    }
  }
  ~Damaged() override { std::filesystem::remove_all(dir_); }
  Input input() const { return {(dir_ / "perf.data").string(), demo().symfs}; }

 private:
  std::filesystem::path dir_;
};

TEST_F(Damaged, GapsEqualTheProgram) {
  std::vector<std::string> got;
  const asof::Capture capture = open(input());
  for (const asof::Gap& g : capture.gaps()) {
    EXPECT_LE(g.begin, g.end);
    EXPECT_FALSE(g.reason.empty());
    got.push_back(g.code);
  }
  std::vector<std::string> want;
  for (const std::string& line : program_lines("decode " + input().arguments() + " --itrace e"))
    want.push_back(line.substr(0, line.find(' ')));
  EXPECT_GE(want.size(), 2U);
  EXPECT_EQ(got, want);
  expect_equal(lines_of(capture, {}), printed(input(), ""));
}

TEST(Flow, BreakingOutIsSafeAtAnyInstruction) {
  const asof::Capture capture = open(large().value_or(demo()));
  for (const size_t stop : {0U, 1U, 2U, 1000U, 1024U, 1025U, 20'000U}) {
    for (const unsigned jobs : {1U, 4U}) {
      size_t n = 0;
      for ([[maybe_unused]] const asof::Instruction& i : capture.instructions({.jobs = jobs})) {
        if (n++ == stop) break;
      }
      EXPECT_EQ(n, stop + 1);
      n = 0;
      for ([[maybe_unused]] const asof::Call& c : capture.calls({.filter = {.jobs = jobs}})) {
        if (n++ == stop / 100) break;
      }
      EXPECT_EQ(n, stop / 100 + 1);
    }
  }
  // One that is never read starts nothing.
  const auto unread = capture.instructions();
}

TEST(Flow, ManyThreadsReadOneCapture) {
  const asof::Capture capture = open(demo());
  const auto want = lines_of(capture, {});
  std::vector<std::vector<std::string>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& lines : got) threads.emplace_back([&] { lines = lines_of(capture, {.jobs = 2}); });
  }
  for (const auto& lines : got) expect_equal(lines, want);
}

TEST(Flow, TwoReadersTakeTurnsInOneThread) {
  const asof::Capture capture = open(demo());
  auto a = capture.instructions({.jobs = 2});
  auto b = capture.instructions({.jobs = 2});
  auto at_b = b.begin();
  size_t n = 0;
  for (const asof::Instruction& i : a) {
    ASSERT_EQ(line_of(i), line_of(*at_b));
    ++at_b;
    ++n;
  }
  EXPECT_TRUE(at_b == b.end());
  EXPECT_EQ(n, 61625U);
}

TEST(Flow, RecordsOutliveTheCapture) {
  auto capture = std::make_optional(open(demo()));
  auto instructions = capture->instructions();
  asof::Text text = capture->text();
  capture.reset();
  std::vector<std::pair<const uint8_t*, std::string>> kept;  // bytes stay as long as the Records
  for (const asof::Instruction& i : instructions) kept.emplace_back(i.bytes, hex_bytes(i.bytes, i.size));
  EXPECT_EQ(kept.size(), 61625U);
  for (const auto& [bytes, hex] : kept) ASSERT_EQ(hex_bytes(bytes, (hex.size() + 1) / 3), hex);
  EXPECT_TRUE(instructions.next().empty()) << "the end stays the end";
  EXPECT_EQ(text.changes().size(), 10U);
}

}  // namespace
}  // namespace asof_test
