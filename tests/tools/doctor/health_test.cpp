// asof doctor's findings, on recordings that each lack one thing.
#include "tools/doctor/health.h"

#include <fmt/format.h>

#include <set>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/elf_writer.h"
#include "tests/support/pt_writer.h"
#include "tools/doctor/open_matters.h"
#include "tools/output/error_table.h"
#include "tools/output/format.h"
#include "tools/validate/validation.h"

namespace asof::test {
namespace {

constexpr Addr kText = Recording::kText;
const Bytes kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00}, kJump = {0xe9, 0x10, 0x00, 0x00, 0x00};

std::vector<Check> start_copy_checks(const Capture& capture) {
  const HealthInput in = health_input(capture);
  std::vector<Check> checks;
  check_start_copy(
      {capture, in, LiveEvents(capture, in.side), FlowFacts{}, Coverage(capture), PipelineOptions{}}, checks);
  return checks;
}

class Health : public ::testing::Test {
 protected:
  void open(const CaptureOptions& options = closed_options()) {
    r.writer.nr_cpus(2);
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
    findings = examine(*capture);
  }
  const Finding* find(std::string_view topic) const {
    for (const Finding& f : findings) {
      if (f.topic == topic) return &f;
    }
    return nullptr;
  }
  std::string verdict(std::string_view topic) const {
    const Finding* f = find(topic);
    return f == nullptr ? "none" : std::string(verdict_name(f->verdict));
  }
  std::string evidence(std::string_view topic) const {
    const Finding* f = find(topic);
    return f == nullptr ? "" : f->evidence;
  }
  void put(Addr at, const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), r.kernel_bytes.begin() + static_cast<long>(at - kText));
  }
  void poke(uint64_t t, Addr at, const Bytes& old_bytes, const Bytes& new_bytes) {
    r.writer.text_poke(at, old_bytes, new_bytes, Recording::at(t));
  }
  Recording r;
  std::optional<Capture> capture;
  std::vector<Finding> findings;
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(Health, AllIsWell) {
  put(kText + 0x100, kNop5);
  poke(500, kText + 0x100, kNop5, kJump);
  r.writer.itrace_start(7, 7, Recording::at(5));
  open();
  for (const char* topic :
       {"trace", "trace-loss", "record-loss", "file", "clock", "kernel-text", "pokes", "kcore", "switches"})
    EXPECT_EQ(verdict(topic), "ok") << topic << ": " << evidence(topic);
  EXPECT_TRUE(has(evidence("pokes"), "1 TEXT_POKE")) << evidence("pokes");
  EXPECT_TRUE(has(evidence("kcore"), "1 site that changed: 1 as before")) << evidence("kcore");
  for (const Finding& f : findings) EXPECT_EQ(f.remedy.empty(), f.verdict == Verdict::kOk) << f.topic;
}

TEST_F(Health, TimingIsCoarseWithoutMtc) {
  open();
  EXPECT_EQ(verdict("timing"), "warn");
  EXPECT_TRUE(has(evidence("timing"), "MTC off")) << evidence("timing");
}

TEST_F(Health, NoCopyIsBad) {
  r.with_kcore = false;
  open();
  EXPECT_EQ(verdict("kernel-text"), "bad");
  EXPECT_EQ(verdict("kcore"), "none");
}

TEST_F(Health, NoPokesIsDoubtful) {
  open();
  EXPECT_EQ(verdict("pokes"), "warn");
  EXPECT_TRUE(has(evidence("pokes"), "0 TEXT_POKE")) << evidence("pokes");
}

TEST_F(Health, NoPokesAndChangedTextIsBad) {
  std::vector<CoreSegment> end = {{kText, r.kernel_bytes}};
  end[0].bytes[0x180] = 0xe9;
  r.write_end(end, r.kallsyms, r.modules);
  open();
  EXPECT_EQ(verdict("pokes"), "bad") << evidence("pokes");
  EXPECT_TRUE(has(evidence("pokes"), "1 change without a record")) << evidence("pokes");
}

