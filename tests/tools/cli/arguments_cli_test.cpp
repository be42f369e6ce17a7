// Wrong words on the command line, and INPUT in front of the verb.
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

const std::string kDemoFile = ASOF_TEST_DATA "/demo/perf.data";

void expect_refused(const std::string& arguments, const std::string& words) {
  const Ran r = run_asof(arguments);
  EXPECT_EQ(r.status, 1) << arguments << "\n" << r.err;
  EXPECT_EQ(r.out, "") << arguments;
  EXPECT_NE(r.err.find(words), std::string::npos) << arguments << "\n" << r.err;
}

TEST(Arguments, UnknownVerbsAndOptionsNameNearOnes) {
  expect_refused("repot " + kDemoFile, "did you mean 'report'?");
  expect_refused("annotate -i " + kDemoFile, "asof's way: asof text");
  expect_refused("decode --symbls x " + kDemoFile, "did you mean '--symbols'");
  expect_refused("decode --call-trace " + kDemoFile, "asof's way: 'asof script --call-trace'");
  expect_refused("digest --comm x " + kDemoFile, "'asof decode'");
  expect_refused("decode a b", "'b' is one argument too many");
  expect_refused("decode --no-such " + kDemoFile, "no option '--no-such'");
  expect_refused("digest --time 1,2 " + kDemoFile, "'asof decode'");
  expect_refused("digest --time 1,2 " + kDemoFile, "more have it");
  expect_refused("timeline --html x.html -o y.pftrace " + kDemoFile, "--html is the output");
  expect_refused("pack -o x.zip " + kDemoFile, "the suffix of 'x.zip' names no archive");
  expect_refused("decode --time 20%-10% " + kDemoFile, "ends before it begins");
  EXPECT_TRUE(run_asof("-V").out.starts_with("asof "));
}

TEST(Arguments, ValuesThatAreMissingOrTooManyAreSaidInWords) {
  const Ran twice = run_asof("report --symfs . --symfs . perf.data");
  EXPECT_EQ(twice.status, 1);
  EXPECT_NE(twice.err.find("asof report: --symfs is there more than once\n"), std::string::npos) << twice.err;
  const Ran none = run_asof("script -i");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("asof script: --input: its value is missing\n"), std::string::npos) << none.err;
}

TEST(Arguments, CodesAreFoundInOtherSpellings) {
  EXPECT_TRUE(run_asof("errors e-flow-001").out.starts_with("E-FLOW-001"));
  EXPECT_TRUE(run_asof("errors E-SIDE-515").out.starts_with("I-SIDE-515"));
}

TEST(Arguments, InputStandsInFrontOfTheVerb) {
  const Ran want = run_asof("digest " + kDemo);
  ASSERT_EQ(want.status, 0) << want.err;
  const std::string symfs = " --symfs " ASOF_TEST_DATA "/demo/symfs";
  for (const std::string& arguments :
       {kDemoFile + " digest", "-i " + kDemoFile + " digest", "--input=" + kDemoFile + " digest"})
    EXPECT_EQ(run_asof(arguments + symfs).out, want.out) << arguments;
  EXPECT_EQ(run_asof("nosuch.data").status, 2) << "what looks like a path is an input that is not there";
}

}  // namespace
}  // namespace asof::test
