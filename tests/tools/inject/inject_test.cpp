// `asof inject` of a real program, opened by perf 6.1: what perf reports is what ran, and it complains of nothing.
#include <algorithm>
#include <regex>

#include "decoder/model/capture.h"
#include "tests/tools/inject/calls_program.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/stepped_test.h"
#include "tools/inject/sample_writer.h"
#include "tools/script/script_event_names.h"

namespace asof::test {
namespace {

class Inject : public SteppedTest {
 protected:
  void SetUp() override {
    ASOF_SKIP_WITHOUT_PERF();
    record(kCallsProgram, "-O1");
  }
  void inject(const std::string& itrace) {
    const Ran r =
        run_asof(fmt::format("inject --itrace {} {} -o {}", itrace, path("perf.data"), path("out.data")));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("samples;"), std::string::npos) << r.err;
  }
  // What perf prints; nothing on standard error, and status 0.
  std::string perf(const std::string& arguments) {
    const int status = std::system(
        fmt::format("perf {} >{} 2>{} </dev/null", arguments, path("perf.out"), path("perf.err")).c_str());
    EXPECT_EQ(status, 0) << arguments << read_file(path("perf.err"));
    // The program was recorded without a kernel, as perf then says of every file.
    const std::string said = read_file(path("perf.err"));
    EXPECT_TRUE(said.empty() || said.starts_with("Warning:\nKernel address maps")) << arguments << said;
    return read_file(path("perf.out"));
  }
};

TEST_F(Inject, ReportCountsEveryInstruction) {
  inject("i1i");
  const std::string report =
      perf("report --stdio -i " + path("out.data") + " --sort symbol -F sample,symbol");
  std::map<std::string, uint64_t> got;
  for (const std::string& line : lines_of(report)) {
    unsigned long samples = 0;
    char name[64] = {};
    if (std::sscanf(line.c_str(), " %lu [.] %63s", &samples, name) == 2) got[name] = samples;
  }
  // By symbols, up to the next one.
  std::map<std::string, uint64_t> want;
  for (const auto& [at, count] : ran_.counts) {
    std::string best;
    for (const auto& [name, begin] : functions_) {
      if (begin <= at && (best.empty() || begin > functions_.at(best))) best = name;
    }
    want[best] += count;
  }
  EXPECT_EQ(got, want) << report;
  EXPECT_EQ(got.size(), 4U);
  EXPECT_NE(report.find("of event 'instructions:u'"), std::string::npos) << report;
}

// Branches by both ends, and what perf itself makes of the trace.
TEST_F(Inject, BranchesAreThoseOfPerfsOwnDecoder) {
  inject("b");
  const std::string fields = "-F ip,sym,addr";
  const auto sorted = [](const std::string& text) {
    auto lines = lines_of(text);
    std::ranges::sort(lines);
    return lines;
  };
  const auto own = sorted(perf("script -i " + path("out.data") + " " + fields));
  EXPECT_EQ(own, sorted(perf("script -i " + path("perf.data") + " --itrace=b " + fields)));
  uint64_t taken = 0;
  for (const auto& [ends, count] : ran_.taken) taken += count;
  EXPECT_GT(own.size(), taken);
}

TEST_F(Inject, ChainsAndBranchStacks) {
  inject("i20igl8");
  const std::string chains = perf("script -i " + path("out.data") + " -F event,ip,sym");
  EXPECT_NE(chains.find("leaf"), std::string::npos) << chains.substr(0, 500);
  // leaf <- inner <- outer <- _start
  const std::regex chain("leaf\n\\s+[0-9a-f]+ inner\n\\s+[0-9a-f]+ outer\n\\s+[0-9a-f]+ _start\n");
  EXPECT_TRUE(std::regex_search(chains, chain)) << chains.substr(0, 2000);
  const std::string stacks = perf("script -i " + path("out.data") + " -F brstack");
  size_t entries = 0;
  for (const std::string& line : lines_of(stacks)) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(line.c_str(), " 0x%lx/0x%lx/", &from, &to) != 2) continue;
    if (to == 0 || from == 0) continue;
    ++entries;
    EXPECT_TRUE(ran_.taken.contains({from, to})) << line;
  }
  EXPECT_GT(entries, 50U);
  const std::string tree =
      perf("report --stdio --no-branch-stack --no-children -g caller -S leaf -i " + path("out.data"));
  EXPECT_TRUE(std::regex_search(tree, std::regex("outer"))) << tree;
}

