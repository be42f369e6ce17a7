// Changes of arm64 kernel text from samples of the jump label code, and the catalogue: which word is possible
// when.
#include "decoder/arm64_pokes.h"

#include <gtest/gtest.h>

#include "decoder/arm64_words.h"
#include "decoder/trace_formats.h"
#include "tests/decoder/capture_lab.h"
#include "tests/decoder/cs_lab.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffff800008010000, kFunction = kText + 0x800, kTable = kText + 0x2000;
constexpr uint32_t kEntryId = 1308, kReturnId = 1309;

// TRACING_DATA as perf writes it.
Bytes tracing_data() {
  ByteSink s;
  const auto text = [&](std::string_view t) {
    s.raw({reinterpret_cast<const uint8_t*>(t.data()), t.size()});
  };
  const auto event = [&](std::string_view t) {
    s.u64(t.size());
    text(t);
  };
  text(
      std::string_view("\x17\x08\x44tracing"
                       "0.6\0",
                       14));
  s.u8(0);
  s.u8(8);
  s.u32(4096);
  text(std::string_view("header_page\0", 12));
  event("field: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n");
  text(std::string_view("header_event\0", 13));
  event("# compressed entry header\n");
  s.u32(1);
  event(
      "name: function\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n");
  s.u32(1);
  text(std::string_view("kprobes\0", 8));
  s.u32(2);
  event(
      "name: jl\nID: 1308\nformat:\n\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n"
      "\tfield:s32 code;\toffset:16;\tsize:4;\tsigned:1;\n\tfield:s32 tgt;\toffset:20;\tsize:4;\tsigned:1;\n"
      "\tfield:u64 e;\toffset:24;\tsize:8;\tsigned:0;\n\tfield:u32 t;\toffset:32;\tsize:4;\tsigned:0;\n");
  event(
      "name: jlr\nID: 1309\nformat:\n\tfield:unsigned long __probe_func;\toffset:8;\tsize:8;\tsigned:0;\n"
      "\tfield:unsigned long __probe_ret_ip;\toffset:16;\tsize:8;\tsigned:0;\n");
  return std::move(s).take();
}

uint32_t branch(Addr from, Addr to) { return *arm64::branch_word(from, to, false); }

// A recording of a kernel whose text has NOPs at the sites.
class JumpLabels {
 public:
  JumpLabels() : recording_(1, {etm4_block(0, 0x10)}) {
    PerfDataWriter& w = recording_.writer;
    for (const uint32_t id : {kEntryId, kReturnId})
      w.add_attr({.type = 2, .config = id, .sample_type = 0x10486, .ids = {id}});
    w.feature(1, tracing_data());
    w.mmap({.addr = kText,
            .len = 0x10000,
            .pgoff = kText,
            .filename = "[kernel.kallsyms]_text",
            .kernel = true});
    recording_.aux(0, 5000, framed({{0x10, noise(1, 100)}}));
    text_.assign(0x4000, 0);
    for (size_t at = 0; at < text_.size(); at += 4) put(kText + at, arm64::kNop);
  }
  void put(Addr at, uint32_t word) {
    const auto bytes = arm64::word_bytes(word);
    std::copy(bytes.begin(), bytes.end(), text_.begin() + static_cast<ptrdiff_t>(at - kText));
  }
  void entry(uint64_t time, Addr site, Addr target, uint32_t type, Addr at = kFunction) {
    ByteSink raw;
    raw.zeros(8);
    raw.u64(at);
    raw.u32(static_cast<uint32_t>(site - kTable));
    raw.u32(static_cast<uint32_t>(target - kTable - 4));
    raw.u64(kTable);
    raw.u32(type);
    sample(kEntryId, time, raw.bytes());
  }
  void leave(uint64_t time) {
    ByteSink raw;
    raw.zeros(8);
    raw.u64(kFunction);
    raw.u64(kText + 0x900);
    sample(kReturnId, time, raw.bytes());
  }
  Capture open(CaptureOptions options = closed_options(), bool with_end = false) {
    DirectoryParts parts;
    parts.kcore = make_core({{kText, text_}}, 183);
    parts.kallsyms = symbols();
    recording_.writer.write_directory(dir_.path() / "x.data", parts);
    if (with_end) {
      write_bytes(dir_.path() / "kcore.end", make_core({{kText, end_}}, 183));
      write_text(dir_.path() / "kallsyms.end", symbols());
    }
    auto capture = open_capture((dir_.path() / "x.data").string(), options);
    EXPECT_TRUE(capture.has_value()) << capture.error().reason;
    return std::move(*capture);
  }
  Bytes text_, end_;

