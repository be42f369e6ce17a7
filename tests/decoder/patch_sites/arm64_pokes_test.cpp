// Changes of arm64 kernel text from samples of the jump label code: which word is possible at what time.
#include "decoder/patch_sites/arm64_pokes.h"

#include <gtest/gtest.h>

#include "decoder/patch_sites/arm64_words.h"
#include "decoder/perf/trace_formats.h"
#include "tests/decoder/patch_sites/arm64_test_util.h"

namespace asof::test {
namespace {

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
  EXPECT_NE(find_notice(capture, Code::kTextChangeSources), nullptr);
  // Function entries change without such samples.
  EXPECT_TRUE(capture.arm64.unrecorded_changes);
  EXPECT_TRUE(capture.arm64.complete_text.empty());
  EXPECT_EQ(capture.text->unsure_from(), kTimeMax);
}

// The same from a BPF program that writes at entry and return, together with samples of unrelated programs.
TEST(Arm64Pokes, BpfOutput) {
  const Addr site = kText + 0x100, target = kText + 0x180;
  JumpLabels labels;
  labels.bpf_other(900, Bytes(40, 0x11));
  labels.bpf_entry(1000, site, target, 1);
  labels.bpf_other(1050, {});
  labels.bpf_leave(1100);
  labels.bpf_entry(2000, site, target, 0);
  labels.bpf_leave(2100);
  const Capture capture = labels.open();
  const Bytes nop = bytes_of(arm64::kNop), b = bytes_of(branch(site, target));
  EXPECT_EQ(words(capture, site, 999), Words{nop});
  EXPECT_EQ(words(capture, site, 1050), sorted({nop, b}));
  EXPECT_EQ(words(capture, site, 1500), Words{b});
  EXPECT_EQ(words(capture, site, 2101), Words{nop});
  EXPECT_EQ(find_notice(capture, Code::kBadJumpLabelSample), nullptr);
}

TEST(Arm64Pokes, BpfOutputThatCannotBe) {
  const Addr site = kText + 0x100, target = kText + 0x180;
  JumpLabels labels;
  labels.bpf_entry(1000, site, target, 1, false);  // its entry is in no record
  ByteSink odd;
  odd.c_string("asofjl1", 8);
  odd.u32(7);
  odd.u32(1);
  labels.bpf_other(1200, {odd.bytes().begin(), odd.bytes().end()});
  for (size_t size = 8; size < 16; ++size)
    labels.bpf_other(1300, {odd.bytes().begin(), odd.bytes().begin() + static_cast<ptrdiff_t>(size)});
  const Capture capture = labels.open();
  EXPECT_EQ(words(capture, site, 2000), Words{bytes_of(arm64::kNop)});
  EXPECT_TRUE(capture.arm64.unrecorded_changes);
  EXPECT_NE(find_notice(capture, Code::kBadJumpLabelSample), nullptr);
}

// Recorded on a machine with the other byte order.
TEST(Arm64Pokes, SwappedSession) {
  const Addr site = kText + 0x100, target = kText + 0x180;
  JumpLabels labels(true);
  labels.entry(1000, site, target, 1);
  labels.leave(1100);
  labels.bpf_entry(2000, site, target, 0);
  labels.bpf_leave(2100);
  const Capture capture = labels.open();
  const Bytes nop = bytes_of(arm64::kNop), b = bytes_of(branch(site, target));
  EXPECT_EQ(words(capture, site, 999), Words{nop});
  EXPECT_EQ(words(capture, site, 1500), Words{b});
  EXPECT_EQ(words(capture, site, 2050), sorted({nop, b}));
  EXPECT_EQ(words(capture, site, 2101), Words{nop});
}

// A pipe has no features: event formats are a record.
TEST(Arm64Pokes, SamplesThroughAPipe) {
  const Bytes formats = tracing_data();
  CsRecording recording(1, {etm4_block(0, 0x10)});
  ByteSink size;
  size.u32(static_cast<uint32_t>(formats.size()));
  recording.writer.record(66, 0, size.bytes());
  Bytes padded = formats;
  padded.resize((formats.size() + 7) / 8 * 8);
  recording.writer.raw(padded);
  recording.aux(0, 5000, framed({{0x10, noise(1, 100)}}));
  const TempDir dir;
  recording.writer.write_pipe(dir / "x.pipe");
  const auto data = PerfData::open((dir / "x.pipe").string());
  ASSERT_TRUE(data) << data.error().reason;
  const auto events = read_trace_formats((*data)->feature(1));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].id, kReturnId);
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
  EXPECT_NE(find_notice(capture, Code::kBadJumpLabelSample), nullptr);
  EXPECT_NE(find_notice(capture, Code::kJumpLabelWithoutEnd), nullptr);
}

