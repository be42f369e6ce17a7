// `asof script` on the demo capture: its lines are in perf's form, say what the flow was, and fit together.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/demo_capture.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

Ran script(const std::string& options) { return run_asof("script " + options + " " + kDemo); }

std::vector<std::string> lines(const std::string& options) {
  const Ran r = script(options + " -q");
  EXPECT_EQ(r.status, 0) << options << r.err;
  return lines_of(r.out);
}

const std::string kWho = " *(\\S+) +([0-9]+) \\[([0-9]{3})\\] +([0-9]+\\.[0-9]{6}): ";
const std::string kPlace = " *([0-9a-f]+) (\\S+) \\((\\S+)\\)";

TEST(Script, BranchesHaveBothEnds) {
  const std::regex form(kWho + " *1 branches:ku: " + kPlace + " => " + kPlace);
  const auto all = lines("--itrace=b");
  ASSERT_GT(all.size(), 10'000U);
  for (const std::string& line : all) ASSERT_TRUE(std::regex_match(line, form)) << line;
}

// Of each CPU; the verb prints CPUs in order of time.
std::map<std::string, std::vector<std::string>> by_cpu(const std::vector<std::string>& all,
                                                       size_t skip_time) {
  std::map<std::string, std::vector<std::string>> out;
  for (const std::string& line : all) {
    const size_t open = line.find('['), colon = line.find(": ", open);
    out[line.substr(open, 5)].push_back(line.substr(skip_time != 0 ? colon : 0));
  }
  return out;
}

// The places of "ip sym+off (dso)", however many blanks are before them.
std::string squeezed(const std::string& line) {
  std::istringstream words(line);
  std::string out;
  for (std::string w; words >> w;) out += w + " ";
  return out;
}

TEST(Script, BranchesAreThoseOfDecode) {
  auto script_lines = by_cpu(lines("--itrace=b -F cpu,time,ip,sym,symoff,dso,addr"), 1);
  std::map<std::string, std::vector<std::string>> decoded;
  for (const std::string& line :
       lines_of(run_asof("decode -q --itrace b -F cpu,time,ip,sym,symoff,dso " + kDemo).out)) {
    // An interrupt at which tracing ends is two lines there.
    const std::string text = squeezed(line.substr(line.find(": ")));
    if (text != squeezed(": 0 [unknown] ([unknown]) => 0 [unknown] ([unknown])"))
      decoded[line.substr(line.find('['), 5)].push_back(text);
  }
  ASSERT_EQ(script_lines.size(), 2U);
  for (auto& [cpu, list] : script_lines) {
    ASSERT_EQ(list.size(), decoded[cpu].size()) << cpu;
    for (size_t i = 0; i < list.size(); ++i) ASSERT_EQ(squeezed(list[i]), decoded[cpu][i]) << cpu;
  }
}

TEST(Script, SamplesAreEveryNthInstruction) {
  const std::string fields = " -F cpu,time,ip,sym,symoff,dso";
  const auto every = by_cpu(lines("--itrace=i1i" + fields), 0);
  for (const size_t n : {7, 1000}) {
    const auto some = by_cpu(lines(fmt::format("--itrace=i{}i{}", n, fields)), 0);
    for (const auto& [cpu, all] : every) {
      const auto& samples = some.at(cpu);
      ASSERT_EQ(samples.size(), all.size() / n) << cpu;
      for (size_t i = 0; i < samples.size(); ++i) ASSERT_EQ(samples[i], all[n * (i + 1) - 1]) << cpu;
    }
  }
  for (const std::string& line : lines("--itrace=i1000i"))
    ASSERT_NE(line.find("       1000 instructions:ku: "), std::string::npos);
}

TEST(Script, PeriodsInTimeCountAllInstructions) {
  const std::regex form(kWho + " *([0-9]+) instructions:ku: " + kPlace);
  std::map<std::string, uint64_t> counted, samples;
  for (const std::string& line : lines("--itrace=i10us")) {
    std::smatch m;
    ASSERT_TRUE(std::regex_match(line, m, form)) << line;
    counted[m[3]] += std::stoull(m[5]);
    ++samples[m[3]];
  }
  const auto every = by_cpu(lines("--itrace=i0"), 0);
  for (const auto& [cpu, all] : every) {
    const std::string number = cpu.substr(1, 3);
    EXPECT_LE(counted[number], all.size());
    EXPECT_GT(counted[number], all.size() * 8 / 10);  // what ran after the last sample is in none
    EXPECT_GE(samples[number], 10U);                  // of 120 us
    EXPECT_LE(samples[number], 13U);
  }
}

// The grammar that collapsers of stacks read: a line that begins with the thread and ends with the event's name and a
// colon, lines "address function (file)", and an empty line.
// CPU 1 has one thread: elsewhere it is a matter of the switch records whose calls are whose.
TEST(Script, ChainsAreStacks) {
  const std::regex head("(\\S+) +([0-9]+) \\[([0-9]{3})\\] +[0-9]+\\.[0-9]{6}: +100 instructions:ku: ");
  const std::regex frame("\t *[0-9a-f]+ (\\S+)\\+0x[0-9a-f]+ \\((\\S+)\\)");
  std::map<std::string, int> stacks;
  std::vector<std::string> frames;
  bool inside = false;
  for (const std::string& line : lines("--itrace=i100ig -C 1")) {
    std::smatch m;
    if (line.empty()) {
      ASSERT_TRUE(inside && !frames.empty());
      std::string folded;
      for (auto f = frames.rbegin(); f != frames.rend(); ++f) folded += (folded.empty() ? "" : ";") + *f;
      ++stacks[folded];
      inside = false;
      frames.clear();
    } else if (!inside) {
      ASSERT_TRUE(std::regex_match(line, head)) << line;
      inside = true;
    } else {
      ASSERT_TRUE(std::regex_match(line, m, frame)) << line;
      frames.push_back(m[1]);
    }
  }
  EXPECT_FALSE(inside);
  EXPECT_GT(stacks["_start;compute"], 10);
  EXPECT_GT(stacks["_start;compute;leaf"], 0);
  EXPECT_GT(stacks["_start;entry_SYSCALL_64;do_syscall_64"], 0);
  const auto few = lines("--itrace=i1000ig2");
  for (size_t i = 0; i + 4 < few.size(); ++i)
    ASSERT_FALSE(few[i].starts_with('\t') && few[i + 1].starts_with('\t') && few[i + 2].starts_with('\t'))
        << i;
}

TEST(Script, LastBranchesAreThoseBefore) {
  const auto all = lines("--itrace=i1000il3 -F ip,brstack");
  ASSERT_GT(all.size(), 40U);
  const std::regex form(" *[0-9a-f]+( 0x[0-9a-f]+/0x[0-9a-f]+/-/-/-/0/ ){3}");
  size_t matched = 0;
  for (const std::string& line : all) matched += std::regex_match(line, form) ? 1 : 0;
  EXPECT_EQ(matched, all.size());
}

// Blocks of branch stacks are the instructions that ran, byte for byte, over changes of text as well.
TEST(Script, BranchStacksHaveTheCodeThatRan) {
  std::vector<std::pair<std::string, std::string>> ran;  // address and bytes, CPU 1
  const std::regex form(" *([0-9a-f]+) insn: ([0-9a-f ]+)");
  std::smatch m;
  for (const std::string& line : lines("--itrace=i1i -C 1 -F ip,insn")) {
    ASSERT_TRUE(std::regex_match(line, m, form)) << line;
    ran.emplace_back(std::string(16 - m[1].length(), '0') + m[1].str(), m[2]);
  }
  // Each sample is the 200th: its blocks end with it.
  const std::regex code("\t([0-9a-f]{16})\tinsn: ([0-9a-f ]+?) +\tilen: ([0-9]+)(\t#)?"), ip(" *[0-9a-f]+");
  size_t sample = 0, compared = 0, jumps = 0;
  std::vector<std::pair<std::string, std::string>> block;
  const auto check = [&] {
    ASSERT_LE(sample, ran.size());
    ASSERT_LE(block.size(), sample);
    for (size_t i = 0; i < block.size(); ++i)
      ASSERT_EQ(block[block.size() - 1 - i], ran[sample - 1 - i]) << sample << " " << i;
    compared += block.size();
    block.clear();
  };
  for (const std::string& line : lines("--itrace=i200il4 -C 1 -F ip,brstackinsn,brstackinsnlen")) {
    if (std::regex_match(line, m, code)) {
      EXPECT_EQ(std::stoul(m[3]), (m[2].length() + 1) / 3) << line;
      block.emplace_back(m[1], m[2]);
      jumps += m[4].matched ? 1 : 0;
    } else if (std::regex_match(line, ip)) {
      check();
      sample += 200;
    } else {
      EXPECT_EQ(line.find("mismatch"), std::string::npos) << line;
    }
  }
  check();
  EXPECT_GT(compared, 1000U);
  EXPECT_GT(jumps, 100U);
}

TEST(Script, MiscIsTheMode) {
  for (const std::string& line : lines("--itrace=b -F misc,ip,addr")) {
    const size_t digits = line.find_first_not_of(' ', 1);
    std::string ip = line.substr(digits, line.find(' ', digits) - digits);
    if (ip == "0") ip = line.substr(line.find("=> ") + 3);
    ip.erase(0, ip.find_first_not_of(' '));
    ASSERT_EQ(line.substr(0, 6), ip.starts_with("ffff") ? "K     " : "U     ") << line;
  }
}

TEST(Script, EventsOfATypeHaveTheirOwnFields) {
  EXPECT_EQ(lines("--itrace=b -F hw:ip,sym"), lines("--itrace=b -F ip,sym"));
  const auto both = lines("--itrace=bp -F hw:ip -F synth:event"),
             synth = lines("--itrace=bp -F hw: -F synth:event");
  EXPECT_EQ(both.size(), lines("--itrace=b").size() + synth.size());
  ASSERT_GT(synth.size(), 10U);
  for (const std::string& line : synth)
    EXPECT_TRUE(line.ends_with("psb: ") || line.ends_with("cbr: ")) << line;
  const Ran r = script("--itrace=b -C 1 -F trace:time,trace");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, script("--itrace=b -C 1").out) << "of samples that are not there";
}