 private:
  static std::string symbols() {
    return fmt_line(kText, "_text") + fmt_line(kText, "_stext") + fmt_line(kText + 0x400, "ftrace_caller") +
           fmt_line(kFunction, "arch_jump_label_transform_queue") + fmt_line(kFunction + 0x40, "next") +
           fmt_line(kText + 0x1000, "traced") + fmt_line(kText + 0x4000, "_etext");
  }
  static std::string fmt_line(Addr addr, const std::string& name) {
    char line[64];
    std::snprintf(line, sizeof line, "%016llx T ", static_cast<unsigned long long>(addr));
    return line + name + "\n";
  }
  void sample(uint64_t id, uint64_t time, std::span<const uint8_t> raw) {
    ByteSink s;
    s.u64(id);  // IDENTIFIER
    s.u32(7);
    s.u32(7);
    s.u64(time);
    s.u32(0);
    s.u32(0);
    s.u32(static_cast<uint32_t>(raw.size()));
    s.raw(raw);
    s.align(8);
    recording_.writer.record(9, 1, s.bytes());
  }
  CsRecording recording_;
  TempDir dir_;
};

Bytes bytes_of(uint32_t word) {
  const auto bytes = arm64::word_bytes(word);
  return {bytes.begin(), bytes.end()};
}
using Words = std::vector<Bytes>;
Words words(const Capture& capture, Addr at, Time t) {
  Words out = contents(*capture.text, kKernelSpace, at, 4, t);
  std::sort(out.begin(), out.end());
  return out;
}
Words sorted(Words all) {
  std::sort(all.begin(), all.end());
  return all;
}

TEST(TraceFormats, FieldsOfEvents) {
  const Bytes body = tracing_data();
  const auto events = read_trace_formats(body);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].system, "kprobes");
  EXPECT_EQ(events[0].name, "jl");
  EXPECT_EQ(events[0].id, kEntryId);
  ByteSink raw;
  raw.zeros(16);
  raw.u32(static_cast<uint32_t>(-5));
  EXPECT_EQ(events[0].value({"none", "code"}, raw.bytes(), false), static_cast<uint64_t>(-5));
  EXPECT_FALSE(events[0].value({"e"}, raw.bytes(), false).has_value());  // beyond the sample's end
  for (size_t size = 0; size < body.size(); ++size) {
    const auto cut = read_trace_formats(std::span(body).first(size));
    EXPECT_LE(cut.size(), 2U);
  }
}

TEST(Arm64Pokes, BothWordsWhileTheCallLasts) {
  const Addr site = kText + 0x100, target = kText + 0x180;
  JumpLabels labels;
  labels.entry(1000, site, target, 1);
  labels.leave(1100);
  labels.entry(2000, site, target, 0);
  labels.leave(2100);
  const Capture capture = labels.open();
  const Bytes nop = bytes_of(arm64::kNop), b = bytes_of(branch(site, target));
  EXPECT_EQ(words(capture, site, 999), Words{nop});
  EXPECT_EQ(words(capture, site, 1000), sorted({nop, b}));
  EXPECT_EQ(words(capture, site, 1100), sorted({nop, b}));
  EXPECT_EQ(words(capture, site, 1101), Words{b});
  EXPECT_EQ(words(capture, site, 1999), Words{b});
  EXPECT_EQ(words(capture, site, 2050), sorted({nop, b}));
  EXPECT_EQ(words(capture, site, 2101), Words{nop});
  EXPECT_EQ(words(capture, site + 4, 1050), Words{nop});
  EXPECT_NE(find_notice(capture, "I-SIDE-515"), nullptr);
  EXPECT_FALSE(capture.arm64.unrecorded_changes);
}

