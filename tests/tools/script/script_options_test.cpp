// What `asof script` takes of perf script's --itrace and --fields, and what it refuses.
#include "tools/script/script_options.h"

#include <gtest/gtest.h>

#include "decoder/perf/records.h"
#include "tools/script/script_fields.h"

namespace asof::test {
namespace {

ScriptItrace itrace(const std::string& text) {
  const auto r = parse_script_itrace(text);
  EXPECT_TRUE(r) << text;
  return r.value_or(ScriptItrace{});
}

TEST(ScriptItrace, PeriodsOfInstructions) {
  EXPECT_TRUE(itrace("i").by_time);
  EXPECT_EQ(itrace("i").period, 100'000U);  // perf's 100 us
  EXPECT_EQ(itrace("i100us").period, 100'000U);
  EXPECT_EQ(itrace("i2ms").period, 2'000'000U);
  EXPECT_EQ(itrace("i7ns").period, 7U);
  EXPECT_EQ(itrace("i7").period, 7U);
  EXPECT_TRUE(itrace("i7").by_time);
  EXPECT_EQ(itrace("i1000i").period, 1000U);
  EXPECT_FALSE(itrace("i1000i").by_time);
  for (const char* every : {"i0", "i0ns", "i0i", "i1i", "i0us"}) {
    EXPECT_FALSE(itrace(every).by_time) << every;
    EXPECT_EQ(itrace(every).period, 1U) << every;
  }
}

TEST(ScriptItrace, PeriodsInTicksAreThoseOfTheTracesClock) {
  ScriptItrace ticks = itrace("i100t");
  EXPECT_TRUE(ticks.by_ticks);
  EXPECT_EQ(ticks.period, 100U);
  // 2.4 GHz: 41.66 ns.
  ASSERT_TRUE(ticks_to_time(TimeConversion{.shift = 10, .mult = 427}, ticks));
  EXPECT_TRUE(ticks.by_time && !ticks.by_ticks);
  EXPECT_EQ(ticks.period, 41U);
  ScriptItrace one = itrace("i1t");
  ASSERT_TRUE(ticks_to_time(TimeConversion{.shift = 10, .mult = 427}, one));
  EXPECT_EQ(one.period, 1U);
  ScriptItrace nanoseconds = itrace("i7ns");
  ASSERT_TRUE(ticks_to_time(std::nullopt, nanoseconds));
  EXPECT_EQ(nanoseconds.period, 7U);
  ScriptItrace unknown = itrace("i100t");
  const auto r = ticks_to_time(std::nullopt, unknown);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kBadOption);
  ScriptItrace large = itrace("i18446744073709551615t");
  EXPECT_FALSE(ticks_to_time(TimeConversion{.shift = 0, .mult = 5}, large));
}

TEST(ScriptItrace, KindsOfErrorsAreLeftOut) {
  EXPECT_TRUE(itrace("e").errors && !itrace("e").no_overflows && !itrace("e").no_losses);
  EXPECT_TRUE(itrace("e-o").no_overflows && !itrace("e-o").no_losses);
  EXPECT_TRUE(itrace("e-o-l").no_overflows && itrace("e-o-l").no_losses && itrace("e-o-l").errors);
  EXPECT_TRUE(itrace("e-o+ob").branches && !itrace("e-o+ob").no_overflows);
}

TEST(ScriptItrace, LettersGoTogether) {
  const ScriptItrace all = itrace("i10usbcrxwpeg20l8s5");
  EXPECT_TRUE(all.instructions && all.branches && all.calls && all.returns && all.transactions &&
              all.ptwrite && all.power && all.errors);
  EXPECT_EQ(all.period, 10'000U);
  EXPECT_EQ(all.chain, 20U);
  EXPECT_EQ(all.last_branches, 8U);
  EXPECT_EQ(all.skip, 5U);
  EXPECT_EQ(itrace("ig").chain, 16U);
  EXPECT_EQ(itrace("il").last_branches, 64U);
  EXPECT_TRUE(itrace("b").branches);
  EXPECT_FALSE(itrace("b").calls);
  EXPECT_TRUE(itrace("c").branches);
  EXPECT_EQ(itrace("i").quick, 0U);
  EXPECT_EQ(itrace("iq").quick, 1U);
  EXPECT_EQ(itrace("qiq").quick, 2U);
}

TEST(ScriptItrace, WhatIsNotTakenSaysSo) {
  for (const char* text : {"", "Q", "g0", "g1025", "l99999", "s", "i99999999999999999999us", "d", "G1025",
                           "y", "L0", "e-x", "e-", "i10us?", "i18446744073709551615ms"}) {
    const auto r = parse_script_itrace(text);
    ASSERT_FALSE(r) << text;
    EXPECT_EQ(r.error().code, Code::kBadOption) << text;
    EXPECT_TRUE(r.error().reason.starts_with("--itrace:")) << text;
  }
}

TEST(ScriptItrace, LettersForWhatIsNotPrintedHaveNoEffectAndSaySo) {
  const auto plain = parse_script_itrace("b");
  EXPECT_TRUE(plain->without_effect.empty());
  const std::pair<const char*, size_t> cases[] = {{"bT", 1}, {"bfmtMa", 1}, {"bTf", 2}};
  for (const auto& [text, notes] : cases) {
    const auto r = parse_script_itrace(text);
    ASSERT_TRUE(r) << text;
    EXPECT_EQ(r->without_effect.size(), notes) << text;
    EXPECT_TRUE(r->branches && !r->instructions && r->chain == 0 && r->last_branches == 0) << text;
  }
  const ScriptItrace samples = itrace("oIZG8L"), sized = itrace("GL5");
  EXPECT_TRUE(samples.pebs && samples.interrupts && samples.timeless && !samples.branches);
  EXPECT_EQ(samples.sample_chain, 8U);
  EXPECT_EQ(samples.sample_branches, 64U);
  EXPECT_EQ(samples.chain + samples.last_branches, 0U);
  EXPECT_EQ(sized.sample_chain, 16U);
  EXPECT_EQ(sized.sample_branches, 5U);
  EXPECT_TRUE(parse_script_itrace("Ai1i")->approx_ipc);
  EXPECT_FALSE(plain->approx_ipc);
}

ScriptFields fields(const std::string& text) {
  ScriptFields f = default_script_fields();
  EXPECT_TRUE(change_fields(text, f)) << text;
  return f;
}

TEST(ScriptFields, ListsAndChanges) {
  const ScriptFields all = default_script_fields();
  EXPECT_TRUE(all.targets);
  EXPECT_EQ(fields("ip,sym").flow, uint32_t{kScriptIp | kScriptSym});
  EXPECT_FALSE(fields("ip,sym").targets);
  EXPECT_EQ(fields("+insn,-comm").flow, (all.flow | kScriptInsn) & ~uint32_t{kScriptComm});
  EXPECT_EQ(fields("+addr").flow, all.flow | kScriptAddr);
  EXPECT_TRUE(fields("+flags").targets);  // as in perf
  EXPECT_FALSE(fields("+insn").targets);
  EXPECT_NE(fields("-ip").synth & kScriptSynth, 0U);
  EXPECT_EQ(fields("ip").synth & kScriptSynth, 0U);
}

TEST(ScriptFields, BelongToTypesOfEvents) {
  const ScriptFields all = default_script_fields(), hw = fields("hw:ip,sym"), synth = fields("synth:ip"),
                     sw = fields("sw:comm,time,misc"), none = fields("hw:");
  constexpr uint32_t kSoftware = 1, kDriver = 8;
  EXPECT_EQ(hw.flow, uint32_t{kScriptIp | kScriptSym});
  EXPECT_EQ(hw.synth, all.synth);
  EXPECT_FALSE(hw.targets);
  EXPECT_EQ(hw.of_record(kSoftware), all.of_record(kSoftware));
  EXPECT_EQ(synth.synth, uint32_t{kScriptIp});
  EXPECT_EQ(synth.flow, all.flow);
  EXPECT_TRUE(synth.targets);
  EXPECT_EQ(sw.of_record(kSoftware), uint32_t{kScriptComm | kScriptTime | kScriptMisc});
  EXPECT_EQ(sw.of_record(kDriver), all.of_record(kDriver));
  EXPECT_EQ(sw.flow, all.flow);
  EXPECT_EQ(none.flow, 0U);
  EXPECT_EQ(fields("hw:+addr").flow, all.flow | kScriptAddr);
  EXPECT_EQ(fields("ip").of_record(kDriver), uint32_t{kScriptIp});
  // flags are those of all; fields that only samples have are those of none.
  EXPECT_NE(fields("hw:+flags").synth & kScriptFlags, 0U);
  EXPECT_EQ(fields("trace:cpu,time,event,trace").flow, all.flow);
}

TEST(ScriptFields, WhatIsNotTakenSaysSo) {
  for (const char* text : {"nothing", "hardware:ip", "hw:nothing", "hw:trace", "trace:nothing", ":ip",
                           "hw:bpf-output", "data_src", "metric", "srccode", "+", "-"}) {
    ScriptFields f = default_script_fields();
    const auto r = change_fields(text, f);
    ASSERT_FALSE(r) << text;
    EXPECT_EQ(r.error().code, Code::kBadOption) << text;
  }
}

TEST(ScriptFields, FitTheFirstEventOfEachType) {
  PerfAttr cycles, dummy, other, probe;
  cycles.sample_type = kSampleIp | kSampleTid | kSampleTime;
  dummy.type = other.type = 1;
  dummy.config = 9;
  dummy.sample_type = kSampleTid;
  other.sample_type = kSampleIp | kSampleTid | kSampleCpu;
  probe.type = 2;
  probe.sample_type = kSampleTid | kSampleTime | kSampleCpu | kSampleCallchain;
  const PerfAttr events[] = {dummy, cycles, other, probe};
  ScriptFields f = default_script_fields();
  ASSERT_TRUE(fit_fields(events, true, f));
  const ScriptFields all = default_script_fields();
  EXPECT_EQ(f.flow, all.flow & ~uint64_t{kScriptCpu});
  EXPECT_EQ(f.records[1], all.records[1] & ~uint64_t{kScriptTime});
  EXPECT_EQ(f.synth, all.synth);
  // Of tracepoints with call chains perf shows the place, if it shows chains.
  EXPECT_EQ(f.records[2] & (kScriptIp | kScriptSym), 0U | kScriptIp | kScriptSym);
  ScriptFields hidden = default_script_fields(), listed = fields("trace:time");
  ASSERT_TRUE(fit_fields(events, false, hidden));
  EXPECT_EQ(hidden.records[2], all.records[2]);
  ASSERT_TRUE(fit_fields(events, true, listed));
  EXPECT_EQ(listed.records[2], uint64_t{kScriptTime});
}

TEST(ScriptFields, ThatWereAskedForAndAreNotRecorded) {
  PerfAttr cycles;
  cycles.sample_type = kSampleIp | kSampleTid;
  ScriptFields cpu = fields("hw:cpu,ip"), time = fields("time,ip"), names = fields("sym,dso");
  EXPECT_TRUE(fit_fields({&cycles, 1}, true, cpu)) << "perf shows what there is beside a trace";
  EXPECT_FALSE(fit_fields({&cycles, 1}, true, time));
  EXPECT_TRUE(fit_fields({&cycles, 1}, true, names));
  cycles.sample_type = kSampleTid;
  EXPECT_FALSE(fit_fields({&cycles, 1}, true, names)) << "there is nothing to name";
}

}  // namespace
}  // namespace asof::test
