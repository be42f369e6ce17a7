// Lifetimes of generated code: BPF programs, trampolines, out-of-line pages. Brackets name rows of the test
// matrix in docs/live-text.md.
#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kA = 0xffffffffc0002640;
constexpr std::array<uint8_t, 8> kTag = {0xbd, 0x45, 0x38, 0x89, 0xc1, 0x29, 0x08, 0x23};
constexpr std::array<uint8_t, 8> kTag2 = {0x92, 0xfb, 0x47, 0x67, 0xb2, 0xb3, 0xf9, 0x4f};
const std::string kName = "bpf_prog_bd453889c1290823_v0";
const std::string kName2 = "bpf_prog_92fb4767b2b3f94f_v1";
const std::vector<Bytes> kUnknown = {{}};
enum : uint16_t { kBpf = 1, kOutOfLine = 2, kRegister = 0, kUnregister = 1, kLoad = 1, kUnload = 2 };

Bytes filled(size_t n, uint8_t value) { return Bytes(n, value); }

BpfProgSpec program(uint32_t id, Addr addr, const Bytes& bytes, const std::array<uint8_t, 8>& tag = kTag) {
  BpfProgSpec out;
  out.id = id;
  out.tag = tag;
  out.name = "p" + std::to_string(id);
  out.functions = {{addr, bytes, tag}};
  return out;
}

class Generated : public ::testing::Test {
 protected:
  void load(uint64_t t, Addr addr, uint32_t len, uint32_t id, const std::string& name = kName,
            const std::array<uint8_t, 8>& tag = kTag) {
    r.writer.ksymbol(addr, len, kBpf, kRegister, name, Recording::at(t));
    r.writer.bpf_event(kLoad, id, tag, Recording::at(t + 1));
  }
  void unload(uint64_t t, Addr addr, uint32_t len, uint32_t id, const std::string& name = kName) {
    r.writer.ksymbol(addr, len, kBpf, kUnregister, name, Recording::at(t));
    r.writer.bpf_event(kUnload, id, kTag, Recording::at(t + 1));
  }
  const TextStore& open(const CaptureOptions& options = closed_options()) {
    auto opened = r.open(options);
    EXPECT_TRUE(opened.has_value());
    capture.emplace(std::move(*opened));
    return *capture->text;
  }
  std::vector<Bytes> at(Addr a, size_t n, Time t) { return contents(*capture->text, kKernelSpace, a, n, t); }

  Recording r;
  std::optional<Capture> capture;
};

TEST_F(Generated, ImageFromLoadToUnloadAndSoftlyAfter) {  // [B01]
  load(100, kA, 19, 1);
  unload(200, kA, 19, 1);
  r.programs = {program(1, kA, filled(19, 0x11))};
  open();
  EXPECT_EQ(at(kA, 2, 99), kUnknown);
  EXPECT_EQ(at(kA, 2, 101), std::vector<Bytes>{filled(2, 0x11)});
  EXPECT_EQ(at(kA, 2, 250), std::vector<Bytes>{filled(2, 0x11)});
  EXPECT_EQ(at(kA + 19, 1, 150), kUnknown);
  ASSERT_EQ(capture->bpf_programs.size(), 1U);
  EXPECT_EQ(capture->bpf_programs[0].name, kName);
  EXPECT_EQ(capture->bpf_programs[0].tag, "bd453889c1290823");
  EXPECT_EQ(capture->bpf_programs[0].loaded, 101);
  EXPECT_EQ(capture->bpf_programs[0].unloaded, 201);
  auto symbol = capture->symbols.find(kKernelSpace, kA + 3, 150);
  ASSERT_TRUE(symbol.has_value());
  EXPECT_EQ(symbol->symbol->name, kName);
  EXPECT_EQ(symbol->offset, 3U);
}

TEST_F(Generated, PartlyReusedRange) {  // [B02]
  load(100, kA, 20, 1);
  unload(200, kA, 20, 1);
  load(300, kA + 12, 20, 2, kName2, kTag2);
  r.programs = {program(1, kA, filled(20, 0x11)), program(2, kA + 12, filled(20, 0x22), kTag2)};
  open();
  EXPECT_EQ(at(kA + 12, 1, 250), std::vector<Bytes>{filled(1, 0x11)});
  EXPECT_EQ(at(kA + 12, 1, 301), std::vector<Bytes>{filled(1, 0x22)});
  EXPECT_EQ(at(kA, 1, 301), std::vector<Bytes>{filled(1, 0x11)});  // its grace period continues
}

