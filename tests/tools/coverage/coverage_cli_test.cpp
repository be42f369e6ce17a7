// `asof coverage` of a real program whose every instruction was counted when it ran: read back by genhtml and by
// parsers of the formats. Then of the demo's kernel, whose text changes.
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/tools/stepped_test.h"

namespace asof::test {
namespace {

// Lines count from 1. work(i) for i below 200: rare() 20 times, often() 180 times, its loop 0 to 4 times.
constexpr const char* kSource = R"(int rare(int x) {
  return x * 3 + 1;
}
int often(int x, int n) {
  int s = 0;
  for (int i = 0; i < n; ++i)
    s += x ^ i;
  return s;
}
int never(int x) {
  return x - 1;
}
int work(int x) {
  if (x % 10 == 0)
    return rare(x);
  return often(x, x % 5);
}
void _start(void) {
  volatile int sum = 0;
  for (int i = 0; i < 200; ++i)
    sum += work(i);
  __asm__ volatile("syscall" ::"a"(60), "D"(0));
}
)";
constexpr uint64_t kLoops = 20 * (1 + 2 + 3 + 4) * 2;  // of x % 5 that are not of x % 10 == 0

class CoverageTest : public SteppedTest {
 protected:
  void SetUp() override { record(kSource, "-O0"); }
  std::string coverage(const std::string& options, const std::string& file) {
    const Ran r = run_asof(fmt::format("coverage {} {} -o {}", path("perf.data"), options, path(file)));
    EXPECT_EQ(r.status, 0) << r.err;
    said_ = r.err;
    return read_file(path(file));
  }
  std::string said_;
};

TEST_F(CoverageTest, LinesFunctionsAndBranchesAreThoseThatRan) {
  const std::string info = coverage("", "c.info");
  std::map<std::string, std::string> records;
  for (const std::string& line : lines_of(info)) {
    const size_t colon = line.find(':'), comma = line.find(',');
    if (colon == std::string::npos) continue;
    if (line.starts_with("DA:") || line.starts_with("FNDA:") || line.starts_with("FN:")) {
      records[line.starts_with("DA:") ? line.substr(0, comma) : line.substr(0, colon) + line.substr(comma)] =
          line.starts_with("DA:") ? line.substr(comma + 1) : line.substr(colon + 1, comma - colon - 1);
    } else {
      records[line] = "";
    }
  }
  EXPECT_TRUE(records.contains("SF:" + path("program.c"))) << info;
  const std::map<std::string, std::string> want = {
      {"DA:2", "20"},        {"DA:3", "20"},      {"DA:5", "180"},      {"DA:7", std::to_string(kLoops)},
      {"DA:8", "180"},       {"DA:11", "0"},      {"DA:14", "200"},     {"DA:15", "20"},
      {"DA:16", "180"},      {"DA:21", "200"},    {"DA:22", "1"},       {"FNDA,rare", "20"},
      {"FNDA,often", "180"}, {"FNDA,never", "0"}, {"FNDA,work", "200"}, {"FNDA,_start", "1"},
      {"FN,rare", "1"},      {"FN,work", "13"}};
  for (const auto& [what, value] : want) EXPECT_EQ(records[what], value) << what << "\n" << info;
  EXPECT_TRUE(records.contains("FNF:5") && records.contains("FNH:4")) << info;
  // x % 10 == 0 jumps over the call of rare(), which is the taken side.
  EXPECT_NE(info.find("BRDA:14,0,0,180\nBRDA:14,0,1,20\n"), std::string::npos) << info;
  EXPECT_NE(said_.find("which are certain or proved"), std::string::npos) << said_;
  EXPECT_NE(info.find("certain or proved, nothing else"), std::string::npos);
}

