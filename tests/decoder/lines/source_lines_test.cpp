// Source lines: programs compiled here, mapped by a recording, with every address compared with binutils'
// addr2line. Then faults: no debug information, that of another program, damage.
#include "decoder/lines/source_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <random>

#include "decoder/lines/dwarf_lines.h"
#include "decoder/model/image.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/lines/other_tools.h"

namespace asof {
namespace {

using namespace test;
namespace fs = std::filesystem;

constexpr const char* kProgram = R"(
struct Sum { unsigned long all = 0; void add(unsigned long n) { all += n * n; } };
static inline unsigned long twice(unsigned long n) {
  return n + n;
}
__attribute__((noinline)) unsigned long even(unsigned long n) {
  Sum s;
  for (unsigned long i = 0; i < n; i += 2) {
    s.add(twice(i));
  }
  return s.all;
}
__attribute__((noinline, section(".text.apart"))) unsigned long odd(unsigned long n) {
  if (n == 7) return 1;
  return even(n) + twice(n);
}
extern "C" int main(int argc, char**) {
  return static_cast<int>(odd(static_cast<unsigned long>(argc)));
}
)";

class SourceLinesOf : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* tool : {"g++ --version", "addr2line --version", "objcopy --version"}) {
      if (!runs(tool)) GTEST_SKIP() << tool << ": not installed";
    }
    fs::create_directories(symfs / "bin");
    write_text(r.dir / "prog.cpp", kProgram);
  }
  fs::path path(const std::string& name) const { return r.dir / name; }
  // Compiles and links into `to`.
  void compile(const std::string& options, const fs::path& to) {
    ASSERT_TRUE(runs(
        fmt::format("g++ -O2 {} -Wl,--build-id -o {} {}", options, to.string(), path("prog.cpp").string())))
        << options;
  }
  void link_kernel(const fs::path& to, Addr at, uint64_t size) {
    write_text(
        path("kernel.lds"),
        fmt::format("SECTIONS {{ . = {:#x}; .text : {{ _text = .; _stext = .; *(.text .text.*) . = {:#x}; "
                    "_etext = .; }} .notes : {{ *(.note*) }} }}",
                    at, size));
    compile(
        "-g -ffreestanding -nostdlib -static -mcmodel=kernel -fno-pic -no-pie -fcf-protection=none -Wl,-T," +
            path("kernel.lds").string(),
        to);
  }
  // The executable's segments as the kernel maps them, offset by `base`.
  void map(const fs::path& file, Addr base) {
    const auto elf = ElfImage::open(file.string());
    ASSERT_TRUE(elf.has_value());
    for (const ElfSegment& s : (*elf)->segments()) {
      if (!s.executable) continue;
      const uint64_t skip = s.address % 0x1000;
      r.writer.mmap2({.pid = 7,
                      .tid = 7,
                      .addr = base + s.address - skip,
                      .len = (s.bytes.size() + skip + 0xfff) / 0x1000 * 0x1000,
                      .pgoff = s.file_offset - skip,
                      .filename = "/bin/" + file.filename().string(),
                      .build_id = id_of(**elf)});
    }
    r.writer.itrace_start(7, 7, Recording::at(10));
  }
  static Bytes id_of(const ElfImage& elf) {
    Bytes out;
    for (size_t i = 0; i + 1 < elf.build_id().size(); i += 2)
      out.push_back(static_cast<uint8_t>(std::stoul(elf.build_id().substr(i, 2), nullptr, 16)));
    return out;
  }
  void open(const CaptureOptions& options = closed_options()) {
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
  }
  Space space() const { return capture->streams[0].context_at(100)->space; }

  // Linked addresses of our functions' bytes.
  static std::vector<Addr> addresses(const fs::path& file) {
    std::vector<Addr> out;
    const auto elf = ElfImage::open(file.string());
    for (const ElfSymbol& s : (*elf)->symbols()) {
      if (s.name != "main" && s.name.find("4even") == std::string::npos &&
          s.name.find("3odd") == std::string::npos)
        continue;
      for (uint64_t i = 0; i < s.size; ++i) out.push_back(s.value + i);
    }
    return out;
  }
  // "/folder/prog.cpp:12", as addr2line prints it.
  std::vector<std::string> read_by_addr2line(const fs::path& file, const std::vector<Addr>& at) const {
    std::string list;
    for (const Addr a : at) list += fmt::format("{:#x}\n", a);
    write_text(path("addresses"), list);
    const std::string command = fmt::format("addr2line -e {} <{} >{}", file.string(),
                                            path("addresses").string(), path("answers").string());
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::vector<std::string> out = lines_of_file(path("answers"));
    for (std::string& line : out) line = line.substr(0, line.find(" (discriminator"));
    return out;
  }
  // Everything in `debug` must be what a reader of the capture gets at addresses offset by `base`.
  void expect_lines(const fs::path& debug, Space where, Addr base) {
    const std::vector<Addr> at = addresses(debug);
    ASSERT_GT(at.size(), 60U);
    const auto want = read_by_addr2line(debug, at);
    ASSERT_EQ(want.size(), at.size());
    SourceLines lines(*capture);
    size_t known = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const SourceLine got = lines.at(where, base + at[i], 100);
      ASSERT_EQ(fmt::format("{}:{}", got.file, got.line), want[i]) << std::hex << at[i];
      known += got ? 1 : 0;
    }
    EXPECT_EQ(known, at.size());
    for (const Notice& n : lines.take_notices())
      ADD_FAILURE() << n.code << " " << n.where << ": " << n.reason;
  }

  Recording r;
  fs::path symfs = r.dir / "perf.data/symfs";
  std::optional<Capture> capture;
};