TEST_F(Generated, SameAddressSameTagOtherId) {  // [B03]
  load(100, kA, 20, 1);
  unload(200, kA, 20, 1);
  load(300, kA, 20, 2);
  r.programs = {program(1, kA, filled(20, 0x11)), program(2, kA, filled(20, 0x22))};
  open();
  EXPECT_EQ(at(kA, 1, 150), std::vector<Bytes>{filled(1, 0x11)});
  EXPECT_EQ(at(kA, 1, 350), std::vector<Bytes>{filled(1, 0x22)});
}

TEST_F(Generated, LostUnregisterEndsWithTheNextRegister) {
  load(100, kA, 20, 1);
  load(300, kA, 24, 2, kName2, kTag2);
  r.programs = {program(1, kA, filled(20, 0x11)), program(2, kA, filled(24, 0x22), kTag2)};
  open();
  EXPECT_EQ(at(kA, 1, 299), std::vector<Bytes>{filled(1, 0x11)});
  EXPECT_EQ(at(kA, 1, 300), std::vector<Bytes>{filled(1, 0x22)});
  EXPECT_NE(find_notice(*capture, Code::kSymbolReplaced), nullptr);
}

TEST_F(Generated, PokesInTheImageAreRolledBackAndForward) {  // [B07]
  const Bytes nop = {0x0f, 0x1f, 0x44, 0, 0}, jump = {0xe9, 1, 0, 0, 0}, later = {0xe9, 2, 0, 0, 0};
  load(20, kA, 20, 1);
  r.writer.text_poke(kA + 5, nop, jump, Recording::at(40));
  r.writer.text_poke(kA + 5, jump, later, Recording::at(60));
  Bytes image = filled(20, 0x11);
  std::copy(jump.begin(), jump.end(), image.begin() + 5);
  r.programs = {program(1, kA, image)};
  open();
  EXPECT_EQ(at(kA + 5, 5, 30), std::vector<Bytes>{nop});
  EXPECT_EQ(at(kA + 5, 5, 45), std::vector<Bytes>{jump});
  EXPECT_EQ(at(kA + 5, 5, 70), std::vector<Bytes>{later});
  EXPECT_EQ(at(kA, 5, 45), std::vector<Bytes>{filled(5, 0x11)});
  EXPECT_EQ(find_notice(*capture, Code::kBrokenPokeChain), nullptr);
  EXPECT_EQ(find_notice(*capture, Code::kFirstPokeMismatch), nullptr);
}

TEST_F(Generated, PokesBeforeRegistrationAreInTheImage) {  // [B04]
  const Bytes nop = {0x0f, 0x1f, 0x44, 0, 0}, jump = {0xe9, 1, 0, 0, 0};
  r.writer.text_poke(kA + 5, nop, jump, Recording::at(10));
  load(30, kA, 20, 1);
  Bytes image = filled(20, 0x11);
  std::copy(jump.begin(), jump.end(), image.begin() + 5);
  r.programs = {program(1, kA, image)};
  open();
  EXPECT_EQ(at(kA + 5, 5, 100), std::vector<Bytes>{jump});
  EXPECT_EQ(at(kA, 5, 100), std::vector<Bytes>{filled(5, 0x11)});
}

TEST_F(Generated, PokeAfterUnregisterBelongsToTheClosingLifetime) {  // [B05]
  const Bytes nop = {0x0f, 0x1f, 0x44, 0, 0}, jump = {0xe9, 1, 0, 0, 0};
  load(20, kA, 20, 1);
  unload(100, kA, 20, 1);
  r.writer.text_poke(kA + 5, nop, jump, Recording::at(150));
  Bytes image = filled(20, 0x11);
  std::copy(nop.begin(), nop.end(), image.begin() + 5);
  r.programs = {program(1, kA, image)};
  open();
  EXPECT_EQ(at(kA + 5, 5, 120), std::vector<Bytes>{nop});
  EXPECT_EQ(at(kA + 5, 5, 160), std::vector<Bytes>{jump});
}

TEST_F(Generated, NoImageIsUnknownAndReported) {  // [B08]
  load(100, kA, 20, 1);
  open();
  EXPECT_EQ(at(kA, 1, 150), kUnknown);
  const Notice* notice = find_notice(*capture, Code::kBpfWithoutBytes);
  ASSERT_NE(notice, nullptr);
  EXPECT_NE(notice->reason.find("BPF program 1"), std::string::npos);
  ASSERT_EQ(capture->bpf_programs.size(), 1U);
  EXPECT_FALSE(capture->bpf_programs[0].has_image);
  EXPECT_EQ(capture->bpf_programs[0].name, kName);
}