TEST_F(CoverageTest, GenhtmlOpensIt) {
  if (!runs("genhtml --version")) GTEST_SKIP() << "genhtml is not installed (Debian package lcov)";
  const std::string info = coverage("", "c.info");
  int status = -1;
  const std::string said =
      output_of(fmt::format("genhtml --branch-coverage -o {} {}", path("html"), path("c.info")), &status);
  ASSERT_EQ(status, 0) << said;
  const auto number = [&](const std::string& key) {
    std::smatch found;
    return std::regex_search(info, found, std::regex(key + ":([0-9]+)\n")) ? found[1].str() : "";
  };
  EXPECT_NE(said.find(fmt::format("({} of {} lines)", number("LH"), number("LF"))), std::string::npos)
      << said;
  EXPECT_NE(said.find("(4 of 5 functions)"), std::string::npos) << said;
  EXPECT_NE(said.find(fmt::format("({0} of {0} branches)", number("BRF"))), std::string::npos) << said;
  EXPECT_EQ(said.find("WARNING"), std::string::npos) << said;
}

TEST_F(CoverageTest, CoberturaHasTheSame) {
  const std::string xml = coverage("", "c.xml");
  EXPECT_NE(xml.find("<line number=\"7\" hits=\"" + std::to_string(kLoops) + "\"/>"), std::string::npos)
      << xml;
  EXPECT_NE(xml.find("<line number=\"11\" hits=\"0\"/>"), std::string::npos);
  EXPECT_NE(xml.find("<line number=\"14\" hits=\"200\" branch=\"true\" condition-coverage=\"100% (2/2)\"/>"),
            std::string::npos)
      << xml;
  EXPECT_NE(xml.find("<method name=\"never\" signature=\"\" line-rate=\"0\""), std::string::npos);
  if (!runs("python3 --version")) GTEST_SKIP() << "python3 is not installed: the XML is not parsed";
  EXPECT_TRUE(runs("python3 -c 'import xml.etree.ElementTree as t; t.parse(\"" + path("c.xml") + "\")'"));
}

// Blocks cover every instruction that ran, and begin at one.
TEST_F(CoverageTest, DrcovHasTheBlocks) {
  const std::string text = coverage("", "c.drcov");
  ASSERT_TRUE(
      text.starts_with("DRCOV VERSION: 2\nDRCOV FLAVOR: drcov\nModule Table: version 2, count 1\n"
                       "Columns: id, base, end, entry, path\n"))
      << text.substr(0, 200);
  std::smatch module, table;
  ASSERT_TRUE(
      std::regex_search(text, module, std::regex("\n +0, (0x[0-9a-f]+), (0x[0-9a-f]+), 0x0+, (.*)\n")));
  EXPECT_EQ(module[3].str(), path("program"));
  ASSERT_TRUE(std::regex_search(text, table, std::regex("BB Table: ([0-9]+) bbs\n")));
  const uint64_t base = std::stoull(module[1].str(), nullptr, 16),
                 end = std::stoull(module[2].str(), nullptr, 16);
  const std::string bytes = text.substr(static_cast<size_t>(table.position() + table.length()));
  const size_t blocks = std::stoul(table[1].str());
  ASSERT_EQ(bytes.size(), 8 * blocks);
  std::set<Addr> covered;
  for (size_t i = 0; i < blocks; ++i) {
    uint32_t start = 0;
    uint16_t size = 0, id = 1;
    std::memcpy(&start, &bytes[8 * i], 4);
    std::memcpy(&size, &bytes[8 * i + 4], 2);
    std::memcpy(&id, &bytes[8 * i + 6], 2);
    EXPECT_EQ(id, 0);
    EXPECT_TRUE(ran_.counts.contains(base + start)) << std::hex << start;
    for (uint16_t b = 0; b < size; ++b)
      EXPECT_TRUE(covered.insert(base + start + b).second) << "in two blocks";
  }
  for (const auto& [at, count] : ran_.counts) EXPECT_TRUE(covered.contains(at)) << std::hex << at;
  EXPECT_FALSE(covered.contains(functions_.at("never")));
  EXPECT_GE(base, 0x400000U);
  EXPECT_GT(end, *covered.rbegin());
}

// The same bytes with every number of threads.
TEST_F(CoverageTest, ThreadsMakeNoDifference) {
  for (const char* file : {"a.info", "a.xml", "a.drcov"}) {
    const std::string one = coverage("-j1", file);
    EXPECT_EQ(coverage("-j4", file), one) << file;
  }
}

