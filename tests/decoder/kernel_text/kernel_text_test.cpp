// Kernel text of a recording: what in a kcore copy is code, and what a second copy adds.
#include "decoder/kernel_text/kernel_text.h"

#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kText = Recording::kText, kModules = Recording::kModules;
const std::vector<Bytes> kUnknown = {{}};
const Bytes kNop = {0x0f, 0x1f, 0x44, 0, 0}, kJump = {0xe9, 0x10, 0, 0, 0};

class Kernel : public ::testing::Test {
 protected:
  void open(const CaptureOptions& options = closed_options()) {
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
  }
  // With this file as vmlinux. The recorded kernel has a build-id of 20 bytes 0xcd.
  void open_with_vmlinux(const ExecutableSpec& spec) {
    write_bytes(r.dir / "vmlinux", make_executable(spec));
    const PerfDataWriter::BuildIdSpec id{
        .pid = -1, .misc = 1, .id = Bytes(20, 0xcd), .filename = "[kernel.kallsyms]"};
    r.writer.build_ids(std::vector{id});
    CaptureOptions options = closed_options();
    options.vmlinux = (r.dir / "vmlinux").string();
    open(options);
  }
  std::vector<Bytes> at(Addr a, size_t n, Time t) { return contents(*capture->text, kKernelSpace, a, n, t); }
  // A module area: mod_a with a page of code and one of data at the start, mod_b at 0x4000.
  void two_modules() {
    Bytes area(0x6000, 0);
    std::fill(area.begin(), area.begin() + 0x1000, uint8_t{0xa1});
    std::fill(area.begin() + 0x1000, area.begin() + 0x2000, uint8_t{0xda});
    std::fill(area.begin() + 0x2000, area.begin() + 0x3000, uint8_t{0x5a});  // of an unloaded module
    std::fill(area.begin() + 0x4000, area.begin() + 0x5000, uint8_t{0xb1});
    r.segment(kModules, area);
    r.symbol(kModules, 't', "a_init", "mod_a");
    r.symbol(kModules + 0x1000, 'd', "a_data", "mod_a");
    r.symbol(kModules + 0x4000, 't', "b_init", "mod_b");
    r.modules = Recording::module_line("mod_a", kModules, 0x2000) +
                Recording::module_line("mod_b", kModules + 0x4000, 0x2000);
  }
  Recording r;
  std::optional<Capture> capture;
};

TEST_F(Kernel, OnlyWhatSomethingVouchesForIsText) {
  two_modules();
  r.symbol(kText + 0x40, 'T', "kfun");
  r.kernel_bytes.resize(Recording::kTextSize + 0x1000, 0x77);  // after _etext: freed init text
  open();
  EXPECT_EQ(at(kText + 0x40, 1, 0), std::vector<Bytes>{{0x90}});
  EXPECT_EQ(at(kText + Recording::kTextSize, 1, 0), kUnknown);
  EXPECT_EQ(at(kModules, 1, 0), std::vector<Bytes>{{0xa1}});
  EXPECT_EQ(at(kModules + 0x1000, 1, 0), kUnknown);  // data
  // Of no module: perhaps code without a symbol, so it can be followed, but it is not certain.
  EXPECT_EQ(at(kModules + 0x2000, 1, 0), std::vector<Bytes>{{0x5a}});
  EXPECT_TRUE(capture->text->cell(kKernelSpace, kModules + 0x2000).versions[0].unsure);
  EXPECT_EQ(at(kModules + 0x3000, 1, 0), kUnknown);  // hole
  EXPECT_EQ(at(kModules + 0x4000, 1, 0), std::vector<Bytes>{{0xb1}});
  EXPECT_EQ(at(kModules + 0x5000, 1, 0), kUnknown);  // a page of zeros in a module
  auto symbol = capture->symbols.find(kKernelSpace, kModules + 4, 0);
  ASSERT_TRUE(symbol.has_value());
  EXPECT_EQ(symbol->symbol->dso, "[mod_a]");
}

