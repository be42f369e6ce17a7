#include "tools/output/fold.h"

#include <gtest/gtest.h>

namespace asof::test {
namespace {

TEST(FoldLine, BreaksAtBlanks) {
  EXPECT_EQ(fold_line("ok    topic one two three", 6, 17), "ok    topic one\n      two three");
  EXPECT_EQ(fold_line("ok    topic one", 6, 15), "ok    topic one");
  EXPECT_EQ(fold_line("    remedy: do it", 4, 12), "    remedy:\n    do it");
}

TEST(FoldLine, LongWordsStayWhole) {
  EXPECT_EQ(fold_line("a /a/very/long/path b", 2, 8), "a\n  /a/very/long/path\n  b");
  EXPECT_EQ(fold_line("    /a/very/long/path", 4, 8), "    /a/very/long/path");
}

TEST(FoldLine, WidthIsThatOfCharacters) { EXPECT_EQ(fold_line("a · b · c", 0, 9), "a · b · c"); }

TEST(FoldLine, WhatIsNoTerminalIsLeftAlone) {
  EXPECT_EQ(fold_line("one two", 2, 0), "one two");
  EXPECT_EQ(fold_line("one two", 4, 3), "one two") << "too narrow for the indentation";
  EXPECT_EQ(fold_line("", 2, 1), "");
}

}  // namespace
}  // namespace asof::test
