// asof pack and unpack: what is packed decodes elsewhere as it does here, byte by byte, and needs only the
// archive.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <ostream>

#include "tests/support/perf_data_writer.h"
#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

struct Packed {
  const char* name;
  std::string input;    // below tests/data or captures
  std::string options;  // for opening it here
  bool here;
  std::string path() const {
    return (here ? std::string(ASOF_TEST_DATA) : std::string(ASOF_SHARED_DIR)) + "/" + input;
  }
};
void PrintTo(const Packed& p, std::ostream* out) { *out << p.name; }

class Pack : public ::testing::TestWithParam<Packed> {};

TEST_P(Pack, DecodesTheSameWithNothingElse) {
  const Packed& p = GetParam();
  SKIP_WITHOUT(p.path());
  const TempDir dir;
  const std::string input = p.path() + " " + p.options;
  const std::string verb = p.here ? "decode -q " : "digest -q ";
  const Ran expected = run_asof(verb + input);
  ASSERT_EQ(expected.status, 0) << expected.err;
  for (const char* ending : {".tar", ".tar.zst"}) {
    const std::string archive = (dir.path() / "x.asof").string() + ending;
    const Ran packed = run_asof("pack -q " + input + " -o " + archive);
    ASSERT_EQ(packed.status, 0) << packed.out << packed.err;
    // TMPDIR is checked afterwards: nothing may be left there.
    fs::create_directories(dir.path() / "tmp");
    const Ran unpacked = run_asof("version >/dev/null; TMPDIR=" + (dir.path() / "tmp").string() +
                                  " HOME=/nonexistent " ASOF_BINARY " " + verb + archive);
    EXPECT_EQ(unpacked.status, 0) << unpacked.err;
    EXPECT_EQ(unpacked.out.substr(0, 2000), expected.out.substr(0, 2000));
    EXPECT_TRUE(unpacked.out == expected.out) << ending;
    EXPECT_TRUE(fs::is_empty(dir.path() / "tmp")) << "unpacked files were left behind";
    EXPECT_FALSE(fs::exists(archive + ".part"));
  }
}

std::vector<std::string> names_in_archive(const std::string& archive, const fs::path& folder) {
  EXPECT_EQ(run_asof("unpack -o " + folder.string() + " " + archive).status, 0);
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(folder));
  }
  std::ranges::sort(names);
  return names;
}

// Everything in the folder of such a capture was packed, whatever it was: for x.blocks at home, all of home.
TEST(PackedFiles, TakesNothingThatLiesBesideABlockStream) {
  const TempDir dir;
  const fs::path home = dir.path() / "home";
  fs::create_directories(home / "mail");
  write_text(home / "secret", "secret\n");
  write_text(home / "mail" / "inbox", "secret\n");
  const std::string demo = std::string(ASOF_TEST_DATA) + "/demo/perf.data";
  ASSERT_EQ(run_asof("decode -q --format blocks -o " + (home / "flow").string() + " " + demo).status, 0);
  const std::string archive = (dir.path() / "x.tar").string();
  ASSERT_EQ(run_asof("pack -q " + (home / "flow").string() + " -o " + archive).status, 0);
  EXPECT_EQ(names_in_archive(archive, dir.path() / "out"), std::vector<std::string>{"capture/flow.blocks"});
  EXPECT_EQ(run_asof("digest -q " + archive).out, run_asof("digest -q " + (home / "flow").string()).out);
}

TEST(PackedFiles, TakesNothingThatABundleDoesNotName) {
  const TempDir dir;
  const fs::path home = dir.path() / "home";
  fs::create_directories(home);
  write_text(home / "secret", "secret\n");
  write_bytes(home / "t.pt", std::vector<uint8_t>(16, 0x82));
  write_bytes(home / "t.img", std::vector<uint8_t>(64, 0x90));
  write_text(
      home / "bundle.json",
      R"({"format": "asof-bundle", "version": 1, "arch": "x86-64", "streams": [{"file": "t.pt", "cpu": 0}],)"
      R"("text": [{"file": "t.img", "address": "0x1000"}]})");
  const std::string archive = (dir.path() / "x.tar").string();
  EXPECT_EQ(run_asof("pack -q " + (home / "bundle.json").string() + " -o " + archive).status, 0);
  EXPECT_EQ(names_in_archive(archive, dir.path() / "out"),
            (std::vector<std::string>{"capture/bundle.json", "capture/t.img", "capture/t.pt"}));
}

