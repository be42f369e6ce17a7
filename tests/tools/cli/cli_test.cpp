// The command line: exit status, usage errors, and what every verb prints for the demo capture.
#include <nlohmann/json.hpp>

#include <regex>
#include <set>

#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

TEST(Cli, UsageErrorsExitWith1) {
  for (const char* arguments :
       {"", "--bogus", "decode --bogus x", "decode a b", "report --fields ip", "decode -F nonsense x",
        "decode --itrace q x", "decode --time 2,1 x", "decode --addr-range 5 x", "decode -C x x",
        "decode -j 0 x", "decode --format xml x", "decode --text-at never x", "validate --min-coverage 101 x",
        "text", "text @ -i x", "errors --explain E-NONE-001", "digest --color red x"}) {
    const Ran r = run_asof(arguments);
    EXPECT_EQ(r.status, 1) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_NE(r.err, "") << arguments;
  }
}

TEST(Cli, HelpAndVersion) {
  for (const char* arguments : {"--help", "decode --help", "help report", "version", "errors"}) {
    const Ran r = run_asof(arguments);
    EXPECT_EQ(r.status, 0) << arguments;
    EXPECT_NE(r.out, "") << arguments;
    EXPECT_EQ(r.err, "") << arguments;
  }
  EXPECT_TRUE(run_asof("version").out.starts_with("asof "));
}

// Every verb: what cannot be written was not done.
TEST(Cli, FullDiskIsAnErrorOfEveryVerb) {
  const std::string demo = std::string(ASOF_TEST_DATA) + "/demo/perf.data";
  const std::string symfs = " --symfs " + std::string(ASOF_TEST_DATA) + "/demo/symfs";
  for (const std::string& arguments :
       {"decode " + demo, "report -i " + demo, "digest " + demo, "events " + demo, "doctor " + demo,
        "validate " + demo, "stacks " + demo, "branches " + demo, "timeline --format chrome -o - " + demo,
        "diff " + demo + " " + demo, "text update_process_times -i " + demo, "query " + demo + " 'select 1'",
        std::string("errors"), std::string("version"), std::string("completion bash"), std::string("--help"),
        std::string("decode --help")}) {
    const bool reads = arguments.find(demo) != std::string::npos;
    const Ran r = run_asof(arguments + (reads ? symfs : "") + " >/dev/full");
    EXPECT_EQ(r.status, 2) << arguments << r.err;
    EXPECT_NE(r.err.find("E-FILE-"), std::string::npos) << arguments << r.err;
    EXPECT_NE(r.err.find("cannot write"), std::string::npos) << arguments << r.err;
  }
}

TEST(Cli, UnusableInputExitsWith2AndOneLine) {
  for (const char* verb : {"", "decode", "report", "digest", "events", "text main -i"}) {
    const Ran r = run_asof(std::string(verb) + " /nowhere/perf.data");
    EXPECT_EQ(r.status, 2) << verb;
    EXPECT_TRUE(std::regex_search(r.err, std::regex("^E-FILE-[0-9]{3} .*/nowhere/perf.data"))) << r.err;
  }
  EXPECT_EQ(run_asof("decode " + kDemo + " -o /nowhere/out").status, 2);
  EXPECT_EQ(run_asof("validate " + kDemo + " --truth /nowhere").status, 2);
  EXPECT_EQ(run_asof("text no_such_function -i " + kDemo).status, 2);
}

TEST(Cli, MissingTextExitsWith5) {
  // Without kcore and files only BPF images are left, and at the first instant no program was loaded yet.
  const TempDir dir;
  std::filesystem::copy(ASOF_TEST_DATA "/demo/perf.data/data", dir.path() / "perf.data");
  const Ran r = run_asof("decode --text-at first " + (dir.path() / "perf.data").string());
  EXPECT_EQ(r.status, 5) << r.err.substr(0, 400);
  EXPECT_NE(r.err.find("E-TEXT-"), std::string::npos);
  const std::string file = (dir.path() / "perf.data").string();
  for (const std::string verb :
       {"digest", "report", "branches", "stacks", "timeline -o /dev/null --format chrome",
        "query \"SELECT count(*) FROM gaps\" -i"})
    EXPECT_EQ(run_asof(verb + " " + file + " --text-at first").status, 5) << verb;
  const std::string whole = ASOF_TEST_DATA "/demo/perf.data";
  for (const std::string rows : {"functions", "calls"}) {
    EXPECT_EQ(run_asof("diff --text-at first --rows " + rows + " " + whole + " " + file).status, 5) << rows;
    EXPECT_EQ(run_asof("diff --rows " + rows + " " + whole + " " + whole).status, 0) << rows;
  }
}