TEST_F(Health, CopyOfAnotherMomentIsBad) {
  poke(500, kText + 0x100, kNop5, kJump);  // the copy has NOPs of one byte there
  open();
  EXPECT_EQ(verdict("kcore"), "bad");
  EXPECT_TRUE(has(evidence("kcore"), "1 as in no record")) << evidence("kcore");
  EXPECT_TRUE(has(evidence("kcore"), "ffffffff81000100")) << evidence("kcore");
}

// A trampoline is written and announced after the copy: the copy has the bytes from before.
TEST_F(Health, CodeThatCameAfterTheCopySaysNothingOfIt) {
  const Addr trampoline = kText + 0x100;
  poke(500, kText + 0x200, Bytes(5, 0x90), kJump);  // as the copy has it
  poke(600, trampoline, {}, Bytes(32, 0x0f));
  r.writer.ksymbol(trampoline, 32, KsymbolFact::kOutOfLine, 0, "ftrace_trampoline", Recording::at(601));
  poke(700, trampoline + 8, Bytes(5, 0x0f), kJump);
  r.writer.itrace_start(7, 7, Recording::at(5));
  open();
  EXPECT_EQ(verdict("kcore"), "ok") << evidence("kcore");
  EXPECT_TRUE(has(evidence("kcore"), "of 1 site that changed")) << evidence("kcore");
  const auto checks = start_copy_checks(*capture);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].result, Check::Result::kPass) << checks[0].answer;
  EXPECT_TRUE(has(checks[0].answer, "of 1 site first changed")) << checks[0].answer;
}

// A module that is loaded after the copy has no record; the copy has zeros there.
class HealthOfModules : public Health, public ::testing::WithParamInterface<bool> {};

TEST_P(HealthOfModules, ChangedAfterTheyWereLoaded) {
  constexpr Addr kModules = 0xffffffffc0201000, kSite = kModules + 0x1094;
  const bool empty = GetParam();
  Bytes memory(0x3000);
  memory[0] = 0x90;
  if (!empty) memory[0x1fff] = 0x90;  // a page with anything in it would have the code, too
  r.segments = {{kModules, memory}};
  poke(500, kText + 0x200, Bytes(5, 0x90), kJump);
  poke(600, kSite, {0xe8, 0x07, 0x65, 0xb5, 0xc1}, {0xe8, 0xc7, 0xda, 0x79, 0xc1});
  r.writer.itrace_start(7, 7, Recording::at(5));
  open();
  EXPECT_EQ(verdict("kcore"), empty ? "ok" : "bad") << evidence("kcore");
  const auto checks = start_copy_checks(*capture);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].result, empty ? Check::Result::kPass : Check::Result::kFail) << checks[0].answer;
  EXPECT_TRUE(has(checks[0].answer, empty ? "of 1 site first changed" : "of 2 sites first changed"))
      << checks[0].answer;
}
INSTANTIATE_TEST_SUITE_P(, HealthOfModules, ::testing::Bool());

TEST_F(Health, CopyDuringAChangeIsRecognized) {
  put(kText + 0x100, {0xcc, 0x10, 0, 0, 0});
  poke(500, kText + 0x100, kNop5, kJump);
  put(kText + 0x200, kJump);
  poke(600, kText + 0x200, kNop5, kJump);
  open();
  EXPECT_EQ(verdict("kcore"), "ok");
  EXPECT_TRUE(has(evidence("kcore"), "1 as after the last, 0 in between, 1 with a breakpoint in flight"))
      << evidence("kcore");
}

TEST_F(Health, LostRecordsAreBad) {
  poke(100, kText + 0x100, kNop5, kJump);
  r.writer.lost(3, 28, Recording::at(400));
  open();
  EXPECT_EQ(verdict("record-loss"), "bad");
  EXPECT_TRUE(has(evidence("record-loss"), "28 records in 1 place of 1 ring")) << evidence("record-loss");
}

