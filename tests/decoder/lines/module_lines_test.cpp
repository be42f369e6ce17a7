// Source lines of kernel modules, which are relocatable files: compared with binutils' addr2line; compressed files, those of another
// build, damage.
#include <random>

#include "tests/decoder/lines/source_lines_fixture.h"

namespace asof::test {
namespace {

// A relocatable file with two sections of code, loaded where the recording says; its symbols are those of kallsyms.
class SourceLinesOfModule : public SourceLinesOf {
 protected:
  static constexpr const char* kModule = "/lib/modules/6.1/kernel/drivers/block/some-blk.ko";
  static constexpr Addr kAt = Recording::kModules;
  struct Function {
    std::string section;
    uint64_t in_section = 0, size = 0, offset = 0;  // in the module
  };
  void SetUp() override {
    SourceLinesOf::SetUp();
    if (IsSkipped()) return;
    write_text(path("mod.c"), R"(
static inline int twice(int n) { return n + n; }
__attribute__((noinline)) int blk_one(int n) { return twice(n) ^ n; }
__attribute__((noinline)) int blk_two(int n) { return blk_one(n) + 2; }
__attribute__((noinline, section(".text.apart"))) int blk_three(int n) {
  return blk_two(twice(n));
}
)");
    file = symfs.string() + kModule;
    fs::create_directories(fs::path(file).parent_path());
    ASSERT_TRUE(runs(fmt::format("gcc -O2 -g -c -mcmodel=kernel -fno-pic -fcf-protection=none -o {} {}", file,
                                 path("mod.c").string())));
    read_functions();
  }
  // By readelf: where each is in its section; sections of code follow each other.
  void read_functions() {
    ASSERT_EQ(std::system(fmt::format("objdump -t {0} >{1}; objdump -h -w {0} >{2}", file,
                                      path("symbols").string(), path("sections").string())
                              .c_str()),
              0);
    std::map<std::string, uint64_t> begins;
    uint64_t next = 0;
    for (const std::string& line : lines_of_file(path("sections"))) {
      char name[64] = {};
      unsigned long size = 0;
      unsigned power = 0;
      if (std::sscanf(line.c_str(), " %*u %63s %lx %*x %*x %*x 2**%u", name, &size, &power) != 3) continue;
      if (line.find("CODE") == std::string::npos) continue;
      next = (next + (1UL << power) - 1) >> power << power;
      begins[name] = next;
      next += size;
    }
    for (const std::string& line : lines_of_file(path("symbols"))) {
      char section[64] = {}, name[64] = {};
      unsigned long at = 0, size = 0;
      if (std::sscanf(line.c_str(), "%lx %*s F %63s %lx %63s", &at, section, &size, name) != 4) continue;
      functions[name] = {section, at, size, begins.at(section) + at};
    }
    ASSERT_EQ(functions.size(), 3U);
  }
  void record(int64_t shift, const std::string& suffix = "") {
    MmapSpec map{.addr = kAt, .len = 0x4000, .filename = kModule + suffix, .kernel = true};
    r.writer.mmap(map);
    for (const auto& [name, f] : functions)
      r.symbol(kAt + f.offset + static_cast<uint64_t>(shift), 't', name, "some_blk");
    r.modules += Recording::module_line("some_blk", kAt, 0x4000);
    r.segment(kAt, Bytes(0x4000, 0x90));
    r.writer.itrace_start(7, 7, Recording::at(10));
  }
  std::string file;
  std::map<std::string, Function> functions;
};

TEST_F(SourceLinesOfModule, EveryByteIsThatOfAddr2line) {
  record(0);
  open();
  SourceLines lines(*capture);
  size_t inlined = 0;
  for (const auto& [name, f] : functions) {
    for (uint64_t i = 0; i < f.size; ++i) {
      const std::string command = fmt::format("addr2line -e {} -j {} {:#x} >{}", file, f.section,
                                              f.in_section + i, path("answers").string());
      ASSERT_EQ(std::system(command.c_str()), 0);
      std::string want = lines_of_file(path("answers")).at(0);
      want = want.substr(0, want.find(" (discriminator"));
      const SourceLine got = lines.at(kKernelSpace, kAt + f.offset + i, 100);
      ASSERT_EQ(fmt::format("{}:{}", got.file, got.line), want) << name << " " << i;
      const auto frames = lines.frames_at(kKernelSpace, kAt + f.offset + i, 100);
      ASSERT_FALSE(frames.empty());
      EXPECT_EQ(frames.back().function, name);
      inlined += frames.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(inlined, 3U);
  EXPECT_TRUE(lines.take_notices().empty());
}

// As distributions install it: compressed, with its debug information or with that in a package's file.
TEST_F(SourceLinesOfModule, CompressedFile) {
  for (const char* tool : {"xz --version", "strip --version"}) {
    if (!runs(tool)) GTEST_SKIP() << tool << ": not installed";
  }
  record(0, ".xz");
  const auto expect_line = [&](const char* where) {
    open();
    SourceLines lines(*capture);
    EXPECT_EQ(lines.at(kKernelSpace, kAt + functions.at("blk_one").offset, 100).line, 2U)
        << where;  // twice()
    EXPECT_EQ(lines.frames_at(kKernelSpace, kAt + functions.at("blk_three").offset, 100).size(), 2U) << where;
  };
  const std::string debug = symfs.string() + "/usr/lib/debug" + kModule;
  fs::create_directories(fs::path(debug).parent_path());
  fs::copy(file, debug);
  ASSERT_TRUE(runs("xz " + file));
  fs::rename(debug, debug + ".away");
  expect_line("in the file");
  fs::rename(debug + ".away", debug);
  ASSERT_TRUE(runs("xz -d " + file + ".xz") && runs("strip -g " + file) && runs("xz " + file));
  expect_line("in the debug file");
}

// Symbols that are elsewhere: of another build.
TEST_F(SourceLinesOfModule, AnotherBuildIsNotUsed) {
  record(16);
  open();
  SourceLines lines(*capture);
  EXPECT_FALSE(lines.at(kKernelSpace, kAt + functions.at("blk_one").offset, 100));
  const auto notices = lines.take_notices();
  ASSERT_EQ(notices.size(), 2U);  // the second: no line of anything is known
  EXPECT_EQ(notices[0].code, Code::kNoDebugInfo);
  EXPECT_EQ(notices[0].where, kModule);
}

TEST_F(SourceLinesOfModule, DamageIsNoCrash) {
  record(0);
  open();
  const Bytes good = read_bytes(file);
  std::mt19937_64 random(11);
  size_t answered = 0;
  for (int round = 0; round < 400; ++round) {
    Bytes bad = good;
    if (round % 10 == 9) {
      bad.resize(random() % bad.size());
    } else {
      for (uint64_t n = random() % 8 + 1; n != 0; --n)
        bad[0x40 + random() % (bad.size() - 0x40)] =
            static_cast<uint8_t>(random() % 4 == 0 ? 0xff : random());
    }
    write_bytes(file, bad);
    SourceLines lines(*capture);
    for (const auto& [name, f] : functions) {
      answered += lines.at(kKernelSpace, kAt + f.offset, 100) ? 1 : 0;
      lines.frames_at(kKernelSpace, kAt + f.offset, 100);
    }
  }
  EXPECT_GT(answered, 100U);
}

}  // namespace
}  // namespace asof::test