TEST(Cli, StrictAndMaxErrorsExitWith3) {
  const std::string wrong = kDemo + " --text-at first -q";
  EXPECT_EQ(run_asof("digest " + wrong).status, 0);
  EXPECT_EQ(run_asof("digest --strict " + wrong).status, 3);
  EXPECT_EQ(run_asof("digest --max-errors 5 " + wrong).status, 3);
  EXPECT_EQ(run_asof("report --max-errors 5 " + wrong).status, 3);
  EXPECT_EQ(run_asof("decode --strict " + kDemo).status, 0) << "the demo has a loss, but no error";
}

TEST(Cli, ClosedPipeEndsQuietly) {
  const Ran r = run_asof("decode " + kDemo, "| head -n 1");
  EXPECT_EQ(lines_of(r.out).size(), 1u);
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err.find("rror"), std::string::npos) << r.err;
}

TEST(Cli, OutputIsTheSameForEveryNumberOfThreads) {
  for (const std::string options :
       {"decode",
        "decode -F pid,tid,cpu,time,ip,sym,symoff,dso,insn,insnlen,disasm,flags,textver,textsrc,conf "
        "--itrace ibcrexwp",
        "decode --format jsonl -F +textver,+conf --itrace ibe", "decode --text-at first --itrace ie",
        "digest --fnv", "report", "validate --truth " ASOF_TEST_DATA "/demo/truth --format json"}) {
    const Ran one = run_asof(options + " -j1 " + kDemo);
    EXPECT_NE(one.out, "");
    for (const char* jobs : {" -j2 ", " -j5 "}) {
      const Ran more = run_asof(options + jobs + kDemo);
      EXPECT_EQ(more.status, one.status) << options;
      EXPECT_TRUE(more.out == one.out) << options << jobs;
    }
    // Small limits of memory change when things are written, not what.
    EXPECT_TRUE(run_asof(options + " -j2 --max-mem 10kb " + kDemo).out == one.out) << options;
  }
}

TEST(Cli, DecodePrintsEveryInstructionInOrderOfTime) {
  const Ran digest = run_asof("digest -q " + kDemo);
  std::smatch total;
  ASSERT_TRUE(
      std::regex_search(digest.out, total, std::regex("total instructions ([0-9]+) branches ([0-9]+)")));
  const auto lines = lines_of(run_asof("decode -q -F time,ip --ns " + kDemo).out);
  EXPECT_EQ(lines.size(), std::stoul(total[1]));
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end(), [](const std::string& a, const std::string& b) {
    return a.substr(0, a.find(':')) < b.substr(0, b.find(':'));
  }));
}

TEST(Cli, JsonLinesAreJson) {
  const auto lines =
      lines_of(run_asof("decode -q --format jsonl --itrace ibewp -F +disasm,+textsrc,+flags " + kDemo).out);
  std::set<std::string> types;
  ASSERT_GT(lines.size(), 1000u);
  for (const std::string& line : lines) {
    const auto d = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(d.is_discarded()) << line;
    types.insert(d["type"].get<std::string>());
  }
  EXPECT_TRUE(types.contains("instruction"));
  EXPECT_TRUE(types.contains("branch"));
  EXPECT_TRUE(types.contains("psb"));
}

TEST(Cli, FiltersTakeAway) {
  const auto ips = [](const std::string& options) {
    return lines_of(run_asof("decode -q -F cpu,time,ip,sym " + options + " " + kDemo).out);
  };
  const auto all = ips("");
  for (const auto& [option, pattern] : {std::pair{"-C 1", "\\[001\\]"},
                                        {"-S vfs_read", " vfs_read$"},
                                        {"--addr-range 401000-401fff", " 401[0-9a-f]{3} "},
                                        {"--time 6.00005,6.000059999", "6\\.00005[0-9]:"}}) {
    const auto some = ips(option);
    EXPECT_GT(some.size(), 0u) << option;
    EXPECT_LT(some.size(), all.size()) << option;
    const std::regex want(pattern);
    for (const std::string& line : some) ASSERT_TRUE(std::regex_search(line, want)) << option << ": " << line;
    const auto matching = std::count_if(all.begin(), all.end(),
                                        [&](const std::string& l) { return std::regex_search(l, want); });
    EXPECT_EQ(static_cast<size_t>(matching), some.size()) << option;
  }
  EXPECT_EQ(ips("-C 0").size() + ips("-C 1").size(), all.size());
  EXPECT_EQ(ips("--time 0%-100%").size(), all.size());
  EXPECT_EQ(ips("-S no_such_function").size(), 0u);
}