TEST(Script, TicksAreThoseOfTheClock) {
  // 2.4 GHz.
  EXPECT_EQ(lines("--itrace=i2400t"), lines("--itrace=i999ns"));
}

TEST(Script, CallTracesAreIndented) {
  const Ran r = script("--call-trace -q -F -dso");
  ASSERT_EQ(r.status, 0) << r.err;
  const size_t call = r.out.find("    compute "), leaf = r.out.find("        leaf ");
  EXPECT_NE(call, std::string::npos);
  EXPECT_NE(leaf, std::string::npos);
  const auto inside = lines("--call-trace -C 1 --graph-function do_syscall_64 -F -dso");
  const auto all = lines("--call-trace -F -dso");
  EXPECT_GT(inside.size(), 100U);
  EXPECT_LT(inside.size(), all.size());
  for (const std::string& line : inside) EXPECT_EQ(line.find(" leaf "), std::string::npos) << line;
}

TEST(Script, GraphsOfInstructionsAreOfOneFunctionAndBelow) {
  std::map<std::string, int> functions;
  const auto all = lines("--insn-trace -C 1 --graph-function __x64_sys_read -F ip,sym");
  for (const std::string& line : all) ++functions[line.substr(line.rfind(' ') + 1)];
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(all[0].ends_with(" __x64_sys_read")) << all[0];
  EXPECT_GT(functions["__x64_sys_read"], 100);
  EXPECT_GT(functions["vfs_read"], 100);
  for (const char* other : {"do_syscall_64", "_start", "compute", "leaf", "hash_block", "__x64_sys_ioctl"})
    EXPECT_EQ(functions[other], 0) << other;
}