// A LOST record: any site may have been switched in that time, until a sample reports it again.
TEST(Arm64Pokes, LostRecords) {
  const Addr site = kText + 0x100, other = kText + 0x200, target = kText + 0x180;
  const Bytes nop = bytes_of(arm64::kNop);
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again);
    JumpLabels labels;
    labels.entry(1000, site, target, 1);
    labels.leave(1100);
    labels.lost(1200, 3000, 40);
    labels.entry(3010, other, target, 1);
    labels.leave(3100);
    // Switched on again: it was off, and the record that switched it off was lost.
    if (again) labels.entry(4000, site, target, 1);
    if (again) labels.leave(4100);
    const Capture capture = labels.open();
    const Words on = {bytes_of(branch(site, target))}, both = sorted({nop, on[0]});
    EXPECT_EQ(capture.text->unsure_from(), 1201);
    EXPECT_EQ(words(capture, site, 999), Words{nop});
    EXPECT_EQ(words(capture, site, 1200), on);
    EXPECT_EQ(words(capture, site, 1201), both);
    EXPECT_EQ(words(capture, site, 3001), both);
    EXPECT_EQ(words(capture, site, 4050), both);
    EXPECT_EQ(words(capture, site, 4101), again ? on : both);
    EXPECT_EQ(words(capture, other, 3050).size(), 2U);
    EXPECT_EQ(words(capture, other, 3101), Words{bytes_of(branch(other, target))});
  }
}

// What a copy of memory shows and the samples do not explain stays possible.
TEST(Arm64Pokes, CopiesThatDisagree) {
  const Addr site = kText + 0x100, target = kText + 0x180;
  JumpLabels labels;
  labels.put(site, 0xd4200080);  // a kprobe was there
  labels.end_ = labels.text_;
  labels.entry(1000, site, target, 1);
  labels.leave(1100);
  const Capture capture = labels.open(closed_options(), true);
  EXPECT_EQ(words(capture, site, 500), sorted({bytes_of(arm64::kNop), bytes_of(0xd4200080)}));
  EXPECT_EQ(words(capture, site, 5000), sorted({bytes_of(branch(site, target)), bytes_of(0xd4200080)}));
  EXPECT_NE(find_notice(capture, Code::kCopyContradictsSamples), nullptr);
}

// The probe that samples the changes is in one copy of memory and not in the other: its own samples explain
// that. They explain no other word, and no other probe.
TEST(Arm64Pokes, TheProbeThatRecordsIsExplained) {
  constexpr uint32_t kBreakpoint = 0xd4200080, kPushFrame = 0xa9bf7bfd;
  const Addr site = kText + 0x100, target = kText + 0x180;
  struct {
    bool sampled;
    Addr at;
    uint32_t first, last;
    bool explained;
  } const cases[] = {{true, kFunction, kBreakpoint, kPushFrame, true},
                     {true, kFunction, kPushFrame, kBreakpoint, true},
                     {false, kFunction, kBreakpoint, kPushFrame, false},
                     {true, kFunction, kPushFrame, 0x12345678, false},
                     {true, kFunction + 4, kBreakpoint, kPushFrame, false}};
  for (const auto& c : cases) {
    JumpLabels labels;
    labels.end_ = labels.text_;
    labels.put(c.at, c.first);
    const auto bytes = bytes_of(c.last);
    std::copy(bytes.begin(), bytes.end(), labels.end_.begin() + static_cast<ptrdiff_t>(c.at - kText));
    if (c.sampled) {  // on and off: the site is in both copies as it was
      labels.entry(1000, site, target, 1);
      labels.leave(1100);
      labels.entry(2000, site, target, 0);
      labels.leave(2100);
    }
    const Capture capture = labels.open(closed_options(), true);
    EXPECT_EQ(find_notice(capture, Code::kSnapshotCaughtBreakpoint) != nullptr, c.explained);
    const Notice* change = find_notice(capture, Code::kUnrecordedChange);
    EXPECT_EQ(change == nullptr, c.explained);
    EXPECT_EQ(change == nullptr ? 1U : change->count, 1U);
    EXPECT_EQ(words(capture, c.at, 1500), sorted({bytes_of(c.first), bytes_of(c.last)}));
  }
}

// Samples of another function, or that cannot be true, have no effect.
TEST(Arm64Pokes, OtherSamples) {
  const Addr site = kText + 0x100;
  JumpLabels labels;
  labels.entry(1000, site, kText + 0x180, 1, kText + 0x3000);
  labels.entry(1200, site, kText + 0x180, 9);
  labels.entry(1300, site + 2, kText + 0x180, 1);
  const Capture capture = labels.open();
  EXPECT_EQ(words(capture, site, 1250), Words{bytes_of(arm64::kNop)});
  EXPECT_NE(find_notice(capture, Code::kBadJumpLabelSample), nullptr);
}

// Words that differ between two copies may have changed at different times, even adjacent ones.
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

TEST(Arm64Pokes, NoSourceOfChangesIsReported) {
  JumpLabels labels;
  const Capture capture = labels.open();
  EXPECT_TRUE(capture.arm64.unrecorded_changes);
  EXPECT_NE(find_notice(capture, Code::kNoTextChangeSource), nullptr);
}

}  // namespace
}  // namespace asof::test
