// Who changed text, what changed in a range, and what differs between two instants.
#include "tools/text/text_changes.h"
#include <ostream>
#include "tests/support/skip_without.h"

#include <nlohmann/json.hpp>

#include "tests/decoder/capture_test_util.h"
#include "tools/output/json.h"
#include "tools/text/text_places.h"

namespace asof::test {
namespace {

constexpr Addr kText = Recording::kText;
constexpr Addr kSite = kText + 0x100;    // in f, not at its entry
constexpr Addr kEntry = kText + 0x400;   // g, whose entry is a call site
constexpr Addr kSct = kText + 0x600;     // __SCT__tp_func
constexpr Addr kTracer = kText + 0x800;  // ftrace_caller
constexpr Addr kFtraceCall = kText + 0x820;
constexpr Addr kTrampoline = 0xffffffffc0001000, kProgram = 0xffffffffc0002000, kSlots = 0xffffffffc0003000;

Bytes branch(uint8_t opcode, Addr at, Addr to) {
  const size_t size = opcode == 0xeb ? 2 : 5;
  const uint64_t d = to - at - size;
  Bytes out = {opcode};
  for (size_t i = 1; i < size; ++i) out.push_back(static_cast<uint8_t>(d >> (8 * (i - 1))));
  return out;
}
const Bytes kNop2 = {0x66, 0x90}, kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00},
            kRet5 = {0xc3, 0xcc, 0xcc, 0xcc, 0xcc}, kZero5 = {0x2e, 0x2e, 0x2e, 0x31, 0xc0};

class Changes : public ::testing::Test {
 protected:
  Changes() {
    r.symbol(kText + 0x40, 't', "f");
    r.symbol(kEntry, 't', "g");
    r.symbol(kSct, 't', "__SCT__tp_func_x");
    r.symbol(kTracer, 't', "ftrace_caller");
    r.symbol(kFtraceCall, 't', "ftrace_call");
    r.symbol(kText + 0x900, 't', "h");
    r.symbol(kTrampoline, 't', "bpf_trampoline_6", "bpf");
    r.symbol(kProgram, 't', "bpf_prog_1122334455667788_p", "bpf");
    r.symbol(kSlots, 't', "kprobe_insn_page", "__builtin__kprobes");
    r.segment(0xffffffffc0000000, Bytes(0x4000, 0x90));
  }
  void put(Addr at, const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), r.kernel_bytes.begin() + static_cast<long>(at - kText));
  }
  void poke(uint64_t t, Addr at, const Bytes& old_bytes, const Bytes& new_bytes) {
    r.writer.text_poke(at, old_bytes, new_bytes, Recording::at(t));
  }
  const Capture& open() {
    auto opened = r.open();
    EXPECT_TRUE(opened.has_value());
    capture.emplace(std::move(*opened));
    return *capture;
  }
  std::vector<TextChange> history(AddrRange range) {
    cells = capture->text->cells(kKernelSpace, range);
    return changes_of(*capture, Recognizer(*capture), kKernelSpace, range, cells);
  }
  TextDifference between(Time from, Time to, AddrRange range = {0, UINT64_MAX}) {
    cells = capture->text->cells(kKernelSpace, range);
    return difference(*capture, Recognizer(*capture), kKernelSpace, cells, from, to);
  }

  Recording r;
  std::optional<Capture> capture;
  std::vector<Cell> cells;
};

std::string description(const TextChange& c) {
  return std::string(mechanism_name(c.who.mechanism)) + ": " + std::string(c.who.action);
}

struct Sample {
  const char* name;
  Addr at;
  Bytes old_bytes, new_bytes;
  const char* description;
};
void PrintTo(const Sample& s, std::ostream* out) { *out << s.name; }

class Mechanisms : public Changes, public ::testing::WithParamInterface<Sample> {};

TEST_P(Mechanisms, IsRecognized) {
  const Sample& s = GetParam();
  poke(100, s.at, s.old_bytes, s.new_bytes);
  open();
  const auto changes = history({s.at, s.at + 5});
  ASSERT_FALSE(changes.empty());
  const auto it =
      std::find_if(changes.begin(), changes.end(), [](const auto& c) { return c.poke != nullptr; });
  ASSERT_NE(it, changes.end());
  EXPECT_EQ(description(*it), s.description);
  EXPECT_EQ(it->time, 100);
}

