// What asof answers where something is asked for that is not there, or in another way than it is taken.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "decoder/model/capture.h"
#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"
#include "tools/output/error_table.h"
#include "tools/output/remedies.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

void expect_answer(const std::string& arguments, int status, const std::string& part) {
  const Ran ran = run_asof(arguments);
  EXPECT_EQ(ran.status, status) << arguments << ran.err;
  EXPECT_NE((ran.out + ran.err).find(part), std::string::npos) << arguments << "\n" << ran.err;
}

TEST(Answers, WordsOfAnOptionAreListed) {
  expect_answer("query --cache sometimes 'SELECT 1'", 1, "--cache: sometimes not in {always,auto,never}");
  expect_answer("query --format 1 'SELECT 1'", 1, "--format: 1 not in {csv,jsonl,table,tsv}");
  expect_answer("report --color x " + kDemo, 1, "--color: x not in {always,auto,never}");
  expect_answer("report --color never " + kDemo, 0, "decoded");
}

TEST(Answers, FlagsMayStandInFrontOfTheVerb) {
  EXPECT_EQ(run_asof("-q digest " + kDemo).out, run_asof("digest -q " + kDemo).out);
  expect_answer("-v report " + kDemo, 0, "decoded 97.08 %");
}

TEST(Answers, ADatabaseNeedsNoQuery) {
  const TempDir dir;
  const std::string file = dir / "q.db";
  expect_answer("query -o " + file + " " + kDemo, 0, "");
  EXPECT_TRUE(fs::exists(file));
  expect_answer("query 'SELECT count(*) > 0 FROM calls' -i " + file, 0, "\n1\n");
}

TEST(Answers, StandardOutputIsNoDatabaseAndNoArchive) {
  const TempDir dir;
  const std::string there = "cd " + dir.path().string() + " && ";
  for (const char* verb : {"query -o - 'SELECT 1'", "timeline --format sqlite -o -", "pack -o -"}) {
    const std::string command = there + ASOF_BINARY " " + verb + " -i " + kDemo + " 2>err >out";
    EXPECT_EQ(std::system(command.c_str()) >> 8, 2) << verb;
    EXPECT_NE(read_file(dir / "err").find("has to be a file"), std::string::npos)
        << verb << read_file(dir / "err");
    EXPECT_FALSE(fs::exists(dir / "-")) << verb;
  }
}

TEST(Answers, AKcoreIsACopyOfKcore) {
  const TempDir dir;
  expect_answer("digest --kcore /etc/passwd " + kDemo, 2, "--kcore: this is no copy of kcore");
  expect_answer("digest --kcore " ASOF_BINARY " " + kDemo, 2, "--kcore: this is no copy of kcore");
  expect_answer("digest --kcore " + dir.path().string() + " " + kDemo, 2,
                "there is no file kcore in this folder");
  expect_answer("digest --kcore-end " + dir.path().string() + " " + kDemo, 2,
                "--kcore-end: there is no file kcore");
  const std::string folder = ASOF_TEST_DATA "/demo/perf.data/kcore_dir";
  expect_answer("digest --kcore " + folder + " " + kDemo, 0, "total");
  expect_answer("digest --kcore " + folder + "/kcore " + kDemo, 0, "total");
}

TEST(Answers, TwoTimesAreCompared) {
  expect_answer("text --diff start -i " + kDemo, 1, "'start' is one time, and two are compared");
  expect_answer("text vfs_read --diff 6.00002 -i " + kDemo, 1, "'6.00002' is one time, and two are compared");
  expect_answer("text --diff 7 8 -i " + kDemo, 0, "7.000000000 is after the end of the capture");
  expect_answer("text --strict --diff start 5.5 -i " + kDemo, 3,
                "5.500000000 is before the start of the capture");
  EXPECT_EQ(run_asof("text --diff start end -i " + kDemo).err.find("the capture"), std::string::npos);
}

TEST(Answers, NothingIsNoRemedy) {
  for (const char* verb : {"report", "doctor"})
    EXPECT_EQ(run_asof(fmt::format("{} {}", verb, kDemo)).out.find("remedy: nothing"), std::string::npos)
        << verb;
}