// Output names files by their place in the archive, and is the same each time.
TEST(PackedFiles, FilesAreNamedByTheirPlaceInIt) {
  const TempDir dir;
  const std::string archive = (dir.path() / "x.tar").string(), data = ASOF_TEST_DATA;
  ASSERT_EQ(
      run_asof("pack -q " + data + "/demo/perf.data --symfs " + data + "/demo/symfs -o " + archive).status,
      0);
  const Ran calls = run_asof("timeline -q --format csv -o - " + archive);
  EXPECT_NE(calls.out.find(archive + "/symfs/opt/demo/worker"), std::string::npos);
  EXPECT_EQ(calls.out, run_asof("timeline -q --format csv -o - " + archive).out);
}

// Also where a file is read only when a line of its source is looked for.
TEST(PackedFiles, DamagedDebugInformationIsNamedByItsPlace) {
  const TempDir dir;
  const fs::path symfs = dir.path() / "symfs";
  fs::copy(std::string(ASOF_TEST_DATA) + "/demo/symfs", symfs, fs::copy_options::recursive);
  auto program = read_bytes(symfs / "opt/demo/worker");
  Elf64_Ehdr header;
  std::memcpy(&header, program.data(), sizeof header);
  // Of all sections but the first.
  std::fill(program.begin() + static_cast<ptrdiff_t>(header.e_shoff + sizeof(Elf64_Shdr)), program.end(),
            0x55);
  write_bytes(symfs / "opt/demo/worker", program);
  const std::string archive = (dir.path() / "x.tar").string();
  ASSERT_EQ(run_asof("pack -q " ASOF_TEST_DATA "/demo/perf.data --symfs " + symfs.string() + " -o " + archive)
                .status,
            0);
  const Ran first = run_asof("decode --source -v " + archive);
  EXPECT_NE(first.err.find("E-TEXT-208 " + archive + "/symfs/opt/demo/worker"), std::string::npos)
      << first.err;
  EXPECT_EQ(first.err, run_asof("decode --source -v " + archive).err);
}