TEST(Script, InstructionTraces) {
  const auto raw = lines("--insn-trace"), text = lines("--insn-trace=disasm");
  ASSERT_EQ(raw.size(), text.size());
  EXPECT_NE(raw[2].find(" insn: "), std::string::npos) << raw[2];
  EXPECT_NE(text[2].find("\t\t"), std::string::npos) << text[2];
}

TEST(Script, TimesAreRelativeIfAsked) {
  const auto relative = lines("--itrace=i1000i --reltime --ns -F time,ip"),
             deltas = lines("--itrace=i1000i --deltatime --ns -F time,ip"),
             absolute = lines("--itrace=i1000i --ns -F time,ip");
  ASSERT_EQ(relative.size(), absolute.size());
  const auto time = [](const std::string& line) { return std::stod(line); };
  double sum = 0;
  for (size_t i = 0; i < absolute.size(); ++i) {
    sum += time(deltas[i]);
    EXPECT_NEAR(time(relative[i]), time(absolute[i]) - time(absolute[0]), 2e-9);
    EXPECT_NEAR(sum, time(relative[i]), 1e-7);
  }
}

TEST(Script, FiltersPick) {
  const auto all = lines("--itrace=b");
  size_t some = 0;
  for (const std::string& line : all)
    some += line.find(": ") != std::string::npos && line.find(" compute+") < line.find(" => ") ? 1 : 0;
  EXPECT_EQ(lines("--itrace=b -S compute").size(), some);
  EXPECT_EQ(lines("--itrace=b -C 0").size() + lines("--itrace=b -C 1").size(), all.size());
  EXPECT_EQ(lines("--itrace=b --comm worker").size(), all.size());
  EXPECT_EQ(lines("--itrace=b --tid 1201").size() + lines("--itrace=b --tid 1202,1203").size(), all.size());
  const Ran none = script("--itrace=b --comm nobody");
  EXPECT_TRUE(none.out.empty());
  EXPECT_NE(none.err.find("no thread is named 'nobody'"), std::string::npos) << none.err;
  EXPECT_EQ(lines("--itrace=bs100").size(), all.size() - 100);
  // Samples are the same whatever is shown of them.
  const auto samples = lines("--itrace=i1000i -F time,ip,period"),
             early = lines("--itrace=i1000i -F time,ip,period --time ,6.00003");
  ASSERT_FALSE(early.empty());
  ASSERT_LT(early.size(), samples.size());
  for (size_t i = 0; i < early.size(); ++i) EXPECT_EQ(early[i], samples[i]);
}