constexpr Addr kBase = 0x555500000000;

TEST_F(SourceLinesOf, ProgramsOfEveryFormat) {
  // addr2line does not read all formats: the code is the same, so the debug information of the first is used.
  struct Variant {
    std::string options;
    bool as_first = false;
  };
  const Variant variants[] = {
      {"-g"},        {"-gdwarf-2 -gstrict-dwarf"},
      {"-gdwarf-3"}, {"-gdwarf-4"},
      {"-g -gz"},    {"-g -gz=zlib-gnu", true},
      {"-g1"},       {"-g -gsplit-dwarf -dumpdir " + r.dir.path().string() + "/", true}};
  size_t n = 0;
  for (const Variant& v : variants) {
    const fs::path file = symfs / "bin" / fmt::format("prog{}", n);
    compile(v.options, file);
    map(file, kBase * ++n);
  }
  open();
  for (size_t i = 0; i < n; ++i) {
    SCOPED_TRACE(variants[i].options);
    const fs::path file = symfs / "bin" / fmt::format("prog{}", i), first = symfs / "bin/prog0";
    ASSERT_EQ(addresses(file), addresses(first));
    expect_lines(variants[i].as_first ? first : file, space(), kBase * (i + 1));
  }
}

TEST_F(SourceLinesOf, SeparateFileByLinkAndByBuildId) {
  const auto separate = [&](const fs::path& file, const fs::path& debug, bool link) {
    fs::create_directories(debug.parent_path());
    compile("-g", file);
    ASSERT_TRUE(runs(fmt::format("objcopy --only-keep-debug {} {}", file.string(), debug.string())));
    ASSERT_TRUE(runs("strip " + file.string()));
    if (link) {
      ASSERT_TRUE(runs(fmt::format("objcopy --add-gnu-debuglink={} {}", debug.string(), file.string())));
    }
  };
  std::vector<fs::path> debug = {symfs / "bin/.debug/linked.debug", symfs / "usr/lib/debug/bin/far.debug",
                                 path("by_id.debug"), path("cached.debug")};
  const std::vector<fs::path> files = {symfs / "bin/linked", symfs / "bin/far", symfs / "bin/by_id",
                                       symfs / "bin/cached"};
  for (size_t i = 0; i < files.size(); ++i) {
    separate(files[i], debug[i], i < 2);
    if (HasFatalFailure()) return;
    const std::string id = (*ElfImage::open(files[i].string()))->build_id();
    const fs::path places[] = {
        {},
        {},
        symfs / "usr/lib/debug/.build-id" / id.substr(0, 2) / (id.substr(2) + ".debug"),
        path("cache") / ".build-id" / id.substr(0, 2) / id.substr(2) / "debug"};
    if (i >= 2) {
      fs::create_directories(places[i].parent_path());
      fs::rename(debug[i], places[i]);
      debug[i] = places[i];
    }
    map(files[i], kBase * (i + 1));
  }
  CaptureOptions options = closed_options();
  options.buildid_dir = path("cache").string();
  open(options);
  for (size_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE(files[i]);
    expect_lines(debug[i], space(), kBase * (i + 1));
  }
}