INSTANTIATE_TEST_SUITE_P(
    All, Mechanisms,
    ::testing::Values(
        Sample{"Nop5Jump", kSite, kNop5, branch(0xe9, kSite, kSite + 64), "jump_label: nop to jump"},
        Sample{"JumpNop2", kSite, branch(0xeb, kSite, kSite + 9), kNop2, "jump_label: jump to nop"},
        Sample{"FentryOn", kEntry, kNop5, branch(0xe8, kEntry, kTracer), "ftrace: tracing on"},
        Sample{"FentryOffAfterEndbr", kEntry + 4, branch(0xe8, kEntry + 4, kTracer), kNop5,
               "ftrace: tracing off"},
        Sample{"FentryUnknownTarget", kEntry, kNop5, branch(0xe8, kEntry, kText - 64), "ftrace: tracing on"},
        Sample{"FtraceCall", kFtraceCall, branch(0xe8, kFtraceCall, kText), branch(0xe8, kFtraceCall, kEntry),
               "ftrace: callback of a trampoline changed"},
        Sample{"BpfAttach", kEntry, kNop5, branch(0xe8, kEntry, kTrampoline), "bpf: trampoline attached"},
        Sample{"BpfAttachByJump", kEntry, kNop5, branch(0xe9, kEntry, kTrampoline),
               "bpf: trampoline attached"},
        Sample{"BpfDetach", kEntry, branch(0xe8, kEntry, kTrampoline), kNop5, "bpf: trampoline detached"},
        Sample{"BpfTailCall", kProgram + 8, kNop5, branch(0xe9, kProgram + 8, kProgram + 64),
               "bpf: call or tail call of a program changed"},
        Sample{"BpfTrampolineExit", kTrampoline + 8, kNop5, branch(0xe9, kTrampoline + 8, kTrampoline + 64),
               "bpf: trampoline changed"},
        Sample{"StaticCallTrampoline", kSct, kRet5, branch(0xe9, kSct, kEntry),
               "static_call: trampoline retargeted"},
        Sample{"StaticCallOff", kSite, branch(0xe8, kSite, kEntry), kNop5, "static_call: call removed"},
        Sample{"StaticCallZero", kSite, branch(0xe8, kSite, kEntry), kZero5, "static_call: retargeted"},
        Sample{"StaticCallTail", kSite, branch(0xe9, kSite, kEntry), branch(0xe9, kSite, kText),
               "static_call: retargeted"},
        Sample{"StaticCallConditional",
               kSite,
               {0x0f, 0x84, 1, 0, 0, 0},
               {0x0f, 0x84, 9, 0, 0, 0},
               "static_call: retargeted"},
        Sample{"KprobeArm", kSite, {0x41}, {0xcc}, "kprobe: armed"},
        Sample{"KprobeDisarm", kSite, {0xcc}, {0x41}, "kprobe: disarmed"},
        Sample{"KprobeOptimise",
               kSite,
               {0xcc, 0x55, 0xb9, 8, 0},
               branch(0xe9, kSite, kSlots),
               "kprobe: optimised"},
        Sample{"KprobeUnoptimise",
               kSite,
               branch(0xe9, kSite, kSlots),
               {0xcc, 0x55, 0xb9, 8, 0},
               "kprobe: un-optimised"},
        Sample{"KprobeSlot", kSlots, {}, {0x41, 0x55, 0xcc}, "kprobe: slot filled"},
        Sample{"KprobeSlotGone", kSlots, {0x41, 0x55, 0xcc}, {}, "kprobe: slot emptied"},
        Sample{"Nothing", kSite, {0x55, 0x56}, {0x57, 0x58}, "unknown: changed"}),
    [](const auto& i) { return i.param.name; });

TEST(Recognize, Arm64Words) {
  const auto word = [](uint32_t w) {
    return Bytes{static_cast<uint8_t>(w), static_cast<uint8_t>(w >> 8), static_cast<uint8_t>(w >> 16),
                 static_cast<uint8_t>(w >> 24)};
  };
  Capture capture;
  capture.machine = "aarch64";
  capture.symbols.finish();
  const Recognizer recognizer(capture);
  const auto said_of = [&](uint32_t from, uint32_t to) {
    Bytes both = word(from);
    const Bytes second = word(to);
    both.insert(both.end(), second.begin(), second.end());
    const PokeRecord p{.addr = kSite,
                       .time = 1,
                       .file_offset = 0,
                       .source = 0,
                       .old_len = 4,
                       .new_len = 4,
                       .bytes = both.data()};
    const Recognized r = recognizer.poke(p);
    return std::string(mechanism_name(r.mechanism)) + ": " + std::string(r.action);
  };
  EXPECT_EQ(said_of(0xd503201f, 0x14000010), "jump_label: nop to jump");
  EXPECT_EQ(said_of(0x17fffff0, 0xd503201f), "jump_label: jump to nop");
  EXPECT_EQ(said_of(0xd503201f, 0x94000010), "ftrace: tracing on");
  EXPECT_EQ(said_of(0x94000010, 0xd503201f), "ftrace: tracing off");
  EXPECT_EQ(said_of(0xa9bf7bfd, 0xd4200080), "kprobe: armed");
  EXPECT_EQ(direct_target(word(0x17fffff0), kSite, true), kSite - 64);
  EXPECT_EQ(direct_target(word(0x94000010), kSite, true), kSite + 64);
  EXPECT_EQ(direct_target(word(0xd503201f), kSite, true), std::nullopt);
}

