// Opening: what a capture reports about itself, and wrong input.
#include <fstream>

#include "api_test.h"

namespace asof_test {
namespace {

std::string code_of(const std::string& path) {
  const auto capture = asof::Capture::open(path);
  if (capture) return "opened";
  EXPECT_FALSE(capture.error().reason.empty());
  return capture.error().code;
}

TEST(Capture, WrongInputIsAnError) {
  EXPECT_EQ(code_of("/no/such/file"), "E-FILE-101");
  EXPECT_EQ(code_of(ASOF_TEST_DATA "/README.md"), "E-FILE-102");
  EXPECT_EQ(code_of(ASOF_TEST_DATA), "E-FILE-125");
  EXPECT_EQ(code_of(""), "E-FILE-101");
}

TEST(Capture, AnErrorSaysWhere) {
  const auto capture = asof::Capture::open(ASOF_TEST_DATA "/README.md");
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().where, ASOF_TEST_DATA "/README.md");
  EXPECT_EQ(capture.error().offset, 0U);
}

TEST(Capture, TellsWhatItIs) {
  const asof::Capture capture = open(demo());
  EXPECT_EQ(capture.info().machine, "x86_64");
  EXPECT_EQ(capture.info().kind, "perf.data directory");
  ASSERT_EQ(capture.info().streams.size(), 2U);
  EXPECT_EQ(capture.info().streams[1].cpu, 1);
  EXPECT_GT(capture.info().streams[1].bytes, 1000U);
  for (const asof::Notice& n : capture.notices()) EXPECT_GE(n.code.size(), 9U);
  EXPECT_EQ(open(demo_arm64()).info().machine, "aarch64");
}

TEST(Version, OfHeadersAndLibraryAgree) {
  EXPECT_EQ(std::string(asof::version()), std::to_string(ASOF_VERSION_MAJOR) + "." +
                                              std::to_string(ASOF_VERSION_MINOR) + "." +
                                              std::to_string(ASOF_VERSION_PATCH));
}

TEST(Names, ThereAreNoneOfValuesThatDoNotExist) {
  EXPECT_EQ(asof::name(asof::Confidence::kProved), "proved");
  EXPECT_EQ(asof::name(static_cast<asof::Confidence>(77)), "");
  EXPECT_EQ(asof::name(asof::EventKind::kContext), "context");
  EXPECT_EQ(asof::name(static_cast<asof::EventKind>(26)), "");
  EXPECT_EQ(asof::name(asof::FunctionKind::kUntraced), "untraced");
  EXPECT_EQ(asof::name(static_cast<asof::FunctionKind>(200)), "");
}

}  // namespace
}  // namespace asof_test