TEST_F(Generated, UnloadWithIdZeroIsPairedByAddress) {  // [B09]
  load(100, kA, 20, 7);
  r.writer.ksymbol(kA, 20, kBpf, kUnregister, kName, Recording::at(200));
  r.writer.bpf_event(kUnload, 0, kTag, Recording::at(201));
  r.programs = {program(7, kA, filled(20, 0x11))};
  open();
  ASSERT_EQ(capture->bpf_programs.size(), 1U);
  EXPECT_EQ(capture->bpf_programs[0].unloaded, 200);
}

TEST_F(Generated, SubProgramsHaveTheirOwnBytes) {  // [B10]
  r.writer.ksymbol(kA, 16, kBpf, kRegister, kName, Recording::at(100));
  r.writer.ksymbol(kA + 0x40, 12, kBpf, kRegister, "bpf_prog_92fb4767b2b3f94f_F", Recording::at(100));
  r.writer.bpf_event(kLoad, 9, kTag, Recording::at(101));
  BpfProgSpec both = program(9, kA, filled(16, 0x11));
  both.functions.push_back({kA + 0x40, filled(12, 0x22), kTag2});
  r.programs = {both};
  open();
  EXPECT_EQ(at(kA, 16, 150), std::vector<Bytes>{filled(16, 0x11)});
  EXPECT_EQ(at(kA + 0x40, 12, 150), std::vector<Bytes>{filled(12, 0x22)});
  EXPECT_EQ(at(kA + 16, 1, 150), kUnknown);
  ASSERT_EQ(capture->bpf_programs.size(), 1U);
  EXPECT_EQ(capture->bpf_programs[0].functions.size(), 2U);
  EXPECT_EQ(capture->bpf_programs[0].name, kName);
}

TEST_F(Generated, TrampolinePageEndsAtItsNeighbour) {  // [B11]
  const Addr page = 0xffffffffc0010000;
  r.writer.ksymbol(page, 4096, kBpf, kRegister, "bpf_trampoline_1", Recording::at(100));
  load(200, page + 512, 20, 1);
  r.writer.ksymbol(page - 1024, 4096, kBpf, kRegister, "bpf_trampoline_2", Recording::at(300));
  r.programs = {program(1, page + 512, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(page + 512, 20, 350), std::vector<Bytes>{filled(20, 0x11)});
  EXPECT_EQ(at(page, 1, 350), kUnknown);
  EXPECT_NE(find_notice(*capture, Code::kCodeWithoutBytes), nullptr);
  EXPECT_EQ(find_notice(*capture, Code::kSymbolReplaced), nullptr);
}

TEST_F(Generated, LoadBeforeItsKsymbolInTheFile) {  // [B14]
  r.writer.bpf_event(kLoad, 1, kTag, Recording::at(100, 0));
  r.writer.ksymbol(kA, 20, kBpf, kRegister, kName, Recording::at(100, 1));
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 1, 150), std::vector<Bytes>{filled(1, 0x11)});
}

TEST_F(Generated, ProgramFromBeforeTheRecording) {  // [L10]
  r.writer.ksymbol(kA, 20, kBpf, kRegister, kName, Trailer{});
  r.writer.bpf_event(kLoad, 1, kTag, Trailer{});
  unload(200, kA, 20, 1);
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 1, 1), std::vector<Bytes>{filled(1, 0x11)});
}

TEST_F(Generated, ProgramInTheModuleRangeLeavesKernelTextAlone) {
  r.segment(Recording::kModules, Bytes(0x4000, 0));
  load(100, kA, 20, 1);
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 20, 150), std::vector<Bytes>{filled(20, 0x11)});
  EXPECT_EQ(at(Recording::kModules, 1, 150), kUnknown);  // zeros of the copy's hole
  for (Time t : {50, 150}) EXPECT_EQ(at(Recording::kText + 0x100, 2, t), std::vector<Bytes>{filled(2, 0x90)});
}

TEST_F(Generated, ImageWithoutAnyRecord) {
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 1, 150), kUnknown);
  EXPECT_NE(find_notice(*capture, Code::kBpfImageWithoutLifetime), nullptr);
}

TEST_F(Generated, ImageWhoseLoadRecordIsLost) {
  r.writer.ksymbol(kA, 20, kBpf, kRegister, kName, Recording::at(100));
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 1, 150), std::vector<Bytes>{filled(1, 0x11)});
}