TEST(Cli, TextVersionsFollowTheStaticKey) {
  const auto pokes = lines_of(run_asof("events --type TEXT_POKE " + kDemo).out);
  ASSERT_EQ(pokes.size(), 10u);
  std::smatch site;
  ASSERT_TRUE(std::regex_search(pokes[0], site, std::regex("0x(ffffffff[0-9a-f]{8})")));
  const Ran diff = run_asof("text " + site[1].str() + " --length 5 --diff -i " + kDemo);
  EXPECT_NE(diff.out.find("nop dword ptr"), std::string::npos) << diff.out;
  EXPECT_NE(diff.out.find("<poke #1>"), std::string::npos) << diff.out;
  EXPECT_EQ(std::count(diff.out.begin(), diff.out.end(), '@'), 2) << diff.out;
  const Ran versions = run_asof("text " + site[1].str() + " --length 5 -i " + kDemo);
  EXPECT_NE(versions.out.find("v3"), std::string::npos) << versions.out;
  // The same three versions are what decode saw there.
  const std::string range = site[1].str() + "-" + site[1].str();
  std::set<std::string> seen;
  for (const std::string& line :
       lines_of(run_asof("decode -q -F ip,textver,textsrc --addr-range " + range + " " + kDemo).out)) {
    seen.insert(line.substr(line.find(" v")));
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(Cli, EventsAreInOrderOfTime) {
  const auto lines = lines_of(run_asof("events " + kDemo).out);
  ASSERT_GT(lines.size(), 100u);
  double last = -1;
  for (const std::string& line : lines) {
    const double t = line.find(" - ") < 20 ? -1 : std::stod(line);
    EXPECT_GE(t, last) << line;
    last = t;
  }
}

TEST(Cli, ReportEndsWithTheCoverageLine) {
  const Ran r = run_asof("report " + kDemo);
  const std::regex line(
      "decoded [0-9]+\\.[0-9]{2} % of traced time \\([0-9 ]+ gaps?, [0-9.]+ [mun]?s\\), [0-9 ]+ "
      "instructions, "
      "10 pokes, 2 BPF programs, 0 errors");
  EXPECT_TRUE(std::regex_match(lines_of(r.out).back(), line)) << lines_of(r.out).back();
  EXPECT_NE(r.out.find("loss: cpu 1"), std::string::npos) << r.out;
}

TEST(Cli, ValidateTellsRightFromWrong) {
  const std::string truth = " --truth " ASOF_TEST_DATA "/demo/truth -q --format json";
  const auto count = [](const Ran& r, const char* key) {
    uint64_t sum = 0;
    const auto doc = nlohmann::json::parse(r.out);
    for (const auto& cpu : doc["cpus"]) sum += cpu[key].get<uint64_t>();
    return sum;
  };
  const Ran asof = run_asof("validate " + kDemo + truth);
  EXPECT_EQ(asof.status, 0) << asof.out;
  EXPECT_EQ(count(asof, "wrong") + count(asof, "missing"), 0u);
  EXPECT_GT(count(asof, "right"), 10'000u);
  for (const char* mode : {"first", "last"}) {
    const Ran r = run_asof("validate " + kDemo + truth + " --text-at " + mode);
    EXPECT_EQ(r.status, 3) << mode;
    EXPECT_GT(count(r, "wrong"), 100u) << mode;
    EXPECT_EQ(count(r, "right") + count(r, "missing"), count(asof, "right"))
        << "nothing of the truth is left out";
  }
}

TEST(Cli, DigestOfRealAndSimulatedTrace) {
  SKIP_WITHOUT(shared("captures/pt-work-1round"));
  for (const char* jobs : {"-j1", "-j2"}) {
    EXPECT_NE(run_asof(std::string("digest ") + jobs + " " + shared("captures/pt-work-1round/bundle.json"))
                  .out.find("total instructions 11456202 branches 2503101 ip_hash e85fd1133b7c6c9d"),
              std::string::npos);
  }
  EXPECT_NE(
      run_asof("digest --fnv " + shared("corpus/griffin-hello/bundle.json")).out.find("instructions 147458 "),
      std::string::npos);
  EXPECT_NE(run_asof("digest --fnv " + shared("corpus/griffin-hello/bundle.json"))
                .out.find("ip_fnv1a64 b59bbe3902eec968"),
            std::string::npos);
}

TEST(Cli, ValidateBoardCapture) {
  const std::string board = shared("captures/x86-board-small");
  SKIP_WITHOUT(board);
  const std::string common = "validate " + board + "/perf.data --truth " + board + "/truth --kcore-end " +
                             board + "/kcore.end --ksym-text " + board + "/ksym_text.bin";
  const Ran right = run_asof(common);
  EXPECT_EQ(right.status, 0) << right.out << right.err;
  const Ran wrong = run_asof(common + " --text-at last -q");
  EXPECT_EQ(wrong.status, 3) << wrong.out;
}

}  // namespace
}  // namespace asof::test
