// Source lines: programs compiled here, mapped by a recording, with every address compared with binutils'
// addr2line. Then faults: no debug information, that of another program, damage.
#include "decoder/lines/source_lines.h"

#include <sys/stat.h>

#include <random>

#include "decoder/lines/dwarf_lines.h"
#include "tests/decoder/lines/source_lines_fixture.h"
#include "tests/support/debuginfod_servers.h"

namespace asof::test {
namespace {

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
  ASSERT_EQ(notices.size(), 2U);  // the second: no line of anything is known
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

// No vmlinux is given, or where kernels are kept: a file with the recorded build-id is enough.
class SourceLinesOfAbsentKernel : public SourceLinesOf {
 protected:
  static constexpr Addr kLinked = 0xffffffff80200000;
  void SetUp() override {
    SourceLinesOf::SetUp();
    if (IsSkipped()) return;
    link_kernel(vmlinux, kLinked, Recording::kTextSize);
    if (HasFatalFailure()) return;
    const auto elf = ElfImage::open(vmlinux.string());
    ASSERT_TRUE(elf.has_value());
    id = (*elf)->build_id();
    const PerfDataWriter::BuildIdSpec recorded{.id = id_of(**elf), .filename = "[kernel.kallsyms]_text"};
    r.writer.build_ids(std::span(&recorded, 1));
  }
  void put(const fs::path& where) const {
    fs::create_directories(where.parent_path());
    fs::copy_file(vmlinux, where);
  }
  fs::path vmlinux = path("vmlinux");
  std::string id;
};

TEST_F(SourceLinesOfAbsentKernel, FileOfItsBuildId) {
  put(symfs / "usr/lib/debug/.build-id" / id.substr(0, 2) / (id.substr(2) + ".debug"));
  open();
  expect_lines(vmlinux, kKernelSpace, Recording::kText - kLinked);
  SourceLines lines(*capture);
  EXPECT_FALSE(lines.place_of(kKernelSpace, Recording::kText + 5, 100)) << "not looked for";
  const auto place = lines.place_with_lines(kKernelSpace, Recording::kText + 5, 100);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->address, kLinked + 5);
  EXPECT_FALSE(lines.place_with_lines(kKernelSpace, Recording::kText + Recording::kTextSize, 100));
}

TEST_F(SourceLinesOfAbsentKernel, FileOfAServer) {
  ASOF_SKIP_WITHOUT_DEBUGINFOD();
  put(path("servers/buildid") / id / "debuginfo");
  const DebuginfodServers servers("file://" + path("servers").string(), path("cache"));
  open();
  EXPECT_FALSE(SourceLines(*capture).at(kKernelSpace, Recording::kText, 100)) << "without being asked to";
  capture->code.debuginfod = true;
  expect_lines(vmlinux, kKernelSpace, Recording::kText - kLinked);
}

TEST_F(SourceLinesOfAbsentKernel, IsNamedOnce) {
  compile("-g", symfs / "bin/other");  // of another build-id, where that of the kernel is expected
  fs::create_directories(symfs / "usr/lib/debug/.build-id" / id.substr(0, 2));
  fs::rename(symfs / "bin/other",
             symfs / "usr/lib/debug/.build-id" / id.substr(0, 2) / (id.substr(2) + ".debug"));
  open();
  SourceLines lines(*capture);
  EXPECT_FALSE(lines.at(kKernelSpace, Recording::kText, 100));
  EXPECT_FALSE(lines.place_with_lines(kKernelSpace, Recording::kText + 1, 100));
  const auto notices = lines.take_notices();
  ASSERT_EQ(notices.size(), 2U);  // the second: no line of anything is known
  EXPECT_EQ(notices[0].code, Code::kNoDebugInfo);
  EXPECT_EQ(notices[0].where, "[kernel.kallsyms]");
  EXPECT_NE(notices[0].reason.find(id), std::string::npos);
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
}  // namespace asof::test