TEST_F(Generated, ImageThatFitsTwoLifetimesIsOfNone) {
  r.writer.ksymbol(kA, 20, kBpf, kRegister, kName, Recording::at(100));
  r.writer.ksymbol(kA, 20, kBpf, kUnregister, kName, Recording::at(200));
  r.writer.ksymbol(kA, 20, kBpf, kRegister, kName, Recording::at(300));
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  for (Time t : {150, 350}) EXPECT_EQ(at(kA, 1, t), kUnknown);
}

// A program is loaded over another one; the end of the old one and the announcement of the new one are lost.
TEST_F(Generated, LoadOverAnOpenLifetimeEndsIt) {
  load(100, kA, 20, 1);
  r.writer.bpf_event(kLoad, 2, kTag2, Recording::at(300));
  r.programs = {program(1, kA, filled(20, 0x11)), program(2, kA + 12, filled(20, 0x22), kTag2)};
  open();
  EXPECT_EQ(at(kA, 1, 299), std::vector<Bytes>{filled(1, 0x11)});
  for (Addr a : {kA + 12, kA + 31}) EXPECT_EQ(at(a, 1, 300), std::vector<Bytes>{filled(1, 0x22)});
  EXPECT_EQ(at(kA, 1, 300), kUnknown);
  EXPECT_NE(find_notice(*capture, Code::kSymbolReplaced), nullptr);
  EXPECT_NE(find_notice(*capture, Code::kBpfWithoutSymbol), nullptr);
}

// The address range of a program whose end is recorded but whose announcement is lost overlaps that of
// another one: that one must have been unloaded some time before.
TEST_F(Generated, EndOfAnUnannouncedProgramMakesItsRangeDoubtful) {
  load(100, kA, 20, 1);
  r.writer.ksymbol(kA + 12, 20, kBpf, kUnregister, kName2, Recording::at(300));
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  const std::vector<Bytes> doubtful = {filled(1, 0x11), {}};
  for (Addr a : {kA, kA + 12}) {
    EXPECT_TRUE(std::ranges::is_permutation(at(a, 1, 250), doubtful));
    EXPECT_EQ(at(a, 1, 301), kUnknown);
  }
}

TEST_F(Generated, LeftoversAreKnownAsLongAsNothingIsLost) {
  load(100, kA, 20, 1);
  unload(200, kA, 20, 1);
  r.writer.comm(1, 1, "x", false, Recording::at(400));
  r.writer.lost(3, 1, Recording::at(500));
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 1, 400), std::vector<Bytes>{filled(1, 0x11)});
  EXPECT_EQ(at(kA, 1, 402), kUnknown);
}

// One record cannot have both ended one program and announced the next.
TEST_F(Generated, OneLostRecordPutsNothingInPlaceOfAProgram) {
  for (const uint64_t lost : {1, 2}) {
    SCOPED_TRACE(lost);
    Recording recording;
    recording.writer.ksymbol(kA, 20, kBpf, kRegister, kName, Recording::at(100));
    recording.writer.bpf_event(kLoad, 1, kTag, Recording::at(101));
    recording.writer.lost(3, lost, Recording::at(500));
    recording.programs = {program(1, kA, filled(20, 0x11))};
    auto opened = recording.open();
    ASSERT_TRUE(opened.has_value());
    EXPECT_EQ(contents(*opened->text, kKernelSpace, kA, 1, 300).size(), lost);
  }
}

TEST_F(Generated, LoadWhoseKsymbolIsLost) {
  r.writer.bpf_event(kLoad, 1, kTag, Recording::at(100));
  r.programs = {program(1, kA, filled(20, 0x11))};
  open();
  EXPECT_EQ(at(kA, 1, 150), std::vector<Bytes>{filled(1, 0x11)});
  EXPECT_NE(find_notice(*capture, Code::kBpfWithoutSymbol), nullptr);
}

TEST_F(Generated, OutOfLineSlotFromItsPokes) {  // [K01, K09]
  const Addr slot = 0xffffffffc0600000;
  r.writer.ksymbol(slot, 4096, kOutOfLine, kRegister, "kprobe_insn_page", Recording::at(5));
  r.writer.text_poke(slot, {}, Bytes{0x41, 0x55, 0xcc}, Recording::at(10));
  r.writer.text_poke(slot, Bytes{0x41, 0x55, 0xcc}, {}, Recording::at(20));
  r.writer.text_poke(slot, {}, Bytes{0x55, 0x90, 0xcc}, Recording::at(30));
  open();
  EXPECT_EQ(at(slot, 3, 15), std::vector<Bytes>{(Bytes{0x41, 0x55, 0xcc})});
  EXPECT_EQ(at(slot, 3, 35), std::vector<Bytes>{(Bytes{0x55, 0x90, 0xcc})});
  EXPECT_EQ(at(slot + 64, 1, 35), kUnknown);
  auto symbol = capture->symbols.find(kKernelSpace, slot + 1, 15);
  ASSERT_TRUE(symbol.has_value());
  EXPECT_EQ(symbol->symbol->name, "kprobe_insn_page");
}

