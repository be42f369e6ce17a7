// Inlined functions: compared with binutils' addr2line; then debug information that no compiler makes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "decoder/lines/dwarf_lines.h"
#include "decoder/lines/source_lines.h"
#include "decoder/model/image.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/lines/other_tools.h"

namespace asof {
namespace {

using namespace test;
namespace fs = std::filesystem;

constexpr const char* kProgram = R"(
namespace shapes {
struct Sum {
  unsigned long all = 0;
  __attribute__((always_inline)) void add(unsigned long n) { all += n * n; }
};
template <class T> inline __attribute__((always_inline)) T twice(T n) {
  return n + n;
}
inline __attribute__((always_inline)) unsigned long both(Sum& s, unsigned long n) {
  s.add(twice(n));
  s.add(n);
  return s.all;
}
}
__attribute__((noinline)) unsigned long even(unsigned long n) {
  shapes::Sum s;
  for (unsigned long i = 0; i < n; i += 2) {
    if (shapes::both(s, i) > 1000) break;
    auto more = [&](unsigned long k) __attribute__((always_inline)) { s.add(k ^ i); };
    more(i);
  }
  return s.all;
}
extern "C" int main(int argc, char**) {
  return static_cast<int>(even(static_cast<unsigned long>(argc)));
}
)";

class Inlines : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* tool : {"g++ --version", "addr2line --version", "as --version", "ld --version"}) {
      if (!runs(tool)) GTEST_SKIP() << tool << ": not installed";
    }
  }
  fs::path path(const std::string& name) const { return dir.path() / name; }
  // Of all bytes of even() and main(), as linked.
  static std::vector<Addr> addresses(const fs::path& file) {
    std::vector<Addr> out;
    const auto elf = ElfImage::open(file.string());
    for (const ElfSymbol& s : (*elf)->symbols()) {
      if (s.name != "main" && s.name.find("4even") == std::string::npos) continue;
      for (uint64_t i = 0; i < s.size; ++i) out.push_back(s.value + i);
    }
    return out;
  }
  // "name file:line", innermost first.
  std::vector<std::vector<std::string>> by_addr2line(const fs::path& file,
                                                     const std::vector<Addr>& at) const {
    std::string list;
    for (const Addr a : at) list += fmt::format("{:#x}\n", a);
    write_text(path("addresses"), list);
    EXPECT_EQ(std::system(fmt::format("addr2line -a -f -i -e {} <{} >{}", file.string(),
                                      path("addresses").string(), path("answers").string())
                              .c_str()),
              0);
    std::vector<std::vector<std::string>> out;
    std::string name;
    for (const std::string& line : lines_of_file(path("answers"))) {
      if (line.starts_with("0x")) {
        out.emplace_back();
      } else if (name.empty()) {
        name = line;
      } else {
        out.back().push_back(name + " " + line.substr(0, line.find(" (discriminator")));
        name.clear();
      }
    }
    return out;
  }
  // "name /folder/prog.cpp:12" as "name prog.cpp:12".
  static std::vector<std::string> without_folders(std::vector<std::string> chain) {
    for (std::string& f : chain) {
      const size_t from = f.find(' ') + 1, slash = f.rfind('/');
      if (slash != std::string::npos && slash > from) f.erase(from, slash + 1 - from);
    }
    return chain;
  }
  // Everywhere in `file`, as addr2line says of `reference`, which has the same code.
  void expect_chains(const fs::path& file, const fs::path& reference, bool folders = true) {
    const auto at = addresses(file);
    ASSERT_EQ(at, addresses(reference));
    const auto want = by_addr2line(reference, at);
    ASSERT_EQ(want.size(), at.size());
    auto lines = DwarfLines::open(file.string());
    ASSERT_TRUE(lines.has_value());
    size_t deep = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      std::vector<std::string> got;
      const DwarfLine line = (*lines)->find(at[i]);
      std::string place = fmt::format("{}:{}", line.file, line.line);
      for (const InlinedCall& f : (*lines)->functions_at(at[i])) {
        got.push_back(fmt::format("{} {}", f.function, place));
        place = fmt::format("{}:{}", f.file, f.line);
        EXPECT_EQ(f.inlined, got.size() < want[i].size());
      }
      ASSERT_EQ(folders ? got : without_folders(got), folders ? want[i] : without_folders(want[i]))
          << std::hex << at[i];
      deep += got.size() > 2 ? 1 : 0;
    }
    EXPECT_GT(deep, 5U);
    EXPECT_EQ((*lines)->take_problem(), "");
    EXPECT_EQ((*lines)->take_split_problem(), "");
  }
  // Compiled in the folder, with its functions in prog.dwo there.
  void compile_split(const std::string& options) {
    ASSERT_TRUE(
        runs(fmt::format("cd {} && g++ -O2 {} -gsplit-dwarf -c -o prog.o {} && g++ -no-pie -o split prog.o",
                         dir.path().string(), options, path("prog.cpp").string())));
    ASSERT_TRUE(fs::exists(path("prog.dwo")));
  }
  std::string split_problem(const fs::path& file) {
    auto lines = DwarfLines::open(file.string());
    EXPECT_TRUE(lines.has_value());
    for (const Addr a : addresses(file)) {
      EXPECT_TRUE((*lines)->functions_at(a).empty());
      EXPECT_NE((*lines)->find(a).line, 0U);
    }
    EXPECT_EQ((*lines)->take_problem(), "");
    return (*lines)->take_split_problem();
  }
  // A program whose debug information is what `info` says: units and abbreviations as assembly.
  void assemble(const std::string& name, const std::string& abbrevs, const std::string& entries) {
    write_text(path(name + ".s"),
               fmt::format(".text\n.globl _start\n_start:\n.skip 4096, 0x90\n_end:\n"
                           ".section .debug_abbrev,\"\",@progbits\n{}\n.byte 0\n"
                           ".section .debug_info,\"\",@progbits\ncu:\n.long cu_end - cu_begin\ncu_begin:\n"
                           ".value 4\n.long 0\n.byte 8\n"
                           ".uleb128 1\n.quad _start\n.quad 4096\n{}\ncu_end:\n",
                           abbrevs, entries));
    ASSERT_TRUE(
        runs(fmt::format("as -o {0}.o {0}.s && ld -Ttext=0x401000 -o {0} {0}.o", path(name).string())));
  }

  TempDir dir;
};