// What perf shows of an entry's type, beside the flags of perf's own decoder.
TEST_F(Inject, BranchStacksSayWhichKindEachIs) {
  const Ran r = run_asof("inject --itrace i1000il4 " + kDemo + " -o " + path("out.data"));
  ASSERT_EQ(r.status, 0) << r.err;
  std::map<std::pair<uint64_t, uint64_t>, std::string> flags;
  for (const std::string& line : lines_of(run_asof("script -q --itrace=b -F flags,ip,addr " + kDemo).out)) {
    static const std::regex kBranch("^ *([a-z][a-z ]*[a-z]) +([0-9a-f]+) => +([0-9a-f]+)");
    std::smatch m;
    if (std::regex_search(line, m, kBranch))
      flags[{std::stoull(m[2], nullptr, 16), std::stoull(m[3], nullptr, 16)}] = m[1];
  }
  const std::map<std::string, std::set<std::string>> kinds = {
      {"COND", {"jcc"}},      {"UNCOND", {"jmp"}}, {"IND", {"jmp"}},         {"CALL", {"call"}},
      {"IND_CALL", {"call"}}, {"RET", {"return"}}, {"SYSCALL", {"syscall"}}, {"SYSRET", {"sysret"}},
      {"ERET", {"iret"}},     {"IRQ", {"hw int"}}};
  std::map<std::string, size_t> seen;
  for (const std::string& line : lines_of(perf("script -D -i " + path("out.data")))) {
    static const std::regex kEntry("^\\.\\.\\.\\.\\. *[0-9]+: ([0-9a-f]+) -> ([0-9a-f]+) .* ([A-Z_]+) *$");
    std::smatch m;
    if (!std::regex_search(line, m, kEntry)) continue;
    ++seen[m[3]];
    const auto own = flags.find({std::stoull(m[1], nullptr, 16), std::stoull(m[2], nullptr, 16)});
    ASSERT_NE(own, flags.end()) << line;
    EXPECT_TRUE(kinds.at(m[3]).contains(own->second)) << line << own->second;
  }
  for (const char* kind : {"COND", "UNCOND", "CALL", "RET", "SYSCALL", "SYSRET"})
    EXPECT_GT(seen[kind], 0U) << kind;
}

TEST_F(Inject, AnnotateShowsWhereTheSamplesAre) {
  if (!runs("objdump --version")) GTEST_SKIP() << "objdump is not installed";
  inject("i1i");
  const std::string text = perf("annotate --stdio -i " + path("out.data") + " -s leaf");
  EXPECT_NE(text.find("leaf"), std::string::npos) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("[1-9][0-9]*\\.[0-9]+ +:? +[0-9a-f]+:"))) << text;
}

TEST_F(Inject, ThreadsMakeNoDifference) {
  inject("ibg");
  const std::string all = read_file(path("out.data"));
  const Ran one =
      run_asof(fmt::format("inject -j1 --itrace ibg {} -o {}", path("perf.data"), path("one.data")));
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(read_file(path("one.data")), all);
}

// Kernel, several CPUs, threads that are switched: the demo.
TEST_F(Inject, RecordsOfAWholeSystem) {
  const Ran r = run_asof("inject --itrace i10ig " + kDemo + " -o " + path("out.data"));
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string report =
      perf("report --stdio --no-children -g none --sort comm -F sample,comm -i " + path("out.data"));
  EXPECT_NE(report.find("worker"), std::string::npos) << report;
  const std::string lines = perf("script --show-mmap-events --show-task-events -i " + path("out.data") +
                                 " -F comm,tid,time,event,ip");
  EXPECT_NE(lines.find("PERF_RECORD_MMAP"), std::string::npos);
  EXPECT_NE(lines.find("PERF_RECORD_COMM"), std::string::npos);
}

// PTWRITE, power events and errors: perf prints of the file what asof script prints of the trace.
TEST_F(Inject, EventsOfTheTraceAndErrorsAreAsInScript) {
  const std::string options =
      " --itrace=wpe " ASOF_TEST_DATA "/demo/perf.data --symfs /proc/self/fdinfo";  // some text is not found
  const Ran r = run_asof("inject" + options + " -o " + path("out.data"));
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("errors;"), std::string::npos) << r.err;
  const auto sorted = [](const std::string& text) {
    auto lines = lines_of(std::regex_replace(text, std::regex(" +"), " "));
    std::ranges::sort(lines);
    return lines;
  };
  const std::string perf_script = fmt::format("perf script -i {} -F comm,tid,cpu,time,event,synth >{} 2>{}",
                                              path("out.data"), path("perf.out"), path("perf.err"));
  ASSERT_EQ(std::system(perf_script.c_str()), 0);
  const auto own = sorted(run_asof("script -q -F comm,tid,cpu,time,event,synth" + options).out);
  EXPECT_EQ(sorted(read_file(path("perf.out"))), own);
  EXPECT_GT(std::ranges::count_if(own, [](const auto& l) { return l.find("psb offs") != l.npos; }), 5);
  EXPECT_GT(std::ranges::count_if(own, [](const auto& l) { return l.find("trace error") != l.npos; }), 0);
}