TEST_F(Generated, PageThatKallsymsKnewComesFromTheCopy) {
  const Addr page = Recording::kModules + 0x3000;
  Bytes modules(0x4000, 0);
  std::fill(modules.begin() + 0x3000, modules.begin() + 0x3100, uint8_t{0x55});
  r.segment(Recording::kModules, modules);
  r.symbol(page, 't', "kprobe_insn_page", "__builtin__kprobes");
  open();
  EXPECT_EQ(at(page, 2, 100), std::vector<Bytes>{filled(2, 0x55)});
  EXPECT_EQ(at(Recording::kModules + 0x2000, 1, 100), kUnknown);
}

TEST_F(Generated, PageOfTheCopyIsDoubtfulOnceRecordsAreLost) {
  const Addr page = Recording::kModules + 0x3000;
  Bytes modules(0x4000, 0);
  std::fill(modules.begin() + 0x3000, modules.begin() + 0x3100, uint8_t{0x55});
  r.segment(Recording::kModules, modules);
  r.symbol(page, 't', "bpf_prog_bd453889c1290823_v0", "bpf");
  r.writer.comm(1, 1, "x", false, Recording::at(400));
  r.writer.lost(3, 2, Recording::at(500));
  open();
  EXPECT_EQ(at(page, 2, 400), std::vector<Bytes>{filled(2, 0x55)});
  EXPECT_EQ(at(page, 2, 402).size(), 2U);
}

TEST_F(Generated, WatchedBytesGiveATrampolineItsText) {
  const Addr page = 0xffffffffc0010000;
  r.writer.ksymbol(page, 4096, kBpf, kRegister, "bpf_trampoline_1", Recording::at(100));
  r.writer.ksymbol(page, 4096, kBpf, kUnregister, "bpf_trampoline_1", Recording::at(500));
  r.writer.ksymbol(page, 4096, kBpf, kRegister, "bpf_trampoline_2", Recording::at(600));
  ByteSink file;
  file.u64(150), file.u64(page), file.u32(32), file.u32(1), file.raw(filled(32, 0x50));
  file.u64(50), file.u64(page), file.u32(4), file.u32(1), file.raw(filled(4, 0x77));  // no symbol there then
  file.u64(650), file.u64(page), file.u32(400), file.u32(1);                          // cut short
  write_bytes(r.dir / "ksym_text.bin", file.bytes());
  open();
  EXPECT_EQ(at(page, 2, 99), kUnknown);
  EXPECT_EQ(at(page, 2, 300), std::vector<Bytes>{filled(2, 0x50)});
  EXPECT_EQ(at(page + 32, 1, 300), kUnknown);
  EXPECT_EQ(at(page, 2, 700), kUnknown);  // not the bytes of the old trampoline
  EXPECT_NE(find_notice(*capture, Code::kWatchedBytesWithoutSymbol), nullptr);
  EXPECT_NE(find_notice(*capture, Code::kWatchedBytesTruncated), nullptr);
}

TEST_F(Generated, DispatcherThatIsRewrittenHasBothTextsInBetween) {  // [B12]
  const Addr page = 0xffffffffc0010000;
  r.writer.ksymbol(page, 4096, kBpf, kRegister, "bpf_dispatcher_xdp", Recording::at(100));
  ByteSink file;
  file.u64(150), file.u64(page), file.u32(16), file.u32(1), file.raw(filled(16, 0x66));
  file.u64(250), file.u64(page), file.u32(16), file.u32(1), file.raw(filled(16, 0x77));
  write_bytes(r.dir / "ksym_text.bin", file.bytes());
  open();
  EXPECT_EQ(at(page, 1, 120), std::vector<Bytes>{filled(1, 0x66)});
  EXPECT_EQ(at(page, 1, 200).size(), 2U);
  EXPECT_EQ(at(page, 1, 300), std::vector<Bytes>{filled(1, 0x77)});
}

}  // namespace
}  // namespace asof