TEST_F(Kernel, PokesDecideWhatTheyCover) {
  std::copy(kNop.begin(), kNop.end(), r.kernel_bytes.begin() + 0x100);
  r.writer.text_poke(kText + 0x100, kNop, kJump, Recording::at(500));
  open();
  EXPECT_EQ(at(kText + 0x100, 5, 499), std::vector<Bytes>{kNop});
  EXPECT_EQ(at(kText + 0x100, 5, 500), std::vector<Bytes>{kJump});
  EXPECT_EQ(find_notice(*capture, Code::kFirstPokeMismatch), nullptr);
}

TEST_F(Kernel, CopyTakenAfterAPokeIsNoContradiction) {
  std::copy(kJump.begin(), kJump.end(), r.kernel_bytes.begin() + 0x100);
  r.writer.text_poke(kText + 0x100, kNop, kJump, Recording::at(500));
  r.writer.itrace_start(1, 1, Recording::at(600));
  open();
  EXPECT_EQ(at(kText + 0x100, 5, 499), std::vector<Bytes>{kNop});
  EXPECT_EQ(find_notice(*capture, Code::kFirstPokeMismatch), nullptr);
}

TEST_F(Kernel, WrongOldBytesAreReported) {
  r.writer.text_poke(kText + 0x100, kNop, kJump, Recording::at(500));
  r.writer.text_poke(kText + 0x100, (Bytes{0xe9, 0x20, 0, 0, 0}), kNop,
                     Recording::at(700));  // differs from the first poke's new bytes
  open();
  EXPECT_NE(find_notice(*capture, Code::kBrokenPokeChain), nullptr);
  EXPECT_EQ(at(kText + 0x100, 5, 600).size(), 2U);
}

TEST_F(Kernel, CopyOfAnotherBootIsNotUsedUnlessForced) {
  std::string moved = r.kallsyms;
  r.kallsyms.clear();
  r.symbol(kText + 0x200000, 'T', "_text");
  r.symbol(kText + 0x200000, 'T', "_stext");
  r.symbol(kText + 0x202000, 'T', "_etext");
  open();
  EXPECT_NE(find_notice(*capture, Code::kKallsymsOfOtherBoot), nullptr);
  EXPECT_EQ(at(kText + 0x40, 1, 0), kUnknown);
}

TEST_F(Kernel, NoCopyAtAllIsReported) {
  r.with_kcore = false;
  open();
  EXPECT_EQ(at(kText + 0x40, 1, 0), kUnknown);
  EXPECT_NE(find_notice(*capture, Code::kNoKernelText), nullptr);
}

TEST_F(Kernel, VmlinuxByBuildIdIsTheFallBack) {
  r.with_kcore = false;
  ExecutableSpec spec{.address = kText,
                      .text = Bytes(0x1000, 0x33),
                      .symbols = {{"_text", kText, 0}},
                      .build_id = Bytes(20, 0xcd)};
  open_with_vmlinux(spec);
  EXPECT_EQ(at(kText + 0x40, 1, 0), std::vector<Bytes>{{0x33}});
  EXPECT_NE(find_notice(*capture, Code::kKernelTextFromFile), nullptr);
  // Alternatives and static keys are not in their patched state: the file's bytes are followed, but are
  // unsure.
  EXPECT_TRUE(capture->text->cell(kKernelSpace, kText + 0x40).versions[0].unsure);
}

TEST_F(Kernel, VmlinuxOfAnotherBuildIsNot) {
  r.with_kcore = false;
  ExecutableSpec spec{
      .address = kText, .text = Bytes(0x1000, 0x33), .symbols = {}, .build_id = Bytes(20, 0xce)};
  open_with_vmlinux(spec);
  EXPECT_EQ(at(kText + 0x40, 1, 0), kUnknown);
  EXPECT_NE(find_notice(*capture, Code::kOtherBuildId), nullptr);
}