// Of perf with Intel PT, of perf with CoreSight, and of a snapshot.
TEST(Answers, RemediesFitTheKindOfCapture) {
  Capture pt, perf, snapshot;
  pt.machine = "x86_64";
  perf.machine = snapshot.machine = "aarch64";
  perf.perf = *PerfData::open(ASOF_TEST_DATA "/demo-arm64/perf.data");
  const auto has = [](const Capture& c, Code code, std::string_view words) {
    return remedy_for(c, code).find(words) != std::string_view::npos;
  };
  for (const Code code : {Code::kNoSyncPoint, Code::kReturnWithoutItsCall, Code::kTraceOverflow}) {
    EXPECT_EQ(remedy_for(pt, code), info_of(code).remedy);
    for (const Capture* c : {&perf, &snapshot}) {
      EXPECT_FALSE(has(*c, code, "intel_pt") || has(*c, code, "psb_period") || has(*c, code, "noretcomp"))
          << remedy_for(*c, code);
    }
    EXPECT_NE(remedy_for(perf, code), remedy_for(snapshot, code));
  }
  EXPECT_TRUE(has(perf, Code::kReturnWithoutItsCall, "cs_etm/retstack/"));
  EXPECT_TRUE(has(snapshot, Code::kReturnWithoutItsCall, "TRCCONFIGR.RS"));
  EXPECT_FALSE(has(snapshot, Code::kNoSyncPoint, "perf record"));
}

TEST(Answers, ReportsHaveTheRemediesOfTheirCapture) {
  const std::string snapshot = shared("corpus/ocsd-juno_r1_1");
  SKIP_WITHOUT(snapshot);
  const std::string report = run_asof("report " + snapshot).out;
  EXPECT_NE(
      report.find("remedy: look at the gap before this one; trace without the return stack (TRCCONFIGR.RS)"),
      std::string::npos)
      << report;
}

TEST(Unpack, SaysWhereAndWhatNext) {
  const TempDir dir;
  const std::string archive = dir / "a.tar.zst", to = dir / "to";
  ASSERT_EQ(run_asof("pack -o " + archive + " " + kDemo).status, 0);
  expect_answer("unpack " + archive + " -o " + to, 0, "'asof report " + to + "' opens it");
  EXPECT_EQ(run_asof("digest " + to).out, run_asof("digest " + archive).out);
  EXPECT_EQ(run_asof("digest " + to).out, run_asof("digest " + kDemo).out);
  expect_answer("unpack " + archive + " -o " + to, 2, "it exists already, and no file is replaced");
  expect_answer("unpack " + archive + " -o " + to, 2, "choose an empty folder");
}

TEST(Unpack, FindsBuildIdsBesideTheCapture) {
  const TempDir dir;
  fs::copy(ASOF_TEST_DATA "/demo/perf.data", dir / "perf.data", fs::copy_options::recursive);
  const Ran without = run_asof("digest " + dir.path().string());
  // The build-id of the program, as pack names the folder of a second file of one path.
  const std::string worker = ASOF_TEST_DATA "/demo/symfs/opt/demo/worker";
  EXPECT_EQ(
      std::system(("id=$(readelf -n " + worker + " | sed -n 's/.*Build ID: //p'); d=" + dir.path().string() +
                   "/debug/.build-id/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-); mkdir -p $d; cp " +
                   worker + " $d/elf")
                      .c_str()),
      0);
  EXPECT_NE(without.out, run_asof("digest " + kDemo).out);
  EXPECT_EQ(run_asof("digest " + dir.path().string()).out, run_asof("digest " + kDemo).out);
  EXPECT_EQ(run_asof("digest " + (dir / "perf.data").string()).out, run_asof("digest " + kDemo).out);
}

TEST(Unpack, SaysWhatIsNoArchive) {
  const TempDir dir;
  const std::string packed = dir / "data.gz", text = dir / "text";
  ASSERT_EQ(std::system(("gzip -c " ASOF_TEST_DATA "/demo/perf.data/data >" + packed).c_str()), 0);
  std::ofstream(text) << "no archive\n";
  for (const std::string& file : {packed, text}) expect_answer("unpack " + file, 2, "this is no archive");
  expect_answer("report " + packed, 2, "decompress a recording with gzip");
}

}  // namespace
}  // namespace asof::test