TEST_F(Changes, HistoryHasPokesProgramsAndMissingRecordsInOrder) {
  put(kSite, kNop5);
  const Bytes jump = branch(0xe9, kSite, kSite + 64);
  poke(100, kSite, kNop5, jump);
  poke(300, kSite, kNop5, branch(0xe9, kSite, kSite + 32));  // the poke from jump to nop was lost
  const std::array<uint8_t, 8> tag = {1, 2, 3, 4, 5, 6, 7, 8};
  const Addr loaded = 0xffffffffc0005000;
  r.writer.ksymbol(loaded, 16, 1, 0, "bpf_prog_0102030405060708_q", Recording::at(150));
  r.writer.bpf_event(1, 7, tag, Recording::at(151));
  r.writer.ksymbol(loaded, 16, 1, 1, "bpf_prog_0102030405060708_q", Recording::at(250));
  r.writer.bpf_event(2, 7, tag, Recording::at(251));
  BpfProgSpec program;
  program.id = 7;
  program.tag = tag;
  program.functions = {{loaded, Bytes(16, 0x90), tag}};
  r.programs = {program};
  open();
  const auto site = history({kSite, kSite + 5});
  ASSERT_EQ(site.size(), 3U);
  EXPECT_EQ(description(site[0]), "jump_label: nop to jump");
  EXPECT_EQ(site[0].poke_number, 0U);
  EXPECT_EQ(description(site[1]), "unknown: change without a record");
  EXPECT_GE(site[1].not_before, 100);
  EXPECT_LE(site[1].time, 300);
  EXPECT_EQ(site[2].time, 300);
  const auto lifetime = history({loaded, loaded + 16});
  ASSERT_EQ(lifetime.size(), 2U);
  EXPECT_EQ(description(lifetime[0]), "bpf: program loaded");
  EXPECT_EQ(lifetime[0].time, 150);
  EXPECT_EQ(lifetime[0].range, (AddrRange{loaded, loaded + 16}));
  EXPECT_EQ(description(lifetime[1]), "bpf: program unregistered");
  EXPECT_TRUE(history({kText + 0x1000, kText + 0x1800}).empty());
}

TEST_F(Changes, DifferenceTellsWhatStaysAndWhatComesBack) {
  const Addr other = kText + 0x200;
  put(kSite, kNop5);
  put(other, kNop2);
  const Bytes jump = branch(0xe9, kSite, kSite + 64), short_jump = branch(0xeb, other, other + 9);
  poke(100, kSite, kNop5, jump);
  poke(110, other, kNop2, short_jump);
  poke(200, other, short_jump, kNop2);
  open();
  const TextDifference all = between(50, 250);
  ASSERT_EQ(all.sites.size(), 2U);
  EXPECT_EQ(all.pokes, 3U);
  EXPECT_EQ(all.pokes_by[static_cast<size_t>(Mechanism::kJumpLabel)], 3U);
  EXPECT_EQ(all.differ_by[static_cast<size_t>(Mechanism::kJumpLabel)], 1U);
  EXPECT_EQ(all.back_by[static_cast<size_t>(Mechanism::kJumpLabel)], 1U);
  EXPECT_EQ(all.sites[0].range, (AddrRange{kSite, kSite + 5}));
  EXPECT_TRUE(all.sites[0].differs);
  EXPECT_EQ(Bytes(all.sites[0].after->bytes, all.sites[0].after->bytes + 5), jump);
  EXPECT_FALSE(all.sites[1].differs);
  EXPECT_EQ(all.sites[1].pokes, 2U);
  EXPECT_EQ(between(50, 150).sites.size(), 2U);
  EXPECT_TRUE(between(50, 150).sites[1].differs);
  EXPECT_TRUE(between(120, 190).sites.empty());
  EXPECT_TRUE(between(50, 99).sites.empty());
  EXPECT_EQ(between(99, 100).sites.size(), 1U) << "the instant of the poke is included";
  EXPECT_EQ(between(50, 250, {other, other + 2}).pokes, 2U);
}

