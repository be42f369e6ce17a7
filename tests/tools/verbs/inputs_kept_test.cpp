// What a verb reads is not replaced by what it writes, whatever the name: the recording itself, a link to it, a file of
// its directory, a copy of kcore, a block stream.
#include <fmt/format.h>

#include <filesystem>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const std::string kSymfs = " --symfs " ASOF_TEST_DATA "/demo/symfs";
const std::string kRecording = ASOF_TEST_DATA "/demo/perf.data/data";

void expect_refused(const std::string& arguments, const fs::path& kept) {
  const std::string before = read_file(kept);
  const auto beside = [&] {
    return std::distance(fs::directory_iterator(kept.parent_path()), fs::directory_iterator());
  };
  const auto files = beside();
  const Ran ran = run_asof(arguments);
  EXPECT_EQ(ran.status, 2) << arguments << ran.err;
  EXPECT_NE(ran.err.find("E-FILE-090"), std::string::npos) << arguments << ran.err;
  EXPECT_NE(ran.err.find("it would be lost"), std::string::npos) << arguments << ran.err;
  EXPECT_NE(ran.err.find("hint: choose another file with -o"), std::string::npos) << arguments << ran.err;
  EXPECT_TRUE(read_file(kept) == before) << arguments;
  EXPECT_EQ(beside(), files) << arguments << ": something is left beside it";
}

TEST(InputsKept, NoVerbWritesOverTheRecording) {
  const TempDir dir;
  const std::string file = dir / "recording";
  fs::copy_file(kRecording, file);
  for (const char* verb :
       {"decode", "decode --format blocks", "decode --follow", "timeline --format perfetto",
        "timeline --format csv", "timeline --format sqlite", "stacks", "branches", "coverage", "script",
        "packets", "inject", "query 'SELECT 1'", "pack"})
    expect_refused(fmt::format("{} -i {} -o {}{}", verb, file, file, kSymfs), file);
  expect_refused("timeline " + file + " --html " + file + kSymfs, file);
  expect_refused("diff " + file + " " + file + " -o " + file + kSymfs, file);
}

TEST(InputsKept, OtherNamesOfAnInputAreKnown) {
  const TempDir dir;
  const std::string file = dir / "recording", link = dir / "link", hard = dir / "hard";
  fs::copy_file(kRecording, file);
  fs::create_symlink(file, link);
  fs::create_hard_link(file, hard);
  expect_refused("decode " + file + " -o " + link + kSymfs, file);
  expect_refused("decode " + file + " -o " + hard + kSymfs, file);
  const std::string command = ASOF_BINARY " decode - -o " + file + kSymfs + " <" + file + " 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()) >> 8, 2);
  EXPECT_TRUE(read_file(file) == read_file(kRecording));
}

TEST(InputsKept, SoAreFilesOfADirectoryAndCopies) {
  const TempDir dir;
  const fs::path capture = dir / "perf.data";
  fs::copy(ASOF_TEST_DATA "/demo/perf.data", capture, fs::copy_options::recursive);
  expect_refused("stacks " + capture.string() + " -o " + (capture / "data").string() + kSymfs,
                 capture / "data");
  const std::string core = capture / "kcore_dir/kcore";
  expect_refused("decode " + kRecording + " --kcore " + core + " -o " + core + kSymfs, core);
  // Not opened, for it has another one.
  expect_refused("decode " + capture.string() + " --kcore " ASOF_TEST_DATA "/demo/perf.data/kcore_dir -o " +
                     core + kSymfs,
                 core);
  const Ran beside =
      run_asof("decode " + capture.string() + " -o " + (capture / "lines.txt").string() + kSymfs);
  EXPECT_EQ(beside.status, 0) << beside.err;
}

TEST(InputsKept, SoAreBlockStreamsAndPlans) {
  const TempDir dir;
  const std::string blocks = dir / "a.blocks", plan = dir / "plan";
  ASSERT_EQ(run_asof("decode --format blocks -o " + blocks + " " + kDemo).status, 0);
  expect_refused("decode --format blocks " + blocks + " -o " + blocks, blocks);
  ASSERT_EQ(run_asof("plan -o " + plan + " " + kDemo).status, 0);
  expect_refused("decode --plan " + plan + " -o " + plan + "/core.asof", plan + "/core.asof");
}

}  // namespace
}  // namespace asof::test