INSTANTIATE_TEST_SUITE_P(
    Capture, Pack,
    ::testing::Values(Packed{"demo", "demo/perf.data", "--symfs " ASOF_TEST_DATA "/demo/symfs", true},
                      Packed{"demo_data_file", "demo/perf.data/data", "--symfs " ASOF_TEST_DATA "/demo/symfs",
                             true},
                      Packed{"arm64_demo", "demo-arm64/perf.data", "", true},
                      Packed{"board", "captures/x86-board-small/perf.data", "", false},
                      Packed{"arm64_board", "captures/arm64-board-tiny/poke.data", "", false},
                      Packed{"bundle", "captures/pt-work-1round/bundle.json", "", false},
                      Packed{"snapshot", "corpus/ocsd-juno_r1_1", "", false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PackCli, TheSameCaptureGivesTheSameArchive) {
  const TempDir dir;
  for (const char* name : {"/a.tar.zst", "/b.tar.zst", "/c.tar.gz", "/d.tar.gz"})
    ASSERT_EQ(run_asof("pack -q " + kDemo + " -o " + dir.path().string() + name).status, 0);
  EXPECT_TRUE(read_file(dir.path() / "a.tar.zst") == read_file(dir.path() / "b.tar.zst"));
  EXPECT_TRUE(read_file(dir.path() / "c.tar.gz") == read_file(dir.path() / "d.tar.gz"));
}

TEST(PackCli, UnpackGivesTheFiles) {
  const TempDir dir;
  const std::string archive = (dir.path() / "x.tar.xz").string();
  ASSERT_EQ(run_asof("pack -q " + kDemo + " -o " + archive).status, 0);
  ASSERT_EQ(run_asof("unpack " + archive + " -o " + (dir.path() / "out").string()).status, 0);
  const fs::path demo = fs::path(ASOF_TEST_DATA) / "demo";
  for (const char* file : {"perf.data/data", "perf.data/kcore_dir/kcore", "perf.data/kcore_dir/kallsyms",
                           "symfs/opt/demo/worker"})
    EXPECT_TRUE(read_file(dir.path() / "out" / file) == read_file(demo / file)) << file;
}

// A program's name can have any bytes, and archives of others have it in UTF-8.
TEST(PackCli, NamesAreBytes) {
  const std::string old = "/opt/demo/worker";
  for (const std::string name : {"/opt/d\xc3\xabm/worker", "/opt/d\xff\xfem/worker"}) {
    const TempDir dir;
    ASSERT_EQ(name.size(), old.size());
    const fs::path capture = dir.path() / "perf.data", symfs = dir.path() / "symfs", out = dir.path() / "out";
    fs::copy(ASOF_TEST_DATA "/demo/perf.data", capture, fs::copy_options::recursive);
    fs::copy(ASOF_TEST_DATA "/demo/symfs", symfs, fs::copy_options::recursive);
    fs::create_directories(fs::path(symfs.string() + name).parent_path());
    fs::rename(symfs / "opt/demo/worker", symfs.string() + name);
    std::string data = read_file(capture / "data");
    for (size_t at = 0; (at = data.find(old, at)) != std::string::npos;) data.replace(at, old.size(), name);
    std::ofstream(capture / "data", std::ios::binary) << data;
    const std::string archive = (dir.path() / "x.tar").string();
    const Ran ran = run_asof("pack -q " + capture.string() + " --symfs " + symfs.string() + " -o " + archive);
    EXPECT_EQ(ran.status, 0) << ran.err;
    ASSERT_EQ(run_asof("unpack " + archive + " -o " + out.string()).status, 0);
    EXPECT_TRUE(read_file(out.string() + "/symfs" + name) == read_file(symfs.string() + name));
    EXPECT_EQ(run_asof("digest " + archive).out, run_asof("digest " + kDemo).out);
    if (name.find('\xff') != std::string::npos) continue;
    const std::string posix = (dir.path() / "posix.tar").string();
    ASSERT_EQ(std::system(("LC_ALL=C.UTF-8 tar --format=posix -C " + dir.path().string() + " -cf " + posix +
                           " perf.data symfs")
                              .c_str()),
              0);
    EXPECT_EQ(run_asof("digest " + posix).out, run_asof("digest " + kDemo).out);
  }
}

TEST(PackCli, CutArchiveIsAnError) {
  const TempDir dir;
  const std::string archive = (dir.path() / "x.tar.zst").string();
  ASSERT_EQ(run_asof("pack -q " + kDemo + " -o " + archive).status, 0);
  fs::resize_file(archive, fs::file_size(archive) / 2);
  for (const char* verb : {"decode ", "validate ", "doctor ", "unpack "}) {
    const Ran ran = run_asof(verb + archive +
                             (std::string(verb) == "unpack " ? " -o " + (dir.path() / "o").string() : ""));
    EXPECT_EQ(ran.status, 2) << verb;
    EXPECT_NE(ran.err.find("E-FILE-131"), std::string::npos) << ran.err;
    EXPECT_TRUE(ran.out.empty()) << verb;
  }
}

TEST(PackCli, CannotPackWhatIsNoCaptureOrAnArchive) {
  const TempDir dir;
  const std::string archive = (dir.path() / "x.tar").string();
  EXPECT_EQ(run_asof("pack " + dir.path().string() + " -o " + archive).status, 2);
  EXPECT_FALSE(fs::exists(archive));
  ASSERT_EQ(run_asof("pack -q " + kDemo + " -o " + archive).status, 0);
  EXPECT_EQ(run_asof("pack " + archive + " -o " + archive + "2").status, 1);
  const Ran nowhere = run_asof("pack -q " + kDemo + " -o /nonexistent/x.tar");
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_NE(nowhere.err.find("E-FILE-090"), std::string::npos) << nowhere.err;
}

std::string listing(const std::string& archive) {
  const TempDir dir;
  const std::string to = (dir.path() / "out").string();
  if (run_asof("unpack " + archive + " -o " + to).status != 0) return "cannot be unpacked";
  std::string names;
  for (const auto& e : fs::recursive_directory_iterator(to)) {
    if (e.is_regular_file()) names += fs::relative(e.path(), to).string() + "\n";
  }
  return names;
}

// A capture names files, and links in its folder lead anywhere: neither may carry off what is not its own.
TEST(PackCli, LinksThatLeadOutAreLeftOut) {
  const TempDir dir;
  const fs::path capture = dir.path() / "c/perf.data", secret = dir.path() / "secret";
  fs::create_directories(dir.path() / "c");
  fs::copy(ASOF_TEST_DATA "/demo/perf.data", capture, fs::copy_options::recursive);
  std::ofstream(secret) << "secret words\n";
  fs::create_symlink(secret, capture / "jit-1.dump");
  fs::remove(capture / "kcore_dir/modules");
  fs::create_symlink("../../../secret", capture / "kcore_dir/modules");
  fs::create_symlink("kallsyms", capture / "kcore_dir/kallsyms2");
  const std::string archive = (dir.path() / "x.tar").string();
  const Ran ran =
      run_asof("pack " + capture.string() + " --symfs " ASOF_TEST_DATA "/demo/symfs -o " + archive);
  EXPECT_EQ(ran.status, 3) << ran.err;
  EXPECT_NE(ran.err.find("E-FILE-134"), std::string::npos) << ran.err;
  EXPECT_EQ(read_file(archive).find("secret words"), std::string::npos);
  const std::string names = listing(archive);
  EXPECT_NE(names.find("perf.data/kcore_dir/kallsyms\n"), std::string::npos) << names;
  EXPECT_EQ(names.find("modules"), std::string::npos) << names;
  EXPECT_EQ(names.find("jit-1.dump"), std::string::npos) << names;
}

// A file of this machine that the recording names but whose build-id it does not have.
TEST(PackCli, FilesOfThisMachineNeedTheRecordedBuildId) {
  const TempDir dir;
  const fs::path capture = dir.path() / "perf.data";
  fs::copy(ASOF_TEST_DATA "/demo/perf.data", capture, fs::copy_options::recursive);
  // Its name is as long as the mapped file's, which it takes the place of.
  const std::string old = "/opt/demo/worker";
  std::string secret = "/tmp/asof_XXXXXX";
  ASSERT_EQ(secret.size(), old.size());
  const int fd = ::mkstemp(secret.data());
  ASSERT_GE(fd, 0);
  ::close(fd);
  std::ofstream(secret) << "secret words\n";
  std::string data = read_file(capture / "data");
  size_t replaced = 0;
  for (size_t at = 0; (at = data.find(old, at)) != std::string::npos; at += old.size(), ++replaced)
    data.replace(at, old.size(), secret);
  EXPECT_GT(replaced, 0U);
  std::ofstream(capture / "data", std::ios::binary) << data;
  const std::string archive = (dir.path() / "x.tar").string();
  // --force: used for decoding whatever it is, but not taken along.
  const Ran ran = run_asof("pack --force " + capture.string() + " -o " + archive);
  fs::remove(secret);
  EXPECT_EQ(ran.status, 3);
  EXPECT_NE(ran.err.find("E-FILE-134 " + secret), std::string::npos) << ran.err;
  EXPECT_EQ(read_file(archive).find("secret words"), std::string::npos);
}

TEST(PackCli, NothingIsWrittenThroughALinkOfTheTemporaryName) {
  const TempDir dir;
  const fs::path victim = dir.path() / "victim", archive = dir.path() / "x.tar.zst";
  std::ofstream(victim) << "precious\n";
  fs::create_symlink(victim, archive.string() + ".part.zst");
  fs::create_symlink(victim, archive.string() + ".part");
  ASSERT_EQ(run_asof("pack -q " + kDemo + " -o " + archive.string()).status, 0);
  EXPECT_EQ(read_file(victim), "precious\n");
  size_t files = 0;
  for (const auto& e : fs::directory_iterator(dir.path()))
    files += e.is_regular_file() && !e.is_symlink() ? 1 : 0;
  EXPECT_EQ(files, 2U) << "more than the archive and the other file";
}

}  // namespace
}  // namespace asof::test
