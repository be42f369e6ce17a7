// A child that is asked.
#include "arch/child.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace asof::test {
namespace {

constexpr uint32_t kCrash = 1000;

// Says the number after each that it gets; it crashes at kCrash.
void count_on(int questions, int answers) {
  for (;;) {
    uint32_t number = 0;
    read_question(questions, &number, sizeof number);
    if (number == kCrash) ::raise(SIGSEGV);
    ++number;
    write_answer(answers, &number, sizeof number);
  }
}

class AskedChild : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ::signal(SIGPIPE, SIG_IGN); }

  bool ask(uint32_t number) {
    return child_.ask(&number, sizeof number) && child_.read(&answer_, sizeof answer_);
  }
  Child child_{count_on};
  uint32_t answer_ = 0;
};

TEST_F(AskedChild, AnswersOneQuestionAfterTheOther) {
  for (const uint32_t number : {1U, 7U, 42U}) {
    ASSERT_TRUE(ask(number));
    EXPECT_EQ(answer_, number + 1);
  }
}

TEST_F(AskedChild, CrashIsTold) {
  ASSERT_TRUE(ask(1));
  EXPECT_FALSE(ask(kCrash));
  EXPECT_FALSE(ask(2)) << "it is gone";
  EXPECT_EQ(child_.what_happened(), "crashed (signal 11)");
}

}  // namespace
}  // namespace asof::test
