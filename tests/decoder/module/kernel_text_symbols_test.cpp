// kallsyms is read in pieces by several threads: no line is lost, cut or read twice.
#include "decoder/module/kernel_text_symbols.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "decoder/io/threads_here.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffffffff81000000;

// More than several pieces; names of all lengths, so that pieces end anywhere in a line.
std::string many_lines(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i)
    text += fmt::format("{:x} t f{}{}\t[m{}]\n", kText + 16 * i, i, std::string(i % 97, 'x'), i % 5);
  return text;
}

Result<Kallsyms> load(const TempDir& dir, const std::string& text, size_t jobs) {
  const ThreadsHere threads(jobs);
  write_text(dir / "kallsyms", text);
  return Kallsyms::load((dir / "kallsyms").string());
}

TEST(KallsymsPieces, HaveEveryLineOnceAndInOrder) {
  constexpr size_t kLines = 20'000;
  const TempDir dir;
  for (const size_t jobs : {size_t{1}, size_t{4}}) {
    const auto all = load(dir, many_lines(kLines), jobs);
    ASSERT_TRUE(all.has_value());
    ASSERT_EQ(all->symbols().size(), kLines);
    for (size_t i = 0; i < kLines; ++i) {
      const KernelSymbol& s = all->symbols()[i];
      ASSERT_EQ(s.addr, kText + 16 * i);
      ASSERT_EQ(s.name, fmt::format("f{}{}", i, std::string(i % 97, 'x')));
      ASSERT_EQ(s.module, fmt::format("m{}", i % 5));
    }
  }
}

TEST(KallsymsPieces, OfOneLongLineAndOfNone) {
  const TempDir dir;
  const std::string name(3U << 20U, 'n');
  const std::string last = fmt::format("{:x} t last", kText + 1);  // no end of line
  const auto all = load(dir, fmt::format("\n\n{:x} T {}\n{}", kText, name, last), 4);
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->symbols().size(), 2U);
  EXPECT_EQ(all->symbols()[0].name.size(), name.size());
  EXPECT_EQ(all->symbols()[1].name, "last");
  EXPECT_FALSE(load(dir, "", 4).has_value());
  EXPECT_FALSE(load(dir, std::string(1U << 20U, '\n'), 4).has_value());
}

TEST(KallsymsPieces, ThatEndWithALineExactly) {
  const TempDir dir;
  for (const size_t over :
       {size_t{0}, size_t{1}, size_t{2}}) {  // the first line ends about where a piece does
    const std::string head = fmt::format("{:x} T ", kText);
    std::string text = head + std::string((256U << 10U) + over - 1 - head.size(), 'a') + "\n";
    text += fmt::format("{:x} T second\n", kText + 8);
    const auto all = load(dir, text, 4);
    ASSERT_TRUE(all.has_value());
    ASSERT_EQ(all->symbols().size(), 2U) << over;
    EXPECT_EQ(all->symbols()[1].name, "second");
  }
}

// A line is read at once where it has the form that a 64-bit kernel gives it, else field by field: the same comes of it.
TEST(KallsymsLines, OfEveryForm) {
  const TempDir dir;
  struct Case {
    const char* line;
    Addr addr;  // 0: no symbol
    const char *name, *module;
  };
  const Case cases[] = {{"ffffffff81000010 t f", kText + 16, "f", ""},
                        {"ffffffff81000010 t f\t[m]", kText + 16, "f", "m"},
                        {"ffffffff81000010 t f\t[m] ", kText + 16, "f", "m"},
                        {"ffffffff81000010 t f\tm", kText + 16, "f", ""},
                        {"ffffffff81000010 t f [m]", kText + 16, "f", "m"},
                        {"ffffffff81000010 t f\t\t[m]", kText + 16, "f", "m"},
                        {"ffffffff81000010 t f\t[]", kText + 16, "f", ""},
                        {"ffffffff81000010 t f\t", kText + 16, "f", ""},
                        {"ffffffff81000010\tt\tf", kText + 16, "f", ""},
                        {"ffffffff81000010  t  f", kText + 16, "f", ""},
                        {" ffffffff81000010 t f", kText + 16, "f", ""},
                        {"FFFFFFFF81000010 t f", kText + 16, "f", ""},
                        {"0xffffffff81000010 t f", kText + 16, "f", ""},
                        {"c0008000 t f", 0xc0008000, "f", ""},
                        {"0000000000000000 t f", 0, "", ""},
                        {"ffffffff8100001g t f", 0, "", ""},
                        {"ffffffff81000010 tt f", 0, "", ""},
                        {"ffffffff81000010 t ", 0, "", ""},
                        {"ffffffff81000010   f", 0, "", ""},
                        {"ffffffff810000100 t f", 0, "", ""}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.line);
    const auto all = load(dir, fmt::format("{}\n{:x} T last\n", c.line, kText + 32), 1);
    ASSERT_TRUE(all.has_value());
    ASSERT_EQ(all->symbols().size(), c.addr == 0 ? 1U : 2U);
    if (c.addr == 0) continue;
    const KernelSymbol& s = all->symbols()[0];
    EXPECT_EQ(s.addr, c.addr);
    EXPECT_EQ(s.type, 't');
    EXPECT_EQ(s.name, c.name);
    EXPECT_EQ(s.module, c.module);
  }
}

}  // namespace
}  // namespace asof::test