TEST_F(Health, TruncatedTraceIsAWarning) {
  r.writer.auxtrace({.offset = 16, .reference = 2, .cpu = 0}, Bytes(16, 0));
  r.writer.aux(16, 16, 1, Recording::at(2'000'000));
  open();
  EXPECT_EQ(verdict("trace-loss"), "warn") << evidence("trace-loss");
}

TEST_F(Health, GeneratedCodeWithoutBytes) {
  const std::array<uint8_t, 8> tag = {1, 2, 3, 4, 5, 6, 7, 8};
  r.writer.ksymbol(0xffffffffc0005000, 16, 1, 0, "bpf_prog_0102030405060708_q", Recording::at(150));
  r.writer.bpf_event(1, 7, tag, Recording::at(151));
  r.writer.ksymbol(0xffffffffc0006000, 4096, 1, 0, "bpf_trampoline_6", Recording::at(152));
  open();
  EXPECT_EQ(verdict("generated"), "warn");
  EXPECT_TRUE(
      has(evidence("generated"), "1 program, 1 without bytes; 1 trampoline or page, 1 without bytes: id 7"))
      << evidence("generated");
}

TEST_F(Health, FilesThatAreNotThereOrOthers) {
  ExecutableSpec spec{.address = 0x401000, .text = Bytes(64, 0x90), .build_id = Bytes(20, 0xbb)};
  write_bytes(r.dir.path() / "perf.data/symfs/bin/a", make_executable(spec));
  for (const char* path : {"/bin/a", "/bin/b"}) {
    r.writer.mmap2({.pid = 7,
                    .tid = 7,
                    .addr = 0x401000,
                    .len = 0x1000,
                    .pgoff = 0x1000,
                    .filename = path,
                    .build_id = Bytes(20, 0xaa)},
                   {});
  }
  open();
  EXPECT_EQ(verdict("files"), "bad");
  EXPECT_TRUE(has(evidence("files"), "1 file not found, 1 with another build-id")) << evidence("files");
}