// Each kind with the bits of its packet, as perf reads them.
TEST_F(Inject, RawDataOfEachEvent) {
  const auto capture = open_capture(ASOF_TEST_DATA "/demo/perf.data", {});
  ASSERT_TRUE(capture);
  ScriptItrace itrace;
  itrace.ptwrite = itrace.power = true;
  const auto events = synthesised_events(itrace, 0, "");
  PerfDataFile file(path("out.data"), *capture->perf, events);
  ASSERT_TRUE(file.begin());
  SampleWriter writer(*capture, itrace, events, {}, file);
  using Kind = ScriptRecord::Kind;
  struct {
    Kind kind;
    uint64_t a, b;
    Addr ip;
  } const kinds[] = {{Kind::kPtwrite, 0x123456789abcdef0, 0, 0x401000},
                     {Kind::kPtwrite, 7, 0, 0},
                     {Kind::kMwait, 0x60, 1, 0x401000},
                     {Kind::kPwre, 6, 0x102, 0},
                     {Kind::kPwre, 3, 0x00f, 0},
                     {Kind::kExstop, 0, 0, 0x401000},
                     {Kind::kExstop, 0, 0, 0},
                     {Kind::kPwrx, 6, 0x207, 0},
                     {Kind::kCbr, 31, 0, 0},
                     {Kind::kPsb, 0x1234, 0, 0}};
  std::vector<std::string> want;
  Time time = 6'000'000'000;
  for (const auto& k : kinds) {
    ScriptRecord r;
    r.kind = k.kind;
    r.a = k.a;
    r.b = k.b;
    r.ip = k.ip;
    r.time = ++time;
    r.pid = r.tid = r.cpu = 0;
    std::string bytes;
    r.append_to(bytes);
    writer.take(bytes);
    const std::string text = synth_text(*capture, r);
    want.push_back(
        fmt::format("{}:{}", script_event_name(k.kind), text.substr(0, text.find_last_not_of(' ') + 1)));
  }
  EXPECT_EQ(writer.samples(), std::size(kinds));
  ASSERT_TRUE(file.finish());
  std::vector<std::string> got;
  for (std::string line : lines_of(perf("script -i " + path("out.data") + " -F event,synth"))) {
    line = line.substr(line.find_first_not_of(' '));
    got.push_back(
        std::regex_replace(line.substr(0, line.find_last_not_of(' ') + 1), std::regex(":  "), ": "));
  }
  EXPECT_EQ(got, want);
}

TEST(InjectOptions, WhatIsNoSampleIsRefused) {
  const Ran quick = run_asof("inject --itrace iq -o /dev/null " + kDemo);
  EXPECT_EQ(quick.status, 1);
  EXPECT_NE(quick.err.find("letter 'q' is not taken"), std::string::npos) << quick.err;
  const Ran letters = run_asof("inject --itrace e -o /dev/null " + kDemo);
  EXPECT_EQ(letters.status, 1);
  EXPECT_NE(letters.err.find("nothing to make samples of"), std::string::npos) << letters.err;
  EXPECT_EQ(run_asof("inject " + kDemo).status, 1) << "no file named";
  const TempDir dir;
  const Ran taken =
      run_asof("inject --itrace bGA -o " + std::string(dir.path() / "taken.data") + " " + kDemo);
  EXPECT_EQ(taken.status, 0);
  EXPECT_NE(taken.err.find("o, I, G, L and Z change nothing"), std::string::npos) << taken.err;
  EXPECT_NE(taken.err.find("A changes nothing"), std::string::npos) << taken.err;
  const std::string blocks = dir.path() / "x.blocks";
  ASSERT_EQ(run_asof("decode --format blocks -o " + blocks + " " + kDemo).status, 0);
  const Ran r = run_asof("inject -o " + std::string(dir.path() / "out.data") + " " + blocks);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("has no records of perf"), std::string::npos) << r.err;
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "out.data"));
}

}  // namespace
}  // namespace asof::test