TEST(Script, RecordsOfTheRecordingAreLinesInOrder) {
  const auto all = lines("--itrace=c --show-mmap-events --show-task-events --show-switch-events -F cpu,time");
  std::map<std::string, size_t> kinds;
  double last = 0;
  const size_t begin = all[0].find(']') + 1;
  for (const std::string& line : all) {
    const double time = std::stod(line.substr(begin));
    EXPECT_GE(time, last) << line;
    last = time;
    if (const size_t at = line.find("PERF_RECORD_"); at != std::string::npos) {
      ++kinds[line.substr(at, line.find_first_of(" :(", at) - at)];
    } else {
      ++kinds["flow"];
    }
  }
  EXPECT_EQ(kinds["flow"], lines("--itrace=c").size());
  for (const char* type : {"MMAP", "MMAP2", "COMM", "SWITCH_CPU_WIDE"}) {
    const auto events = lines_of(run_asof(fmt::format("events -q --type {} {}", type, kDemo)).out);
    EXPECT_EQ(kinds[fmt::format("PERF_RECORD_{}", type)], events.size()) << type;
    EXPECT_FALSE(events.empty()) << type;
  }
}

TEST(Script, TheSameForAnyNumberOfThreads) {
  for (const char* options :
       {"--itrace=bi100i", "--itrace=i1000igl8 -F +brstacksym", "--itrace=i1000il8 -F +misc,+brstackinsn",
        "--call-ret-trace", "--show-switch-events", ""}) {
    const Ran one = script(fmt::format("-j1 -q {}", options)),
              three = script(fmt::format("-j3 -q {}", options));
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_FALSE(one.out.empty());
    EXPECT_TRUE(one.out == three.out) << options;
  }
}

// Whoever recorded the capture chose the names of its files.
TEST(Script, NamesOfFilesDoNotCommandTheTerminal) {
  const TempDir dir;
  DemoCapture demo = make_demo();
  for (UserProgram& p : demo.spec.programs) {
    p.path = "/opt/demo/wor\x1b[31mker";
    p.elf.symbols.clear();
  }
  write_capture(*demo.machine, demo.spec, dir.path(), "a hostile name");
  const Ran r = run_asof(fmt::format(
      "script --itrace=bi100ig --show-mmap-events {0}/perf.data --symfs {0}/symfs", dir.path().string()));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ((r.out + r.err).find('\x1b'), std::string::npos);
  EXPECT_NE(r.out.find("[unknown] (/opt/demo/wor\\x1b[31mker)"), std::string::npos);
}

TEST(Script, ErrorsHaveNumbersOfPerf) {
  const Ran r = run_asof("script -q --itrace=e " ASOF_TEST_DATA "/demo/perf.data --symfs /proc/self/fdinfo");
  const std::regex form(
      " instruction trace error type 1 time [0-9]+\\.[0-9]{9} cpu [01] pid [0-9]+ tid [0-9]+ ip "
      "0x[0-9a-f]+ code 5: Failed to get instruction");
  const auto all = lines_of(r.out);
  ASSERT_FALSE(all.empty()) << r.err;
  for (const std::string& line : all) EXPECT_TRUE(std::regex_match(line, form)) << line;
  const Ran told = run_asof("script --itrace=e " ASOF_TEST_DATA "/demo/perf.data --symfs /proc/self/fdinfo");
  EXPECT_NE(told.err.find(fmt::format("E-TEXT-001 {} times, first: ", all.size())), std::string::npos)
      << told.err;
}

