// Captures with ground truth, opened: the text at known addresses and times, who ran where, and what is
// reported about damage.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "decoder/model/image.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/skip_without.h"

namespace asof {
namespace {

using namespace test;

std::string shared(const std::string& path) { return std::string(ASOF_SHARED_DIR) + "/" + path; }

Bytes from_hex(const std::string& text) {
  Bytes out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return out;
}

class Board : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = shared("captures/x86-board-" + GetParam());
    SKIP_WITHOUT(folder_);
    auto opened = open_capture(folder_ + "/perf.data", closed_options());
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture_.emplace(std::move(*opened));
  }
  const TextStore& text() const { return *capture_->text; }
  std::string folder_;
  std::optional<Capture> capture_;
};

TEST_P(Board, EveryPokeSeparatesOldFromNew) {
  std::ifstream lines(folder_ + "/truth/pokes.jsonl");
  size_t count = 0, wrong = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto poke = nlohmann::json::parse(line);
    const Addr addr = std::stoull(poke["addr"].get<std::string>(), nullptr, 16);
    const Time time = poke["time"].get<Time>();
    const Bytes before = from_hex(poke["old"].get<std::string>()),
                after = from_hex(poke["new"].get<std::string>());
    wrong += bytes_at(text(), kKernelSpace, addr, before.size(), time - 1) == before ? 0 : 1;
    wrong += bytes_at(text(), kKernelSpace, addr, after.size(), time + 1) == after ? 0 : 1;
    ++count;
  }
  EXPECT_GT(count, 100U);
  EXPECT_EQ(count, text().pokes().size());
  EXPECT_EQ(wrong, 0U);
}

// All kernel text at the end equals the copy taken then; so does what is known of modules.
TEST_P(Board, LastTextEqualsEndSnapshot) {
  auto end = ElfImage::open(folder_ + "/kcore.end");
  ASSERT_TRUE(end.has_value());
  size_t known = 0, different = 0;
  for (const ElfSegment& segment : (*end)->segments()) {
    Bytes page(4096);
    for (size_t at = 0; at + page.size() <= segment.bytes.size();) {
      const size_t n = text().read(kKernelSpace, segment.address + at, kTimeMax, page);
      for (size_t i = 0; i < n; ++i) different += page[i] == segment.bytes[at + i] ? 0 : 1;
      known += n;
      at += n == 0 ? 1 : n;
      if (n == 0) at = (at + 15) & ~size_t{15};
    }
  }
  EXPECT_GE(known, 0xe01d32U);
  EXPECT_EQ(different, 0U);
}

TEST_P(Board, HolesAndFreedTextAreUnknown) {
  // Between modules, after the last one, init text: no record backs them.
  auto symbol = capture_->symbols.named("_einittext");
  ASSERT_FALSE(symbol.empty());
  EXPECT_EQ(contents(text(), kKernelSpace, symbol[0]->range.begin - 16, 1, kTimeMax),
            (std::vector<Bytes>{{}}));
  auto start = ElfImage::open(folder_ + "/perf.data/kcore_dir/kcore");
  ASSERT_TRUE(start.has_value());
  size_t zero_pages = 0;
  for (const ElfSegment& segment : (*start)->segments()) {
    if (segment.address < 0xffffffffc0000000) continue;
    for (size_t at = 0; at + 4096 <= segment.bytes.size(); at += 4096) {
      const auto page = segment.bytes.subspan(at, 4096);
      if (std::any_of(page.begin(), page.end(), [](uint8_t b) { return b != 0; })) continue;
      ++zero_pages;
      EXPECT_EQ(contents(text(), kKernelSpace, segment.address + at, 1, kTimeMin + 1),
                (std::vector<Bytes>{{}}));
    }
  }
  EXPECT_GT(zero_pages, 0U);
}

TEST_P(Board, BpfProgramsLiveFromLoadToUnload) {
  ASSERT_FALSE(capture_->bpf_programs.empty());
  for (const BpfProgram& program : capture_->bpf_programs) {
    EXPECT_TRUE(program.has_image) << program.name;
    EXPECT_TRUE(program.name.starts_with("bpf_prog_" + program.tag)) << program.name;
    ASSERT_EQ(program.functions.size(), 1U);
    const AddrRange range = program.functions[0];
    const Time inside = program.unloaded == kTimeMax
                            ? program.loaded + 1
                            : program.loaded + (program.unloaded - program.loaded) / 2;
    const Cell cell = text().cell(kKernelSpace, range.begin);
    bool found = false;
    for (const Version& version : cell.versions) {
      if (!version.possible_in({inside, inside}) || version.bytes == nullptr) continue;
      const Origin& origin = text().origin(version.origin);
      found = found || (origin.kind == OriginKind::kBpfImage && origin.id == program.id);
    }
    EXPECT_TRUE(found) << program.name;
    EXPECT_EQ(bytes_at(text(), kKernelSpace, range.begin, range.size(), inside).size(), range.size());
    auto named = capture_->symbols.find(kKernelSpace, range.begin + 1, inside);
    ASSERT_TRUE(named.has_value());
    EXPECT_EQ(named->symbol->name, program.name);
  }
  EXPECT_EQ(contents(text(), kKernelSpace, capture_->bpf_programs[0].functions[0].begin, 1, 1),
            (std::vector<Bytes>{{}}));
}