TEST_F(Kernel, SilentChangeShowsInTheEndCopy) {
  two_modules();
  Bytes last = r.kernel_bytes;
  last[0x200] = 0xc3;
  last[0x300] = 0xe9;  // covered by a poke: not silent
  r.kernel_bytes[0x300] = 0x90;
  r.writer.text_poke(kText + 0x300, Bytes{0x90}, Bytes{0xe9}, Recording::at(500));
  r.write_end({{kText, last}, r.segments[0]}, r.kallsyms, r.modules);
  open();
  std::vector<Bytes> both = at(kText + 0x200, 1, 300);
  EXPECT_EQ(both.size(), 2U);
  EXPECT_EQ(at(kText + 0x300, 1, 400), std::vector<Bytes>{{0x90}});
  EXPECT_EQ(at(kText + 0x201, 1, 400), std::vector<Bytes>{{0x90}});
  const Notice* notice = find_notice(*capture, Code::kUnrecordedChange);
  ASSERT_NE(notice, nullptr);
  EXPECT_NE(notice->reason.find("0xffffffff81000200"), std::string::npos);
}

// Without CONFIG_KALLSYMS_ALL (Debian's Linux 6.1 of arm64) no symbol says where a module's data begins: that it changes
// is no change of text, but code may go on there.
TEST_F(Kernel, DataOfModulesWithoutSymbolsIsNoSilentChange) {
  Bytes area(0x3000, 0xda);
  std::fill(area.begin(), area.begin() + 0x1000, uint8_t{0xa1});
  r.segment(kModules, area);
  r.symbol(kModules, 't', "a_init", "mod_a");
  r.modules = Recording::module_line("mod_a", kModules, 0x3000);
  area[0x1800] = 0xdb;
  r.write_end({{kText, r.kernel_bytes}, {kModules, area}}, r.kallsyms, r.modules);
  open();
  EXPECT_EQ(find_notice(*capture, Code::kUnrecordedChange), nullptr);
  EXPECT_EQ(at(kModules + 0x800, 1, 300), std::vector<Bytes>{{0xa1}});
  EXPECT_EQ(at(kModules + 0x1000, 1, 300), std::vector<Bytes>{{0xda}});
  EXPECT_TRUE(capture->text->cell(kKernelSpace, kModules + 0x1000).versions[0].unsure);
}

TEST_F(Kernel, ModuleThatOnlyTheEndCopyHas) {  // [M01]
  Bytes area(0x3000, 0);
  std::fill(area.begin() + 0x1000, area.begin() + 0x2000, uint8_t{0xc1});
  const std::string symbols = r.kallsyms + Recording::line(kModules + 0x1000, 't', "c_init", "mod_c");
  r.write_end({{kText, r.kernel_bytes}, {kModules, area}}, symbols,
              Recording::module_line("mod_c", kModules + 0x1000, 0x2000));
  open();
  // No record says when it was loaded: what was there before may have been anything.
  EXPECT_EQ(at(kModules + 0x1000, 1, 300), (std::vector<Bytes>{{0xc1}, {}}));
  EXPECT_EQ(at(kModules, 1, 300), kUnknown);
  const Cell cell = capture->text->cell(kKernelSpace, kModules + 0x1000);
  ASSERT_FALSE(cell.versions.empty());
  EXPECT_EQ(capture->text->origin(cell.versions[0].origin).kind, OriginKind::kKcoreEnd);
  EXPECT_TRUE(capture->symbols.find(kKernelSpace, kModules + 0x1004, 0).has_value());
}

TEST_F(Kernel, EndOfAChainThatIsMissing) {  // [L02]
  std::copy(kNop.begin(), kNop.end(), r.kernel_bytes.begin() + 0x100);
  r.writer.text_poke(kText + 0x100, kNop, kJump, Recording::at(20));
  Bytes last = r.kernel_bytes;  // a NOP again, without a record
  r.write_end({{kText, last}}, r.kallsyms, "");
  open();
  EXPECT_EQ(at(kText + 0x100, 5, 10), std::vector<Bytes>{kNop});
  EXPECT_EQ(at(kText + 0x100, 5, 500).size(), 2U);
  EXPECT_NE(find_notice(*capture, Code::kLastChangeMissing), nullptr);
}

TEST_F(Kernel, EndCopyOfAnotherKernelIsNotUsed) {
  Bytes last = r.kernel_bytes;
  last.resize(0x40000, 0x90);
  r.kernel_bytes.resize(0x40000, 0x90);
  for (size_t i = 0; i < last.size(); i += 2) last[i] = 0x11;
  r.kallsyms.clear();
  r.symbol(kText, 'T', "_text");
  r.symbol(kText + 0x40000, 'T', "_etext");
  r.write_end({{kText, last}}, r.kallsyms, "");
  open();
  EXPECT_NE(find_notice(*capture, Code::kOtherKernelAtEnd), nullptr);
  EXPECT_EQ(at(kText + 0x100, 1, 300), std::vector<Bytes>{{0x90}});
}

