// What of a capture is missing is told by every verb that reads it: the files beside the recording that were cut, and
// the gaps that come of it.
#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

class Told : public ::testing::Test {
 protected:
  void copy(const std::string& name) {
    fs::copy(fs::path(ASOF_TEST_DATA) / name, copy_, fs::copy_options::recursive);
  }
  Ran run(const std::string& verb, const std::string& more = {}) const {
    std::string where = " -i " + (copy_ / "perf.data").string();
    if (fs::exists(copy_ / "symfs")) where += " --symfs " + (copy_ / "symfs").string();
    return run_asof(verb + where + " " + more);
  }
  std::string out() const { return dir_.path() / "out"; }
  // Of all verbs and formats that decode: how each is called.
  std::vector<std::string> decoding() const {
    std::vector<std::string> verbs = {"decode",
                                      "digest",
                                      "script",
                                      "stacks",
                                      "branches",
                                      "validate",
                                      "report",
                                      "inject -o " + out(),
                                      "branches --format bolt-preagg",
                                      "tables -o " + out() + ".lake",
                                      "query 'SELECT count(*) FROM calls'",
                                      "query 'SELECT count(*) FROM blocks'"};
    for (const char* format : {"perfetto", "chrome", "html", "csv", "jsonl", "sqlite"})
      verbs.push_back(std::string("timeline --format ") + format + " -o " + out() + "." + format);
    for (const char* format : {"lcov", "cobertura", "drcov"})
      verbs.push_back(std::string("coverage --format ") + format);
    for (const char* rows : {"functions", "calls", "paths"})
      verbs.push_back("diff --rows " + std::string(rows) + " " + (copy_ / "perf.data").string() + " ");
    return verbs;
  }

  const TempDir dir_;
  const fs::path copy_ = fs::path(dir_.path()) / "copy";
};

bool says(const Ran& r, const std::string& what) {
  return r.err.find(what) != std::string::npos || r.out.find(what) != std::string::npos;
}

TEST_F(Told, ACopyOfKcoreThatWasCut) {
  copy("demo-arm64");
  const fs::path kcore = copy_ / "perf.data/kcore_dir/kcore";
  fs::resize_file(kcore, 4393);
  for (const std::string& verb : decoding()) {
    const Ran r = run(verb);
    EXPECT_TRUE(says(r, "E-FILE-306")) << verb << '\n' << r.err;
    EXPECT_TRUE(says(r, "offset 0x1129")) << verb << '\n' << r.err;
    EXPECT_TRUE(says(r, "E-TEXT-001")) << verb << '\n' << r.err;
  }
  for (const std::string& verb : {std::string("doctor"), "pack -o " + out(), "plan -o " + out() + ".plan"}) {
    const Ran r = run(verb);
    EXPECT_TRUE(says(r, "the file ends here, by its headers at 0x2000")) << verb << '\n' << r.out << r.err;
  }
  EXPECT_EQ(run("doctor").status, 3);
}

TEST_F(Told, NothingWhereNothingIsMissing) {
  copy("demo-arm64");
  for (const std::string& verb : decoding()) {
    const Ran r = run(verb);
    EXPECT_EQ(r.status, 0) << verb << '\n' << r.err;
    EXPECT_FALSE(says(r, "E-")) << verb << '\n' << r.err;
  }
}

TEST_F(Told, AProgramThatWasCut) {
  copy("demo");
  const fs::path worker = copy_ / "symfs/opt/demo/worker";
  fs::resize_file(worker, fs::file_size(worker) - 40);
  for (const std::string& verb : decoding()) EXPECT_TRUE(says(run(verb), "E-FILE-306")) << verb;
  // A whole one elsewhere is used.
  fs::copy(fs::path(ASOF_TEST_DATA) / "demo/symfs/opt/demo/worker", copy_ / "symfs/worker");
  EXPECT_FALSE(says(run("digest"), "E-FILE-306"));
}

TEST_F(Told, KallsymsAndModulesThatWereCut) {
  copy("demo");
  for (const char* name : {"kallsyms", "modules"}) {
    const fs::path file = copy_ / "perf.data/kcore_dir" / name;
    fs::resize_file(file, fs::file_size(file) - 1);
    const Ran r = run("digest");
    EXPECT_TRUE(says(r, std::string(name) + " offset")) << r.err;
    EXPECT_TRUE(says(r, "the file ends inside a line")) << r.err;
  }
}