TEST_P(Board, ConfigurationStreamsAndContexts) {
  EXPECT_EQ(capture_->kind, "perf.data directory");
  EXPECT_EQ(capture_->machine, "x86_64");
  ASSERT_TRUE(capture_->x86.time.has_value());
  EXPECT_EQ(capture_->x86.time->shift, 31);
  EXPECT_FALSE(capture_->x86.has_cyc);
  EXPECT_TRUE(capture_->x86.cpu.intel);
  ASSERT_EQ(capture_->streams.size(), 2U);
  for (const Stream& stream : capture_->streams) {
    EXPECT_GE(stream.cpu, 0);
    ASSERT_FALSE(stream.contexts.empty());
    EXPECT_TRUE(
        std::is_sorted(stream.contexts.begin(), stream.contexts.end(),
                       [](const ContextChange& a, const ContextChange& b) { return a.time < b.time; }));
  }
  for (const Notice& notice : capture_->notices) {
    const bool expected = !is_error_or_loss(notice.code) || notice.code == Code::kCodeWithoutBytes;
    EXPECT_TRUE(expected) << notice.code << " " << notice.where << ": " << notice.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(X86, Board, ::testing::Values("small", "storm", "storm-tsc1ms", "userkernel"),
                         [](const auto& info) {
                           std::string n = info.param;
                           std::replace(n.begin(), n.end(), '-', '_');
                           return n;
                         });

TEST(BoardSmall, TrampolineComesFromTheWatcher) {
  const std::string folder = shared("captures/x86-board-small");
  SKIP_WITHOUT(folder);
  auto capture = open_capture(folder + "/perf.data", closed_options());
  ASSERT_TRUE(capture.has_value());
  const auto names = capture->symbols.named("bpf_trampoline_6442550026");
  ASSERT_EQ(names.size(), 1U);
  const Addr addr = names[0]->range.begin;
  const Time from = names[0]->from;
  EXPECT_GT(from, 0);
  EXPECT_EQ(bytes_at(*capture->text, kKernelSpace, addr, 4, from + 1'000'000),
            (Bytes{0x55, 0x48, 0x89, 0xe5}));
  EXPECT_EQ(contents(*capture->text, kKernelSpace, addr, 1, from - 1), (std::vector<Bytes>{{}}));
}

TEST(BoardUserKernel, ProgramAndVdsoComeFromTheSymfs) {
  const std::string folder = shared("captures/x86-board-userkernel");
  SKIP_WITHOUT(folder);
  auto capture = open_capture(folder + "/perf.data", closed_options());
  ASSERT_TRUE(capture.has_value());
  Space space = kNoSpace;
  for (const Stream& stream : capture->streams) {
    for (const ContextChange& change : stream.contexts) {
      if (change.pid == 1) space = change.space;
    }
  }
  ASSERT_NE(space, kNoSpace);
  auto init = ElfImage::open(folder + "/perf.data/symfs/init");
  ASSERT_TRUE(init.has_value());
  const auto file = (*init)->bytes();
  EXPECT_EQ(bytes_at(*capture->text, space, 0x401000, 64, 0),
            Bytes(file.begin() + 0x1000, file.begin() + 0x1040));
  EXPECT_EQ(bytes_at(*capture->text, space, 0x7ffee09fd000, 4, 0), (Bytes{0x7f, 'E', 'L', 'F'}));
  EXPECT_EQ(contents(*capture->text, space, 0x400000, 1, 0), (std::vector<Bytes>{{}}));
  auto main = capture->symbols.named("main");
  ASSERT_FALSE(main.empty());
  EXPECT_EQ(main[0]->space, space);
  EXPECT_EQ(main[0]->dso, "/init");
  EXPECT_EQ(capture->tasks.comm(1, 0), "init");
  EXPECT_NE(find_notice(*capture, Code::kFileNotVerified), nullptr);  // no build-id recorded: reported
}

}  // namespace
}  // namespace asof