TEST_F(Health, DamageIsCounted) {
  const uint8_t body[20] = {0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // TEXT_POKE with wrong lengths
  const Trailer t = Recording::at(100);
  r.writer.record(20, 1, body, &t);
  open();
  EXPECT_EQ(verdict("file"), "warn") << evidence("file");
}

// The finding on `topic` for a recording with other options of its event.
Finding finding_of(PerfDataWriter& w, const TempDir& dir, std::string_view topic) {
  w.auxtrace({.offset = 0, .reference = 1, .cpu = 0}, Bytes(16, 0));
  w.write_file(dir / "perf.data");
  const auto capture = open_capture((dir / "perf.data").string(), closed_options());
  EXPECT_TRUE(capture.has_value());
  for (const Finding& f : examine(*capture)) {
    if (f.topic == topic) return f;
  }
  return {.verdict = Verdict::kOk, .topic = "none", .answer = "", .evidence = "", .remedy = ""};
}

TEST(HealthOfRecording, ClockThatCannotBeConverted) {
  const TempDir dir;
  PerfDataWriter w;
  w.add_attr({.type = 8, .ids = {1}, .name = "intel_pt//"});
  w.arch("x86_64");
  PtInfoSpec info;
  info.time.cap_zero = false;
  w.auxtrace_info(info);
  const Finding f = finding_of(w, dir, "clock");
  EXPECT_EQ(f.verdict, Verdict::kBad);
  EXPECT_TRUE(has(f.evidence, "cap_user_time_zero 0")) << f.evidence;
}

TEST(HealthOfRecording, PokesNotAskedForOrNotOnAllCpus) {
  for (const bool asked : {false, true}) {
    const TempDir dir;
    PerfDataWriter w;
    w.add_attr({.type = 8, .ids = {1, 2}, .name = "intel_pt//"});
    w.add_attr({.flags = attr_flag::kSampleIdAll | (asked ? attr_flag::kTextPoke : 0), .ids = {3, 4}});
    w.arch("x86_64");
    w.nr_cpus(4);
    w.auxtrace_info(PtInfoSpec{});
    if (asked) w.text_poke(kText, kNop5, kJump, {.time = 9, .attr = 1, .has_id = true});
    const Finding f = finding_of(w, dir, "pokes");
    EXPECT_EQ(f.verdict, asked ? Verdict::kWarn : Verdict::kBad);
    EXPECT_EQ(has(f.evidence, "rings of 2 of 4 CPUs"), asked) << f.evidence;
  }
}

TEST(HealthOfRecording, Arm64NeedsSomeSourceOfChanges) {
  for (const bool poked : {false, true}) {
    const TempDir dir;
    PerfDataWriter w;
    w.add_attr({.type = 8, .ids = {1}, .name = "cs_etm//"});
    w.add_attr({.ids = {2}});
    w.arch("aarch64");
    const uint64_t priv[] = {0, 8};
    w.auxtrace_info(3, priv);
    if (poked)
      w.text_poke(kText, Bytes{0x1f, 0x20, 0x03, 0xd5}, Bytes{4, 0, 0, 0x14},
                  {.time = 9, .attr = 1, .has_id = true});
    const Finding f = finding_of(w, dir, "pokes");
    EXPECT_EQ(f.verdict, poked ? Verdict::kOk : Verdict::kBad) << f.answer << f.evidence;
  }
}

// The codes that open findings have as evidence.
std::set<std::string> open_codes(const std::vector<Finding>& findings) {
  std::set<std::string> codes;
  for (const Finding& f : findings) {
    if (f.topic == "open" && f.verdict == Verdict::kWarn)
      codes.insert(f.evidence.substr(0, f.evidence.find(':')));
  }
  return codes;
}

// The options of an event decide what the recording leaves open; each such recording has its row.
TEST(HealthOfRecording, EachKindOfRecordingHasItsRow) {
  constexpr uint64_t kAsked = attr_flag::kSampleIdAll | attr_flag::kTextPoke;
  constexpr uint64_t kUsual = pt_config_bit::kPt | pt_config_bit::kTsc | pt_config_bit::kBranch;
  constexpr uint64_t kNoTnt = 1ULL << 55U;
  struct Options {
    const char* name;
    uint64_t config, flags;
    bool convertible;
    std::set<std::string> open;
    uint32_t cpus = 1;
  };
  const Options kinds[] = {
      {"usual", kUsual, kAsked, true, {}},
      {"no text_poke", kUsual, attr_flag::kSampleIdAll, true, {"I-SIDE-501"}},
      {"notnt", kUsual | kNoTnt, kAsked, true, {"E-DATA-011"}},
      {"branch=0", pt_config_bit::kPt | pt_config_bit::kTsc, kAsked, true, {"E-DATA-012"}},
      {"-k", kUsual, kAsked | attr_flag::kUseClockid, true, {"E-SIDE-520"}},
      {"--overwrite", kUsual, kAsked | attr_flag::kWriteBackward, true, {"E-LOST-302"}},
      {"no conversion", kUsual, kAsked, false, {"E-SIDE-503"}},
      {"not on all CPUs", kUsual, kAsked, true, {"I-SIDE-516"}, 2},
  };
  for (const Options& kind : kinds) {
    const TempDir dir;
    PerfDataWriter w;
    w.add_attr({.type = 8, .config = kind.config, .ids = {1}, .name = "intel_pt//"});
    w.add_attr({.flags = kind.flags, .ids = {3}});
    w.arch("x86_64");
    w.nr_cpus(kind.cpus);
    PtInfoSpec info;
    info.time.cap_zero = kind.convertible;
    w.auxtrace_info(info);
    if (kind.convertible) w.time_conv(info.time);
    w.auxtrace({.offset = 0, .reference = 1, .cpu = 0}, Bytes(16, 0));
    w.write_file(dir / "perf.data");
    const auto capture = open_capture((dir / "perf.data").string(), closed_options());
    ASSERT_TRUE(capture.has_value()) << kind.name;
    EXPECT_EQ(open_codes(examine(*capture)), kind.open) << kind.name;
  }
}

// Kernel text of a file, as it was built.
TEST_F(Health, VmlinuxInsteadOfKcoreHasItsRow) {
  r.with_kcore = false;
  write_bytes(r.dir / "vmlinux", make_executable({.address = kText,
                                                  .text = Bytes(0x1000, 0x90),
                                                  .symbols = {{"_text", kText, 0}},
                                                  .build_id = Bytes(20, 0xcd)}));
  r.writer.build_ids(std::vector{PerfDataWriter::BuildIdSpec{
      .pid = -1, .misc = 1, .id = Bytes(20, 0xcd), .filename = "[kernel.kallsyms]"}});
  CaptureOptions options = closed_options();
  options.vmlinux = (r.dir / "vmlinux").string();
  open(options);
  EXPECT_EQ(open_codes(findings), std::set<std::string>{"E-TEXT-309"});
}

// PIP packets with NR; bytes that only look like one do not count.
TEST_F(Health, TraceOfAGuestHasItsRow) {
  for (const bool non_root : {false, true}) {
    Recording recording;
    recording.writer.nr_cpus(2);
    PtWriter pt;
    for (int i = 0; i < 2; ++i) {
      pt.psb_plus({});
      pt.tip(kText + 0x0143'0200);  // its bytes: 02 43 01
      pt.pip(0x1000, non_root && i == 1);
    }
    pt.flush();
    recording.writer.auxtrace({.offset = 0, .reference = 2, .idx = 1, .cpu = 1}, pt.bytes());
    recording.writer.aux(0, pt.bytes().size(), 0, Recording::at(900'000, 1));
    const auto opened = recording.open();
    ASSERT_TRUE(opened.has_value());
    const auto found = examine(*opened);
    EXPECT_EQ(open_codes(found), non_root ? std::set<std::string>{"E-TEXT-010"} : std::set<std::string>{});
    if (!non_root) continue;
    const auto row = std::ranges::find(found, std::string_view("open"), &Finding::topic);
    EXPECT_TRUE(has(row->answer, "code of guests: unknown, because guests ran")) << row->answer;
    EXPECT_TRUE(has(row->evidence, "in cpu1 from offset 0x")) << row->evidence;
  }
}

// Whatever opening the capture reports is stated in the words of the confidence, and each row is shown.
TEST_F(Health, OpenMattersAreReportedInTheWordsOfTheConfidence) {
  open();
  ASSERT_TRUE(capture.has_value());
  capture->notices.clear();
  findings.clear();
  check_open(health_input(*capture), findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(verdict("open"), "ok");
  for (const OpenMatter& m : open_matter_table()) {
    Notice notice;
    notice.code = m.code;
    notice.reason = "a reason";
    capture->notices = {notice};
    findings.clear();
    check_open(health_input(*capture), findings);
    ASSERT_EQ(findings.size(), 1U) << m.code;
    EXPECT_EQ(findings[0].verdict, m.usual ? Verdict::kOk : Verdict::kWarn);
    EXPECT_EQ(findings[0].evidence, fmt::format("{}: a reason", code_text(m.code)));
    EXPECT_TRUE(has(findings[0].answer, fmt::format(": {}, because ", m.called))) << findings[0].answer;
    EXPECT_EQ(findings[0].remedy.empty(), m.usual);
    const bool is_confidence = m.called == confidence_name(Confidence::kAmbiguous) ||
                               m.called == confidence_name(Confidence::kProved);
    EXPECT_TRUE(is_confidence || m.called == "unknown") << m.called;
  }
}

}  // namespace
}  // namespace asof::test
