// Text at a time: equal to what `asof text` prints.
#include <algorithm>
#include <filesystem>

#include "../support/temp_dir.h"
#include "api_test.h"
#include "program.h"

namespace asof_test {
namespace {

bool is_hex_pair(const std::string& word) {
  return word.size() == 2 && std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0 && std::isupper(c) == 0;
         });
}

// The bytes in lines of `asof text ADDRESS@TIME`: mark, address, bytes, instruction, <origin>.
std::string printed_bytes(const std::vector<std::string>& lines) {
  std::string out;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::istringstream in(lines[i]);
    std::string word;
    in >> word;
    while (in >> word && is_hex_pair(word)) out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

void compare_with_program(const Input& input) {
  const asof::Capture capture = open(input);
  const asof::Text text = capture.text();
  size_t compared = 0;
  for (const asof::TextChange& change : text.changes()) {
    const auto symbol = text.symbol(change.address, change.time);
    ASSERT_TRUE(symbol.has_value());
    for (const asof::Time time : {change.time - 1, change.time, change.time + 1}) {
      const auto image = text.at(symbol->range, time);
      ASSERT_TRUE(image.has_value());
      ASSERT_TRUE(image->known(0, image->bytes.size()));
      char where[64];
      std::snprintf(where, sizeof where, "%llx@%s", static_cast<unsigned long long>(symbol->range.begin),
                    seconds(time).c_str());
      const auto lines = program_lines("text 0x" + std::string(where) + " -i " + input.arguments());
      ASSERT_EQ(printed_bytes(lines), hex_bytes(image->bytes.data(), image->bytes.size())) << where;
      ++compared;
    }
  }
  EXPECT_GE(compared, 30U);
}

TEST(Text, AtATimeEqualsTheProgram) { compare_with_program(demo()); }
TEST(Text, AtATimeEqualsTheProgramOnArm64) { compare_with_program(demo_arm64()); }

TEST(Text, ChangesShowInTheImage) {
  const asof::Text text = open(demo()).text();
  ASSERT_EQ(text.changes().size(), 10U);
  for (const asof::TextChange& c : text.changes()) {
    const asof::AddressRange range{c.address, c.address + c.old_bytes.size()};
    const auto before = text.at(range, c.time - 1), after = text.at(range, c.time + 1);
    ASSERT_TRUE(before && after);
    EXPECT_TRUE(std::ranges::equal(before->bytes, c.old_bytes));
    EXPECT_TRUE(std::ranges::equal(after->bytes, c.new_bytes));
    EXPECT_EQ(text.source(after->sources[0]).kind, asof::SourceKind::kPoke);
    const asof::TextCell cell = text.cell(c.address);
    EXPECT_GE(cell.versions.size(), 2U);
    EXPECT_LE(cell.range.begin, c.address);
    EXPECT_EQ(text.cells(range).size(), 1U);
  }
}

// A block stream has no other text: what was there before a change is known from its record.
TEST(Text, BeforeAChangeIsNotOfThatChange) {
  const asof::test::TempDir dir;
  const std::string alone = dir.path() / "perf.data";  // without its copy of kcore
  std::filesystem::copy_file(ASOF_TEST_DATA "/demo/perf.data/data", alone);
  const asof::Text text = open({alone, {}}).text();
  const asof::TextChange& c = text.changes()[0];
  const asof::AddressRange range{c.address, c.address + c.old_bytes.size()};
  const auto before = text.at(range, c.time - 1), after = text.at(range, c.time + 1);
  ASSERT_TRUE(before && after);
  const asof::Source source = text.source(before->sources[0]);
  EXPECT_EQ(source.kind, asof::SourceKind::kBeforePoke);
  EXPECT_EQ(source.id, 0U);
  EXPECT_EQ(name(source.kind), "before poke");
  EXPECT_EQ(text.source(after->sources[0]).kind, asof::SourceKind::kPoke);
}

// Changes have records; a module may be replaced without one.
TEST(Text, WhereAnotherVersionIsPossibleIsADoubt) {
  const asof::Text text = open(demo()).text();
  std::vector<asof::AddressRange> ranges = {{0xffffffffc0000000, 0xffffffffc0000020}};
  for (const asof::TextChange& c : text.changes())
    ranges.push_back({c.address, c.address + c.new_bytes.size()});
  const asof::Time time = text.changes().front().time;
  size_t doubtful = 0, certain = 0;
  for (const asof::AddressRange& range : ranges) {
    const auto image = text.at(range, time);
    ASSERT_TRUE(image.has_value());
    ASSERT_EQ(image->doubts.size(), range.end - range.begin);
    for (size_t i = 0; i < image->doubts.size(); ++i) {
      size_t possible = 0;
      bool unsure = false;
      for (const asof::TextVersion& v : text.cell(range.begin + i).versions) {
        if (v.from > time || v.until < time) continue;
        ++possible;
        unsure = unsure || v.unsure;
      }
      EXPECT_EQ(image->doubts[i] != 0, unsure || possible > 1) << range.begin << "+" << i;
      EXPECT_EQ(image->certain(i, 1), image->known(i, 1) && image->doubts[i] == 0);
      ++(image->doubts[i] != 0 ? doubtful : certain);
    }
  }
  EXPECT_EQ(doubtful, 32U);
  EXPECT_EQ(certain, 50U);
}

TEST(Text, WhatIsNotKnownIsReported) {
  const asof::Text text = open(demo()).text();
  const auto hole = text.at({0x1000, 0x1010}, 0);
  ASSERT_TRUE(hole.has_value());
  EXPECT_FALSE(hole->known(0, 1));
  EXPECT_FALSE(hole->certain(0, 1));
  EXPECT_TRUE(text.cell(0x1000, 12345).versions.empty());
  EXPECT_FALSE(text.symbol(0x1000, 0).has_value());
  EXPECT_FALSE(text.symbol(0xffffffff81000000, 0, 12345).has_value());
  EXPECT_TRUE(text.cells({17, 16}).empty());
  for (const asof::TextCell& hole_cell : text.cells({0x1000, 0x2000}, 12345))
    EXPECT_TRUE(hole_cell.versions.empty());
  EXPECT_GT(text.cells({0, UINT64_MAX}).size(), 10U);
  EXPECT_TRUE(text.spaces(99999).empty());
  EXPECT_TRUE(text.symbols("no such symbol").empty());
  EXPECT_EQ(text.source(0).kind, asof::SourceKind::kUnknown);
  EXPECT_EQ(text.source(0x7fffffff).kind, asof::SourceKind::kUnknown);
  EXPECT_EQ(text.source(0xffffffff).kind, asof::SourceKind::kUnknown);
  for (const asof::AddressRange range :
       {asof::AddressRange{16, 16}, {17, 16}, {0, asof::Text::kMaxImage + 1}, {0, UINT64_MAX}}) {
    const auto refused = text.at(range, 0);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, "E-FILE-091");
  }
}

TEST(Text, AProcessHasASpaceOfItsOwn) {
  const asof::Capture capture = open(demo());
  const auto user = std::ranges::find_if(capture.info().streams, [](const auto& s) { return s.cpu == 0; });
  ASSERT_NE(user, capture.info().streams.end());
  const asof::Instruction first = capture.instructions({.cpus = {0}}).next().front();
  const auto spaces = capture.text().spaces(first.pid);
  ASSERT_EQ(spaces.size(), 1U);
  EXPECT_EQ(spaces[0], first.space);
  const auto image = capture.text().at({first.ip, first.ip + first.size}, first.time, first.space);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(capture.text().source(image->sources[0]).kind, asof::SourceKind::kFile);
  EXPECT_EQ(capture.text().source(image->sources[0]).build_id.size(), 40U);
  EXPECT_EQ(capture.comm(first.tid, first.time), "worker");
}

}  // namespace
}  // namespace asof_test
