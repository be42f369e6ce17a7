// What a name may not do to the terminal or the lines it is shown in.
#include "textstore/plain_text.h"

#include <gtest/gtest.h>

namespace asof {
namespace {

TEST(PlainText, UsualNamesStay) {
  for (const char* name : {"", "update_process_times", "std::vector<int>::push_back(int&&)",
                           "[kernel.kallsyms]", "/usr/lib/g++ 12/a\\b", "größe", "名前", "🙂"}) {
    EXPECT_TRUE(is_plain_text(name)) << name;
    EXPECT_EQ(plain_text(name), name);
  }
}

TEST(PlainText, ControlCharactersAreShownAsBytes) {
  const auto shown = [](std::string_view text) {
    EXPECT_FALSE(is_plain_text(text)) << text;
    return plain_text(text);
  };
  EXPECT_EQ(shown("a\nb"), "a\\x0ab");
  EXPECT_EQ(shown("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(shown("a\rb\bc\td\x7f"), "a\\x0db\\x08c\\x09d\\x7f");
  EXPECT_EQ(shown(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(shown("\xc2\x9b"
                  "2J"),
            "\\xc2\\x9b2J");  // U+009B is CSI
  EXPECT_EQ(shown("a\xe2\x80\xae"
                  "b"),
            "a\\xe2\\x80\\xaeb");                       // U+202E turns text around
  EXPECT_EQ(shown("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");  // line separator
}

TEST(PlainText, BytesThatAreNotUtf8) {
  EXPECT_EQ(plain_text("a\xff"), "a\\xff");
  EXPECT_EQ(plain_text("\xc3"), "\\xc3");           // cut
  EXPECT_EQ(plain_text("\xc0\x8a"), "\\xc0\\x8a");  // an overlong line feed
  EXPECT_EQ(plain_text("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");
  EXPECT_EQ(plain_text("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(plain_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(PlainText, LongNamesAreCutAndSaySo) {
  const std::string longest(kMostPlainBytes, 'x');
  EXPECT_EQ(plain_text(longest), longest);
  // Room is left for what is said of it: 33 bytes at the most.
  const std::string shown = longest.substr(33);
  EXPECT_EQ(plain_text(longest + "yz"), shown + "[35 bytes more]");
  // Not inside a character.
  EXPECT_EQ(plain_text(shown.substr(1) + "ü" + longest), shown.substr(1) + "[4098 bytes more]");
}

// Names go through several hands: a second time, nothing of what was said may be cut off or escaped again.
TEST(PlainText, OnceMoreChangesNothing) {
  for (const std::string& name :
       {std::string(60'000, 'p'), std::string(5'000, '\x1b'), std::string(1'024, '\n'),
        std::string(4'090, 'x') + "\xff\xff", std::string(4'062, 'x') + "ü" + std::string(99, 'x')}) {
    const std::string shown = plain_text(name);
    EXPECT_LE(shown.size(), kMostPlainBytes);
    EXPECT_TRUE(is_plain_text(shown));
    EXPECT_EQ(plain_text(shown), shown);
  }
  EXPECT_EQ(plain_text(std::string(1'024, '\n')).size(), kMostPlainBytes);  // all of it fits
}

}  // namespace
}  // namespace asof