TEST_F(Changes, DifferenceSaysWhereItIsNotSure) {
  put(kSite, kNop5);
  poke(100, kSite, kNop5, branch(0xe9, kSite, kSite + 64));
  poke(300, kSite, kNop5, branch(0xe9, kSite, kSite + 32));
  open();
  ASSERT_EQ(between(50, 200).sites.size(), 1U);
  EXPECT_TRUE(between(50, 200).sites[0].unsure);
  EXPECT_FALSE(between(50, 301).sites[0].unsure);
}

// Real kernels: each record is recognized as what the recorder of these captures noted.
TEST(RecognizeBoards, AgreesWithTheRecorder) {
  for (const char* board : {"x86-board-small", "x86-board-storm", "x86-board-userkernel"}) {
    const std::string dir = std::string(ASOF_SHARED_DIR "/captures/") + board;
    SKIP_WITHOUT(dir);
    auto capture = open_capture(dir + "/perf.data", closed_options());
    ASSERT_TRUE(capture.has_value());
    const Recognizer recognizer(*capture);
    std::map<Addr, std::string> kinds;
    std::ifstream in(dir + "/truth/pokes.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto d = nlohmann::json::parse(line);
      kinds[std::stoull(d["addr"].get<std::string>(), nullptr, 16)] = d["kind"].get<std::string>();
    }
    size_t checked = 0;
    for (const PokeRecord& p : capture->text->pokes()) {
      const Mechanism m = recognizer.poke(p).mechanism;
      const std::string& kind = kinds[p.addr];
      if (kind == "jump_label") {
        EXPECT_EQ(mechanism_name(m), "jump_label") << std::hex << p.addr;
      } else {
        EXPECT_TRUE(m == Mechanism::kFtrace || m == Mechanism::kBpf) << kind << std::hex << p.addr;
      }
      ++checked;
    }
    EXPECT_EQ(checked, capture->text->pokes().size());
    EXPECT_GT(checked, 100U);
  }
}

TEST_F(Changes, AreFoundAmongManyPokes) {
  constexpr uint64_t kSites = 1000, kRounds = 200;
  for (uint64_t s = 0; s < kSites; ++s) put(kText + 8 * s, kNop5);
  for (uint64_t i = 0; i < kRounds; ++i) {
    for (uint64_t s = 0; s < kSites; ++s) {
      const Addr at = kText + 8 * s;
      const Bytes jump = branch(0xe9, at, at + 64);
      poke(1000 + i * kSites + s, at, i % 2 == 0 ? kNop5 : jump, i % 2 == 0 ? jump : kNop5);
    }
  }
  open();
  const TextDifference d = between(kTimeMin, 1000 + (kRounds - 1) * kSites - 1);
  EXPECT_EQ(d.pokes, (kRounds - 1) * kSites);
  EXPECT_EQ(d.sites.size(), kSites);
  EXPECT_EQ(std::count_if(d.sites.begin(), d.sites.end(), [](const auto& p) { return p.differs; }),
            static_cast<long>(kSites));
  EXPECT_EQ(history({kText + 80, kText + 85}).size(), kRounds);
}

TEST(TextQuery, Forms) {
  EXPECT_EQ(parse_text_query("vfs_read")->name, "vfs_read");
  EXPECT_EQ(parse_text_query("vfs_read+0x1f@12.5")->offset, 0x1fU);
  EXPECT_EQ(*parse_text_query("vfs_read@12.5")->time, 12'500'000'000);
  EXPECT_EQ(parse_text_query("ffffffff81000000")->address, 0xffffffff81000000);
  EXPECT_EQ(*parse_text_query("0x1000-0x1010")->length, 16U);
  EXPECT_EQ(parse_text_query("a-b")->name, "a-b") << "a symbol";
  EXPECT_EQ(parse_text_query("4000-4000")->name, "4000-4000");
  EXPECT_FALSE(parse_text_query("@1"));
  EXPECT_FALSE(parse_text_query("f+zz"));
  EXPECT_FALSE(parse_text_query("f@later"));
}

TEST(Json, LinesAreJsonWhateverIsInThem) {
  const std::string line = JsonLine("x")
                               .text("name", "a\"b\\\n\xff")
                               .time("t", kTimeMin)
                               .time("u", 5)
                               .flag("f", true)
                               .address("a", 255)
                               .end();
  EXPECT_EQ(line.back(), '\n');
  const auto d = nlohmann::json::parse(line, nullptr, false);
  ASSERT_FALSE(d.is_discarded()) << line;
  EXPECT_EQ(d["name"], "a\"b\\\n?");
  EXPECT_TRUE(d["t"].is_null());
  EXPECT_EQ(d["u"], 5);
  EXPECT_EQ(d["a"], "0xff");
}

}  // namespace
}  // namespace asof::test