TEST_F(Inlines, ChainsAreThoseOfAddr2line) {
  write_text(path("prog.cpp"), kProgram);
  for (const char* options : {"-O2 -g", "-O2 -gdwarf-4", "-O3 -gdwarf-3", "-O2 -g -ffunction-sections"}) {
    SCOPED_TRACE(options);
    ASSERT_TRUE(runs(
        fmt::format("g++ {} -no-pie -o {} {}", options, path("prog").string(), path("prog.cpp").string())));
    expect_chains(path("prog"), path("prog"));
  }
}

// -gsplit-dwarf: where the file is that has the functions, and who is in the way.
TEST_F(Inlines, OfSplitUnits) {
  write_text(path("prog.cpp"), kProgram);
  const std::string moved =
      "-fdebug-prefix-map=" + dir.path().string() + "=.";  // comp_dir and names are relative
  for (const std::string& options : {std::string("-g"), std::string("-gdwarf-4"), "-g " + moved}) {
    SCOPED_TRACE(options);
    compile_split(options);
    ASSERT_TRUE(runs(fmt::format("g++ -O2 {} -no-pie -o {} {}", options, path("whole").string(),
                                 path("prog.cpp").string())));
    expect_chains(path("split"), path("whole"), false);
    // By a link from elsewhere, it is the folder of the program that counts.
    fs::create_directories(path("elsewhere"));
    fs::remove(path("elsewhere/link"));
    fs::create_symlink(path("split"), path("elsewhere/link"));
    expect_chains(path("elsewhere/link"), path("whole"), false);
  }
  auto listed = DwarfLines::open(path("split").string());
  ASSERT_TRUE(listed.has_value());
  std::map<std::string, uint32_t> functions;
  for (const DwarfFunction& f : (*listed)->functions()) functions[std::string(f.name)] = f.line;
  EXPECT_EQ(functions["main"], 25U);
  EXPECT_EQ(functions["_Z4evenm"], 16U);
}

TEST_F(Inlines, OfSplitUnitsWhoseFileIsNotIt) {
  write_text(path("prog.cpp"), kProgram);
  compile_split("-g");
  fs::rename(path("prog.dwo"), path("kept"));
  EXPECT_EQ(split_problem(path("split")), "functions of a unit are in prog.dwo, which is not there");
  write_text(path("prog.dwo"), "no ELF file");
  EXPECT_EQ(split_problem(path("split")), path("prog.dwo").string() + ": not an ELF file");
  fs::remove(path("prog.dwo"));
  ASSERT_TRUE(runs("mkfifo " + path("prog.dwo").string()));
  EXPECT_EQ(split_problem(path("split")), path("prog.dwo").string() + ": cannot open it");
  fs::remove(path("prog.dwo"));
  // Of another program.
  write_text(path("other.cpp"), "int other() { return 1; }");
  ASSERT_TRUE(
      runs(fmt::format("cd {} && g++ -g -gsplit-dwarf -c -o other.o other.cpp && mv other.dwo prog.dwo",
                       dir.path().string())));
  EXPECT_EQ(split_problem(path("split")),
            "functions of a unit are in prog.dwo, which is not the file of this unit");
}