// The answer that was kept is of a trace with gaps, too.
TEST_F(Told, ByTheSecondQueryAsByTheFirst) {
  copy("demo-arm64");
  fs::resize_file(copy_ / "perf.data/kcore_dir/kcore", 4393);
  ::usleep(200'000);  // older than a file that may still be changing
  const std::string query = "query 'SELECT count(*) FROM calls'",
                    kept = "--cache always --cache-dir " + out();
  const Ran first = run(query, kept), second = run(query, kept), verbose = run(query, "-v " + kept),
            other = run("query 'SELECT count(*) FROM pokes'", kept);
  EXPECT_TRUE(says(first, "E-TEXT-001 454 times, first: ")) << first.err;
  EXPECT_TRUE(first.err.starts_with(second.err)) << second.err;  // then it says that it kept something
  EXPECT_TRUE(says(second, "E-TEXT-001 454 times, first: ")) << second.err;
  EXPECT_TRUE(says(verbose, "I-FILE-504")) << verbose.err;
  EXPECT_FALSE(says(other, "E-TEXT-001 454 times, first: ")) << other.err;
}

// One bit of a file that is changed, at many places: `asof` and the verb, of which standard output must be the same where
// nothing is told.
void expect_told_or_the_same(const fs::path& file, const std::string& verb) {
  const auto whole = read_bytes(file);
  const Ran expected = run_asof(verb + " -i " + file.string());
  ASSERT_EQ(expected.status, 0) << expected.err;
  int told = 0;
  for (size_t at = 0; at < whole.size(); at += whole.size() / 97) {
    auto changed = whole;
    changed[at] ^= static_cast<uint8_t>(1U << at % 8);
    write_bytes(file, changed);
    const Ran r = run_asof(verb + " -i " + file.string());
    told += says(r, "E-") ? 1 : 0;
    EXPECT_TRUE(says(r, "E-") || r.out == expected.out) << at << '\n' << r.err;
  }
  EXPECT_GT(told, 10);
}

TEST_F(Told, ADamagedArchiveIsNotAnotherCapture) {
  for (const char* suffix : {".tar.zst", ".tar.gz", ".tar.xz"}) {
    const fs::path packed = out() + suffix;
    ASSERT_EQ(run_asof("pack -q -i " ASOF_TEST_DATA "/demo-arm64/perf.data -o " + packed.string()).status, 0);
    expect_told_or_the_same(packed, "query 'SELECT count(*), sum(end - begin) FROM calls'");
  }
}

// What it says of calls may be whole where the flow, which is read where it is not clear what a call ended with, is not.
TEST_F(Told, ADamagedBlockStreamIsNotAnotherProfile) {
  const fs::path blocks = out() + ".blocks";
  ASSERT_EQ(run_asof("decode -q --format blocks --calls -i " ASOF_TEST_DATA "/demo-arm64/perf.data -o " +
                     blocks.string())
                .status,
            0);
  for (const char* verb : {"stacks", "digest"}) expect_told_or_the_same(blocks, verb);
}

// A file of debug information is in the place of the program, and has its build-id.
TEST_F(Told, DebugInformationIsNoCode) {
  copy("demo");
  const fs::path worker = copy_ / "symfs/opt/demo/worker";
  auto bytes = read_bytes(worker);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    uint8_t* const at = bytes.data() + header.e_shoff + i * sizeof(Elf64_Shdr);
    Elf64_Shdr section;
    std::memcpy(&section, at, sizeof section);
    if ((section.sh_flags & SHF_EXECINSTR) != 0) section.sh_type = SHT_NOBITS;
    std::memcpy(at, &section, sizeof section);
  }
  write_bytes(worker, bytes);
  const Ran r = run("decode");
  EXPECT_TRUE(says(r, "worker has debug information only")) << r.err;
  EXPECT_EQ(r.out.find("(/opt/demo/worker)"), std::string::npos) << r.out;
  fs::copy(fs::path(ASOF_TEST_DATA) / "demo/symfs/opt/demo/worker", copy_ / "symfs/worker");
  EXPECT_NE(run("decode").out.find("(/opt/demo/worker)"), std::string::npos);
}

}  // namespace
}  // namespace asof::test
