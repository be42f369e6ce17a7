// A program compiled here and mapped by a recording, whose every address binutils' addr2line is asked about.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "decoder/lines/source_lines.h"
#include "decoder/model/image.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/lines/other_tools.h"

namespace asof::test {

namespace fs = std::filesystem;

inline constexpr const char* kLinesProgram = R"(
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
    write_text(r.dir / "prog.cpp", kLinesProgram);
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
                    "_etext = .; }} .notes : {{ *(.note.gnu.build-id) }} }}",
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

}  // namespace asof::test