TEST_F(Kernel, WatchedModuleReplacesWhatWasThere) {  // [M03]
  two_modules();
  ByteSink file;
  file.u64(400), file.u64(kModules + 0x4000), file.u32(64), file.u32(100), file.raw(Bytes(64, 0xb2));
  file.u64(500), file.u64(kModules + 0x10000), file.u32(64), file.u32(100), file.raw(Bytes(64, 0xd1));
  write_bytes(r.dir / "ksym_text.bin", file.bytes());
  open();
  EXPECT_EQ(at(kModules + 0x4000, 1, 300), std::vector<Bytes>{{0xb1}});
  EXPECT_EQ(at(kModules + 0x4000, 1, 450), std::vector<Bytes>{{0xb2}});
  EXPECT_EQ(at(kModules + 0x4000 + 64, 1, 450), kUnknown);
  // Before it was seen, an unobserved one may have been there.
  EXPECT_EQ(at(kModules + 0x10000, 1, 450), (std::vector<Bytes>{{0xd1}, {}}));
  EXPECT_EQ(at(kModules + 0x10000, 1, 550), std::vector<Bytes>{{0xd1}});
}

TEST(ObservedTime, FindsTheInstantThatFitsBest) {
  const Bytes a = {1}, b = {2}, c = {3};
  const std::vector<Poke> pokes = {{.addr = 10, .time = 100, .old_bytes = a, .new_bytes = b},
                                   {.addr = 20, .time = 200, .old_bytes = a, .new_bytes = b},
                                   {.addr = 10, .time = 300, .old_bytes = b, .new_bytes = c}};
  auto memory = [&](uint8_t at10, uint8_t at20) {
    static Bytes ten, twenty;
    ten = {at10}, twenty = {at20};
    return [](AddrRange r) -> std::span<const uint8_t> { return r.begin == 10 ? ten : twenty; };
  };
  EXPECT_EQ(observed_time(pokes, kTimeMin, memory(1, 1)), kTimeMin);
  EXPECT_EQ(observed_time(pokes, kTimeMin, memory(2, 1)), 100);
  EXPECT_EQ(observed_time(pokes, kTimeMin, memory(2, 2)), 200);
  EXPECT_EQ(observed_time(pokes, kTimeMin, memory(3, 2)), 300);
  EXPECT_EQ(observed_time(pokes, 250, memory(2, 2)), 250);
  EXPECT_EQ(observed_time(pokes, 150, memory(1, 1)), 150);
}

TEST(KernelSymbols, HostileFilesAreSkippedLineByLine) {
  TempDir dir;
  write_text(dir / "kallsyms",
             "ffffffff81000000 T _text\nnonsense\nffffffff8100zz00 T bad\n0000000000000000 T hidden\n"
             "ffffffffc0000000 t f\t[m]\nffffffff81000010 T");
  auto kallsyms = Kallsyms::load((dir / "kallsyms").string());
  ASSERT_TRUE(kallsyms.has_value());
  ASSERT_EQ(kallsyms->symbols().size(), 2U);
  EXPECT_EQ(kallsyms->symbols()[1].module, "m");
  write_text(dir / "hidden", "0000000000000000 T _text\n");
  EXPECT_FALSE(Kallsyms::load((dir / "hidden").string()).has_value());
  write_text(dir / "modules",
             "a 4096 0 - Live 0xffffffffc0000000\nb x 0 - Live 0xffffffffc0001000\nc 99999999999999999999 0 "
             "- Live 0x1\nd\n"
             "e 4096 0 - Unloading 0xffffffffc0002000 (OE)\nf 4096 0 - Live 0x0000000000000000\n");
  auto modules = load_modules((dir / "modules").string());
  ASSERT_TRUE(modules.has_value());
  ASSERT_EQ(modules->size(), 2U);
  EXPECT_TRUE((*modules)[0].live);
  EXPECT_FALSE((*modules)[1].live);
}

}  // namespace
}  // namespace asof