// What perf takes and prints nothing for, scripts may go on to ask for.
TEST(Script, LettersWithoutEffectAreTaken) {
  const Ran plain = script("--itrace=b");
  for (const std::string letters : {"bT", "bfmtMa"}) {
    const Ran r = script("--itrace=" + letters);
    EXPECT_EQ(r.status, 0) << letters << r.err;
    EXPECT_EQ(r.out, plain.out) << letters;
    EXPECT_NE(r.err.find("change"), std::string::npos) << letters << r.err;
  }
  // Of what this recording has not.
  for (const std::string letters : {"bG", "bG16", "bL8", "bo", "bI", "boIGL"})
    EXPECT_EQ(script("--itrace=" + letters).out, plain.out) << letters;
}

// Streams one after the other, without times, as perf does.
TEST(Script, TimelessIsStreamByStream) {
  const auto timed = by_cpu(lines("--itrace=b -F cpu,ip"), 0);
  std::vector<std::string> want;
  for (const auto& [cpu, list] : timed) want.insert(want.end(), list.begin(), list.end());
  EXPECT_EQ(lines("--itrace=bZ -F cpu,ip"), want);
  for (const std::string& line : lines("--itrace=cZ"))
    ASSERT_EQ(line.find("6.0000"), std::string::npos) << line;
}

// perf shows the ratio of a sync group, and later ones that are others.
TEST(Script, RatiosOfSyncGroups) {
  size_t psb = 0, cbr = 0;
  for (const std::string& line : lines("--itrace=p -F event,synth,cpu")) {
    psb += line.find(" psb: ") != std::string::npos ? 1 : 0;
    cbr += line.find("cbr: 24 freq: 2400 MHz (100%)") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(psb, 10U);
  EXPECT_EQ(cbr, 2U) << "one for each CPU";
}

// The last one of a CPU is a branch on arm64, and leads nowhere.
TEST(Script, EveryInstructionHasALine) {
  for (const char* demo : {"demo", "demo-arm64"}) {
    const std::string input =
        fmt::format("-q -F ip --symfs {0}/demo/symfs {0}/{1}/perf.data", ASOF_TEST_DATA, demo);
    const auto addresses = [](const Ran& r) {
      std::vector<std::string> out;
      for (const std::string& line : lines_of(r.out)) {
        const size_t begin = line.find_first_not_of(' ');
        if (begin != std::string::npos) out.push_back(line.substr(begin, line.find(' ', begin) - begin));
      }
      std::ranges::sort(out);
      return out;
    };
    const auto own = addresses(run_asof("script --itrace=i1i " + input));
    EXPECT_GT(own.size(), 20'000U);
    EXPECT_TRUE(own == addresses(run_asof("decode " + input))) << demo << own.size();
  }
}

TEST(Script, WhatItDoesNotTakeIsRefused) {
  for (const std::string options :
       {"--itrace=d", "--itrace=y", "--itrace=bG2000", "--itrace=b --no-itrace", "-F srccode", "-F nothing",
        "-F hardware:ip", "--itrace=i -F +brstack", "--itrace=i -F +brstackinsnlen",
        "--call-trace --itrace=b", "--call-trace --insn-trace", "--insn-trace=xed", "--reltime --deltatime",
        "--pid x"}) {
    const Ran r = script(options);
    EXPECT_EQ(r.status, 1) << options;
    EXPECT_TRUE(r.out.empty()) << options;
    EXPECT_NE(r.err.find("E-FILE-091"), std::string::npos) << options << r.err;
  }
}

TEST(Script, SamplesThatWereRecordedArePrintedAndNotInjected) {
  Recording r;
  r.writer.text_poke(Recording::kText + 0x104, Bytes(5, 0x90), Bytes(5, 0xcc), Recording::at(100));
  ASSERT_TRUE(r.open().has_value());
  const std::string capture = (r.dir / "perf.data").string();
  EXPECT_EQ(run_asof("script " + capture).err.find("of the recording itself"), std::string::npos);
  for (uint64_t i = 0; i < 3; ++i) r.writer.sample({.ip = Recording::kText, .time = 200 + i});
  ASSERT_TRUE(r.open().has_value());
  EXPECT_EQ(lines_of(run_asof("script -q --no-itrace " + capture).out).size(), 3U);
  const Ran ran = run_asof("inject -o " + (r.dir / "out.data").string() + " " + capture);
  EXPECT_NE(
      ran.err.find("3 samples of the recording itself left out: 'asof script --no-itrace' prints those"),
      std::string::npos)
      << ran.err;
}

}  // namespace
}  // namespace asof::test