// A kernel whose lines are the offsets of its bytes: the text that ran before and after its changes is told apart.
TEST(CoverageOfKernel, VersionsOfTextAreTestsOfTheirOwn) {
  if (std::system("as --version >/dev/null 2>&1 && ld --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "binutils are not installed";
  const TempDir dir;
  std::string text = ".file 1 \"/src/vmlinux.c\"\n.text\n.globl _stext, _start\n_stext: _start:\n";
  for (int i = 0; i < 0x1000; ++i) text += fmt::format(".loc 1 {}\nnop\n", i + 1);
  std::ofstream(dir.path() / "k.s") << text;
  const std::string kernel = dir.path() / "vmlinux";
  ASSERT_EQ(
      std::system(fmt::format("cd {} && as -g -o k.o k.s && ld -Ttext=0xffffffff80400000 -o vmlinux k.o",
                              dir.path().string())
                      .c_str()),
      0);
  const auto tests_in = [&](const std::string& options) {
    const Ran r = run_asof("coverage " + kDemo + " --vmlinux " + kernel + " " + options);
    EXPECT_EQ(r.status, 0) << r.err;
    std::map<std::string, std::set<int>> covered;  // lines that ran, by test
    std::string test;
    for (const std::string& line : lines_of(r.out)) {
      int number = 0;
      unsigned long count = 0;
      if (line.starts_with("TN:")) test = line.substr(3);
      if (std::sscanf(line.c_str(), "DA:%d,%lu", &number, &count) == 2 && count != 0)
        covered[test].insert(number);
    }
    return covered;
  };
  const auto together = tests_in(""), apart = tests_in("--versions");
  ASSERT_EQ(together.size(), 1U);
  ASSERT_GE(apart.size(), 3U);
  // The site that is switched on and off: update_process_times+0x2b, at 0xdb of the text.
  EXPECT_TRUE(apart.at("text_version_1").contains(0xdc));
  EXPECT_TRUE(apart.at("text_version_2").contains(0xdc));
  EXPECT_FALSE(apart.at("text_version_2").contains(1 + 0xe0)) << "text that never changed has one version";
  std::set<int> all;
  for (const auto& [test, lines] : apart) all.insert(lines.begin(), lines.end());
  EXPECT_EQ(all, together.begin()->second);
  const Ran blocks = run_asof("coverage --format drcov --versions " + kDemo, "| strings | head -40");
  EXPECT_NE(blocks.out.find(" (text version 2)"), std::string::npos) << blocks.out;
}

// What is not certain is left out, counted, and said.
TEST(CoverageOfKernel, UncertainCodeCountsOnlyOnRequest) {
  const Ran report = run_asof("report --catalogue --format jsonl " + kDemo);
  uint64_t sure = 0, unsure = 0;
  for (const std::string& line : lines_of(report.out)) {
    const auto j = nlohmann::json::parse(line);
    if (j["type"] != "confidence") continue;
    const bool counts = j["name"] == "certain" || j["name"] == "proved";
    (counts ? sure : unsure) += j["instructions"].get<uint64_t>();
  }
  ASSERT_GT(unsure, 0U) << "the demo has no doubtful code with a catalogue any more";
  const auto number = [](const std::string& said, const std::string& before) {
    std::smatch found;
    if (!std::regex_search(said, found, std::regex("([0-9 ]+) " + before))) return uint64_t{0};
    std::string digits = found[1].str();
    std::erase(digits, ' ');
    return uint64_t{std::stoull(digits)};
  };
  const std::string options = "coverage --catalogue --format drcov -o /dev/null " + kDemo;
  const Ran strict = run_asof(options), lax = run_asof(options + " --uncertain");
  EXPECT_EQ(number(strict.err, "instructions count"), sure) << strict.err;
  EXPECT_EQ(number(strict.err, "are neither and do not"), unsure) << strict.err;
  EXPECT_EQ(number(lax.err, "instructions count"), sure + unsure) << lax.err;
}

}  // namespace
}  // namespace asof::test