TEST(Arm64Pokes, LostSamples) {
  const Addr site = kText + 0x100, other = kText + 0x200, target = kText + 0x180;
  JumpLabels labels;
  labels.leave(500);  // of a call whose entry was lost
  labels.entry(1000, site, target, 1);
  labels.entry(3000, other, target, 1);
  const Capture capture = labels.open();
  const Bytes nop = bytes_of(arm64::kNop);
  EXPECT_EQ(words(capture, site, 2999).size(), 2U);
  EXPECT_EQ(words(capture, site, 3001), Words{bytes_of(branch(site, target))});
  EXPECT_EQ(words(capture, other, 1'000'000).size(), 2U);  // its call never ends
  EXPECT_NE(find_notice(capture, "E-SIDE-512"), nullptr);
  EXPECT_NE(find_notice(capture, "I-SIDE-513"), nullptr);
}

// What a copy of memory has and the samples do not explain stays possible.
TEST(Arm64Pokes, CopiesThatDisagree) {
  const Addr site = kText + 0x100, target = kText + 0x180;
  JumpLabels labels;
  labels.put(site, 0xd4200080);  // a kprobe sat there
  labels.end_ = labels.text_;
  labels.entry(1000, site, target, 1);
  labels.leave(1100);
  const Capture capture = labels.open(closed_options(), true);
  EXPECT_EQ(words(capture, site, 500), sorted({bytes_of(arm64::kNop), bytes_of(0xd4200080)}));
  EXPECT_EQ(words(capture, site, 5000), sorted({bytes_of(branch(site, target)), bytes_of(0xd4200080)}));
  EXPECT_NE(find_notice(capture, "E-TEXT-508"), nullptr);
}

// Samples of another function, or that cannot be true, change nothing.
TEST(Arm64Pokes, OtherSamples) {
  const Addr site = kText + 0x100;
  JumpLabels labels;
  labels.entry(1000, site, kText + 0x180, 1, kText + 0x3000);
  labels.entry(1200, site, kText + 0x180, 9);
  labels.entry(1300, site + 2, kText + 0x180, 1);
  const Capture capture = labels.open();
  EXPECT_EQ(words(capture, site, 1250), Words{bytes_of(arm64::kNop)});
  EXPECT_NE(find_notice(capture, "E-SIDE-512"), nullptr);
}

// Words that two copies have differently may have changed at different times, even neighbours.
TEST(Arm64Pokes, CopiesDifferByWords) {
  const Addr site = kText + 0x100;
  JumpLabels labels;
  labels.put(site, 0x14000020);
  labels.put(site + 4, 0x14000020);
  labels.end_ = labels.text_;
  labels.put(site, arm64::kNop);
  labels.put(site + 4, arm64::kNop);
  const Capture capture = labels.open(closed_options(), true);
  for (const Addr at : {site, site + 4}) {
    EXPECT_EQ(words(capture, at, 1000), sorted({bytes_of(arm64::kNop), bytes_of(0x14000020)}));
    EXPECT_EQ(capture.text->cell(kKernelSpace, at).range, (AddrRange{at, at + 4}));
  }
}

TEST(Arm64Pokes, NothingRecordedIsTold) {
  JumpLabels labels;
  const Capture capture = labels.open();
  EXPECT_TRUE(capture.arm64.unrecorded_changes);
  EXPECT_NE(find_notice(capture, "E-SIDE-514"), nullptr);
}

TEST(Arm64Catalogue, FunctionEntriesAreDoubtful) {
  const Addr entry = kText + 0x1000;
  JumpLabels labels;
  labels.put(entry, arm64::kMovX9Lr);
  CaptureOptions options = closed_options();
  options.catalogue = true;
  const Capture capture = labels.open(options);
  const auto call = arm64::branch_word(entry + 4, kText + 0x400, true);
  EXPECT_EQ(words(capture, entry + 4, 1000), sorted({bytes_of(arm64::kNop), bytes_of(*call)}));
  EXPECT_EQ(words(capture, entry + 8, 1000), Words{bytes_of(arm64::kNop)});
  EXPECT_NE(find_notice(capture, "I-TEXT-509"), nullptr);  // no jump table
}

}  // namespace
}  // namespace asof::test