// A link to a file of the right name that belongs to another program.
TEST_F(SourceLinesOf, ForeignDebugFileIsNotUsed) {
  compile("-g", symfs / "bin/prog");
  compile("-g -O0", symfs / "bin/prog.debug");
  ASSERT_TRUE(runs(fmt::format(
      "strip {0}/prog && cd {0} && cp prog.debug x && objcopy --add-gnu-debuglink=prog.debug prog",
      (symfs / "bin").string())));
  map(symfs / "bin/prog", kBase);
  open();
  SourceLines lines(*capture);
  EXPECT_FALSE(lines.at(space(), kBase + 0x1100, 100));
  const auto notices = lines.take_notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].code, Code::kNoDebugInfo);
  EXPECT_EQ(notices[0].where, "/bin/prog");
  EXPECT_FALSE(lines.at(space(), kBase + 0x1101, 100));
  EXPECT_TRUE(lines.take_notices().empty()) << "reported once";
  EXPECT_FALSE(lines.at(space(), 0x10, 100)) << "nothing is mapped at this address";
}

// The kernel ran at a different address than it was linked for, and its text comes from kcore.
TEST_F(SourceLinesOf, KernelMovedByItsAddressAtBoot) {
  constexpr Addr kLinked = 0xffffffff80200000;
  const fs::path vmlinux = path("vmlinux");
  link_kernel(vmlinux, kLinked, Recording::kTextSize);
  if (HasFatalFailure()) return;
  const PerfDataWriter::BuildIdSpec id{.id = id_of(**ElfImage::open(vmlinux.string())),
                                       .filename = "[kernel.kallsyms]_text"};
  r.writer.build_ids(std::span(&id, 1));
  CaptureOptions options = closed_options();
  options.vmlinux = vmlinux.string();
  open(options);
  expect_lines(vmlinux, kKernelSpace, Recording::kText - kLinked);
  EXPECT_EQ(bytes_at(*capture->text, kKernelSpace, Recording::kText, 1, 100), Bytes{0x90}) << "from the copy";
}

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
  ASSERT_EQ(notices.size(), 1U);
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

TEST_F(SourceLinesOf, KernelOfAnotherBuildIsRefused) {
  constexpr Addr kLinked = 0xffffffff80200000;
  const fs::path vmlinux = path("vmlinux");
  link_kernel(vmlinux, kLinked, Recording::kTextSize + 16);
  if (HasFatalFailure()) return;
  CaptureOptions options = closed_options();
  options.vmlinux = vmlinux.string();
  open(options);
  EXPECT_NE(find_notice(*capture, Code::kBadDebugInfo), nullptr);
  SourceLines lines(*capture);
  EXPECT_FALSE(lines.at(kKernelSpace, Recording::kText, 100));
}

// libdw must neither crash nor loop, whatever is in the file; what is not a regular file must not block.
TEST_F(SourceLinesOf, DamageIsNoCrash) {
  const fs::path good = path("good");
  compile("-g -ffreestanding -nostdlib -static -Wl,-e,main", good);
  if (HasFatalFailure()) return;
  const std::vector<Addr> at = addresses(good);
  const Bytes bytes = read_bytes(good);
  std::mt19937_64 random(5);
  size_t answered = 0, refused = 0;
  for (int round = 0; round < 1500; ++round) {
    Bytes bad = bytes;
    if (round % 10 == 9) {
      bad.resize(random() % bad.size());
    } else {
      // After the code: debug sections, symbols, section headers.
      for (uint64_t n = random() % 8 + 1; n != 0; --n)
        bad[0x1000 + random() % (bad.size() - 0x1000)] =
            static_cast<uint8_t>(random() % 4 == 0 ? 0xff : random());
    }
    write_bytes(path("bad"), bad);
    auto lines = DwarfLines::open(path("bad").string());
    if (!lines) {
      ++refused;
      EXPECT_TRUE(lines.error().code == Code::kBadDebugInfo || lines.error().code == Code::kNoDebugInfo);
      continue;
    }
    for (const Addr a : at) answered += (*lines)->find(a).line != 0 ? 1 : 0;
  }
  EXPECT_GT(answered, 1000U);
  EXPECT_GT(refused, 10U);
  // A section that claims to unpack to a terabyte.
  compile("-g -gz", path("packed"));
  Bytes packed = read_bytes(path("packed"));
  const auto elf = ElfImage::open(path("packed").string());
  for (const auto& section : (*elf)->sections()) {
    if (section.name != ".debug_info" && section.name != ".debug_line") continue;
    packed[section.file_offset + 8 + 5] = 1;  // Elf64_Chdr::ch_size
  }
  write_bytes(path("bad"), packed);
  const auto refused_it = DwarfLines::open(path("bad").string());
  ASSERT_FALSE(refused_it.has_value());
  EXPECT_NE(refused_it.error().reason.find("unpack"), std::string::npos) << refused_it.error().reason;
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(DwarfLines::open(path("pipe").string()).has_value());
}

}  // namespace
}  // namespace asof