// Every function with its line, and every line that has code.
TEST_F(Inlines, ListsOfFunctionsAndLines) {
  write_text(path("prog.cpp"), kProgram);
  ASSERT_TRUE(
      runs(fmt::format("g++ -O2 -g -no-pie -o {} {}", path("prog").string(), path("prog.cpp").string())));
  auto lines = DwarfLines::open(path("prog").string());
  ASSERT_TRUE(lines.has_value());
  std::map<std::string, std::set<uint32_t>> functions;
  for (const DwarfFunction& f : (*lines)->functions()) {
    functions[std::string(f.name)].insert(f.line);
    EXPECT_EQ(f.file, path("prog.cpp").string());
  }
  EXPECT_EQ(functions["main"], std::set<uint32_t>{25});
  EXPECT_EQ(functions["_ZN6shapes3Sum3addEm"], std::set<uint32_t>{5});
  EXPECT_EQ(functions["_Z4evenm"], std::set<uint32_t>{16});
  std::set<uint32_t> with_code;
  (*lines)->each_line([&](std::string_view file, uint32_t line) {
    EXPECT_EQ(file, path("prog.cpp").string());
    with_code.insert(line);
  });
  for (const uint32_t line : {5U, 18U, 19U, 26U}) EXPECT_TRUE(with_code.contains(line)) << line;
  EXPECT_FALSE(with_code.contains(3U)) << "a declaration has no code";
}

constexpr const char* kAbbrevs = R"(
.uleb128 1
.uleb128 0x11
.byte 1
.uleb128 0x11
.uleb128 0x01
.uleb128 0x12
.uleb128 0x07
.byte 0, 0
.uleb128 2
.uleb128 0x0b
.byte 1
.byte 0, 0
.uleb128 3
.uleb128 0x1d
.byte 1
.uleb128 0x31
.uleb128 0x13
.uleb128 0x11
.uleb128 0x01
.uleb128 0x12
.uleb128 0x07
.byte 0, 0
.uleb128 4
.uleb128 0x0b
.byte 1
.uleb128 0x01
.uleb128 0x13
.byte 0, 0
.uleb128 5
.uleb128 0x2e
.byte 1
.uleb128 0x11
.uleb128 0x01
.uleb128 0x12
.uleb128 0x07
.byte 0, 0
)";

// Blocks in blocks, deeper than any stack.
TEST_F(Inlines, DeepNestingEnds) {
  assemble("deep", kAbbrevs, ".uleb128 5\n.quad _start\n.quad 4096\n.rept 3000000\n.byte 2\n.endr\n");
  if (HasFatalFailure()) return;
  auto lines = DwarfLines::open(path("deep").string());
  ASSERT_TRUE(lines.has_value());
  EXPECT_TRUE((*lines)->functions_at(0x401000).empty());
  EXPECT_NE((*lines)->take_problem().find("nested deeper"), std::string::npos);
  EXPECT_TRUE((*lines)->functions_at(0x401001).empty());
  EXPECT_EQ((*lines)->take_problem(), "") << "once";
}

// An entry whose next one is itself, and one whose next one is before it.
TEST_F(Inlines, CyclesOfSiblingsEnd) {
  assemble("loop", kAbbrevs,
           ".uleb128 5\n.quad _start\n.quad 4096\nback:\n.uleb128 4\n.long back - cu\n.byte 0\n.byte "
           "0\n.byte 0\n");
  if (HasFatalFailure()) return;
  auto lines = DwarfLines::open(path("loop").string());
  ASSERT_TRUE(lines.has_value());
  const auto found = (*lines)->functions_at(0x401000);
  EXPECT_TRUE(found.size() == 1 || !(*lines)->take_problem().empty());
}

// A function that is an instance of itself has no name, but a place.
TEST_F(Inlines, CyclesOfOriginsEnd) {
  assemble(
      "origin", kAbbrevs,
      ".uleb128 5\n.quad _start\n.quad 4096\nhere:\n.uleb128 3\n.long here - cu\n.quad _start\n.quad 16\n"
      ".byte 0\n.byte 0\n.byte 0\n");
  if (HasFatalFailure()) return;
  auto lines = DwarfLines::open(path("origin").string());
  ASSERT_TRUE(lines.has_value());
  const auto inside = (*lines)->functions_at(0x401004), outside = (*lines)->functions_at(0x401020);
  ASSERT_EQ(inside.size(), 2U);
  EXPECT_EQ(inside[0].function, "");
  EXPECT_TRUE(inside[0].inlined);
  EXPECT_EQ(outside.size(), 1U);
}

// libdw must neither crash nor loop, whatever is in the file.
TEST_F(Inlines, DamageIsNoCrash) {
  write_text(path("prog.cpp"), kProgram);
  ASSERT_TRUE(runs(fmt::format("g++ -O2 -g -ffreestanding -nostdlib -static -Wl,-e,main -o {} {}",
                               path("good").string(), path("prog.cpp").string())));
  const std::vector<Addr> at = addresses(path("good"));
  const Bytes bytes = read_bytes(path("good"));
  std::mt19937_64 random(7);
  size_t answered = 0;
  for (int round = 0; round < 600; ++round) {
    Bytes bad = bytes;
    for (uint64_t n = random() % 8 + 1; n != 0; --n)
      bad[0x1000 + random() % (bad.size() - 0x1000)] =
          static_cast<uint8_t>(random() % 4 == 0 ? 0xff : random());
    write_bytes(path("bad"), bad);
    auto lines = DwarfLines::open(path("bad").string());
    if (!lines) continue;
    for (size_t i = 0; i < at.size(); i += 7) answered += (*lines)->functions_at(at[i]).size();
    (*lines)->functions();
  }
  EXPECT_GT(answered, 1000U);
}

}  // namespace
}  // namespace asof
