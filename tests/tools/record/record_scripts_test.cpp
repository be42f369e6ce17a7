// record-pt and record-cs on machines that each lack one thing: they report it, with the exit status, before
// anything is recorded. The machine is made of files, and perf, uname and id are programs of the test: no
// such hardware is needed, and this does not prove that any works.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <ostream>

#include "tests/support/perf_data_writer.h"
#include "tests/tools/record/fake_machine.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

TEST(RecordScripts, ShellcheckFindsNothing) {
  if (std::system("shellcheck --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "shellcheck is not installed";
  EXPECT_EQ(
      std::system("cd " ASOF_RECORD "/../.. && shellcheck -x tools/record/lib.sh tools/record/record-pt "
                  "tools/record/record-cs"),
      0);
}

// Neither perf nor the watcher outlives the script, and nothing is packed.
TEST(RecordScripts, ASignalEndsPerfAndTheWatcher) {
  for (const bool arm64 : {false, true}) {
    for (const char* signal : {"TERM", "HUP"}) {
      FakeMachine m(arm64);
      m.endless_programs();
      EXPECT_EQ(m.run_and_stop(signal), 4) << read_file(m.dir.path() / "stderr");
      EXPECT_NE(m.log().find("perf ended"), std::string::npos) << m.log();
      EXPECT_NE(m.log().find("watcher ended"), std::string::npos) << m.log();
      EXPECT_FALSE(fs::exists(m.dir.path() / "out.asof.tar.zst"));
    }
  }
}

TEST(RecordScripts, UsageErrorsExitWith1) {
  for (const bool arm64 : {false, true}) {
    const FakeMachine m(arm64);
    for (const char* wrong : {"", "--nonsense", "--seconds 3", "-o"})
      EXPECT_EQ(m.run(wrong).status, 1) << wrong;
    EXPECT_EQ(m.run("--help").status, 0);
  }
}

TEST(RecordScripts, NothingIsMissingOnAWholeMachine) {
  for (const bool arm64 : {false, true}) {
    const FakeMachine m(arm64);
    const Ran ran = m.run("--check");
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_EQ(ran.out.find("MISSING"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("0 missing, 0 warnings"), std::string::npos) << ran.out;
    EXPECT_EQ(m.log(), "") << "nothing was recorded";
  }
}

// As on Linux 6.1.
TEST(RecordScripts, KallsymsWithoutTextIsEnough) {
  FakeMachine m(true);
  m.text("proc/kallsyms", "ffff800008010000 T _stext\nffff800008000000 t arch_jump_label_transform_queue\n");
  const Ran ran = m.run("--check");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("ok       kallsyms     _stext is at ffff800008010000"), std::string::npos)
      << ran.out;
}

struct Prerequisite {
  const char* name;
  bool arm64;
  void (*change)(FakeMachine&);
  const char* line;   // how the line begins
  const char* words;  // that the line contains
  int status = 2;     // 0: only a warning
};
void PrintTo(const Prerequisite& p, std::ostream* out) { *out << p.name; }

class MissingPrerequisite : public ::testing::TestWithParam<Prerequisite> {};

TEST_P(MissingPrerequisite, IsReported) {
  const Prerequisite& missing = GetParam();
  FakeMachine m(missing.arm64);
  missing.change(m);
  for (const char* arguments : {"--check", "-o out --seconds 1"}) {
    if (missing.status == 0 && std::string(arguments) != "--check") continue;
    const Ran ran = m.run(arguments);
    EXPECT_EQ(ran.status, missing.status) << ran.out << ran.err;
    const auto lines = lines_of(ran.out);
    const bool reported = std::ranges::any_of(lines, [&](const std::string& line) {
      return line.starts_with(missing.line) && line.find(missing.words) != std::string::npos;
    });
    EXPECT_TRUE(reported) << ran.out << ran.err;
    EXPECT_EQ(m.log().find("record"), std::string::npos) << "nothing may be recorded: " << m.log();
  }
}

const Prerequisite kPrerequisites[] = {
    {"other_machine", false, [](FakeMachine& m) { m.program("uname", "echo riscv64"); }, "MISSING  machine",
     "riscv64"},
    {"no_perf", false, [](FakeMachine& m) { m.program("perf", "exit 127"); }, "MISSING  perf", "understood"},
    {"old_perf", false, [](FakeMachine& m) { m.perf("5.4.86"); }, "MISSING  perf",
     "version 5.4.86 is too old: 5.9"},
    {"perf_without_kcore", false, [](FakeMachine& m) { m.perf("6.1.187", false); }, "MISSING  perf",
     "without --kcore"},
    {"no_permission", false, [](FakeMachine& m) { m.program("id", "echo 1000"); }, "MISSING  permission",
     "perf_event_paranoid is 2"},
    {"lockdown", false,
     [](FakeMachine& m) { m.text("sys/kernel/security/lockdown", "none integrity [confidentiality]\n"); },
     "MISSING  lockdown", "locked down"},
    {"lockdown_integrity", false,
     [](FakeMachine& m) { m.text("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"); },
     "warn     lockdown", "integrity", 0},
    {"no_pt", false,
     [](FakeMachine& m) {
       m.remove_pmu("intel_pt");
       m.text("proc/cpuinfo", "flags : fpu tsc\n");
     },
     "MISSING  intel_pt", "this CPU has no Intel PT"},
    {"pt_hidden", false, [](FakeMachine& m) { m.remove_pmu("intel_pt"); }, "MISSING  intel_pt",
     "the CPU has Intel PT, but"},
    {"no_topa", false, [](FakeMachine& m) { m.pmu("intel_pt/caps/topa_output", "0\n"); }, "MISSING  topa",
     "topa_output"},
    {"one_region", false, [](FakeMachine& m) { m.pmu("intel_pt/caps/topa_multiple_entries", "0\n"); },
     "warn     topa", "one output region", 0},
    {"no_mtc", false, [](FakeMachine& m) { m.pmu("intel_pt/caps/mtc", "0\n"); }, "warn     timing", "no MTC",
     0},
    {"other_clock", false,
     [](FakeMachine& m) {
       m.text("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
     },
     "MISSING  clock", "hpet"},
    {"no_kcore", false, [](FakeMachine& m) { m.remove("proc/kcore"); }, "MISSING  kcore",
     "CONFIG_PROC_KCORE"},
    {"kcore_unreadable", false, [](FakeMachine& m) { m.text("proc/kcore", ""); }, "MISSING  kcore",
     "cannot be read"},
    {"hidden_addresses", false, [](FakeMachine& m) { m.text("proc/kallsyms", "0000000000000000 T _text\n"); },
     "MISSING  kallsyms", "kptr_restrict"},
    {"no_kallsyms", false, [](FakeMachine& m) { m.remove("proc/kallsyms"); }, "MISSING  kallsyms",
     "CONFIG_KALLSYMS"},
    {"no_text_poke", false, [](FakeMachine& m) { m.program("watch", "echo 0 TEXT_POKE records; exit 4"); },
     "MISSING  text_poke", "writes no record when a static key is flipped"},
    {"no_events", false, [](FakeMachine& m) { m.program("watch", "echo watch: no permission >&2; exit 2"); },
     "MISSING  text_poke", "no permission"},
    {"no_key", false, [](FakeMachine& m) { m.program("watch", "echo watch: no key >&2; exit 5"); },
     "warn     text_poke", "not tested: no key", 0},
    {"no_workload", false, [](FakeMachine& m) { m.program("toggle", "exit 2"); }, "warn     workload",
     "nothing", 0},
    {"arm_other_machine", true, [](FakeMachine& m) { m.program("uname", "echo x86_64"); }, "MISSING  machine",
     "x86_64"},
    {"no_cs_etm", true, [](FakeMachine& m) { m.remove_pmu("cs_etm"); }, "MISSING  cs_etm",
     "CONFIG_CORESIGHT"},
    {"no_units", true,
     [](FakeMachine& m) {
       m.remove_pmu("cs_etm/cpu0");
       m.remove_pmu("cs_etm/cpu1");
     },
     "MISSING  cs_etm", "no trace unit"},
    {"some_units", true, [](FakeMachine& m) { m.remove_pmu("cs_etm/cpu1"); }, "warn     cs_etm",
     "1 of 2 CPUs", 0},
    {"no_sink", true, [](FakeMachine& m) { m.remove_pmu("cs_etm/sinks/tmc_etr0"); }, "MISSING  sink",
     "no sink"},
    {"no_timestamps", true, [](FakeMachine& m) { m.pmu("cs_etm/cpu1/trcidr/trcidr0", "0x00000ea1\n"); },
     "MISSING  timestamps", "1 of 2 trace units"},
    {"no_timestamp_option", true, [](FakeMachine& m) { m.remove_pmu("cs_etm/format/timestamp"); },
     "MISSING  timestamps", "option"},
    {"no_ts_source", true, [](FakeMachine& m) { m.remove_pmu("cs_etm/cpu0/ts_source"); },
     "warn     ts_source", "derived from AUX records", 0},
    {"no_ts_source_of_ete", true,
     [](FakeMachine& m) {
       m.remove_pmu("cs_etm/cpu0/ts_source");
       m.pmu("cs_etm/cpu0/mgmt/trcdevarch", "0x47705a13\n");
     },
     "ok       ts_source", "virtual counter", 0},
    {"other_ts_source_of_ete", true,
     [](FakeMachine& m) {
       m.pmu("cs_etm/cpu0/ts_source", "3\n");
       m.pmu("cs_etm/cpu0/mgmt/trcdevarch", "0x47705a13\n");
     },
     "warn     ts_source", "derived from AUX records", 0},
    {"trace_ids_twice", true,
     [](FakeMachine& m) { m.text("sys/bus/coresight/devices/etm1/mgmt/trctraceid", "0x10\n"); },
     "MISSING  trace-ids", "one ID twice"},
    {"trace_id_zero", true,
     [](FakeMachine& m) { m.text("sys/bus/coresight/devices/etm1/mgmt/trctraceid", "0x0\n"); },
     "MISSING  trace-ids", "no ID"},
    {"perf_without_hw_ids", true,
     [](FakeMachine& m) {
       m.program("uname", "case $1 in -m) echo aarch64;; *) echo 6.6.0;; esac");
       m.perf("6.1.187");
     },
     "MISSING  trace-ids", "6.2 does"},
    {"no_tracefs", true, [](FakeMachine& m) { m.remove("sys/kernel/tracing"); }, "MISSING  probes",
     "kprobe_events"},
    {"no_transform", true, [](FakeMachine& m) { m.text("proc/kallsyms", "ffff800008000000 T _text\n"); },
     "MISSING  probes", "arch_jump_label_transform"},
    {"arm_no_kcore", true, [](FakeMachine& m) { m.remove("proc/kcore"); }, "MISSING  kcore",
     "CONFIG_PROC_KCORE"},
    {"arm_lockdown", true,
     [](FakeMachine& m) { m.text("sys/kernel/security/lockdown", "none integrity [confidentiality]\n"); },
     "MISSING  lockdown", "locked down"},
};
INSTANTIATE_TEST_SUITE_P(FakeMachine, MissingPrerequisite, ::testing::ValuesIn(kPrerequisites),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RecordScripts, AllThatIsMissingIsListedAtOnce) {
  FakeMachine m(false);
  m.remove("proc/kcore");
  m.remove_pmu("intel_pt");
  m.program("id", "echo 1000");
  const Ran ran = m.run("--check");
  EXPECT_EQ(ran.status, 2);
  for (const char* line : {"MISSING  kcore", "MISSING  intel_pt", "MISSING  permission", "3 missing"})
    EXPECT_NE(ran.out.find(line), std::string::npos) << line << '\n' << ran.out;
}

// A trace buffer is one CPU's, and perf refuses to record all CPUs into it.
TEST(RecordScripts, ATraceBufferIsNotNamed) {
  FakeMachine m(true);
  for (const char* cpu : {"0", "1"}) m.pmu(fmt::format("cs_etm/sinks/trbe{}", cpu), "0x1\n");
  const Ran ran = m.run("-o out --no-validate");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err << m.log();
  EXPECT_NE(ran.out.find("ok       sink         trbe0"), std::string::npos) << ran.out;
  EXPECT_NE(m.log().find("-e cs_etm/timestamp=1/k "), std::string::npos) << m.log();
}

// Nothing is traced here: a program that copies the demo replaces perf. What the script does around it is
// real: watcher, second kcore, archive, validation.
TEST(RecordScripts, RecordsPacksAndValidates) {
  for (const bool arm64 : {false, true}) {
    const FakeMachine m(arm64);
    const std::string symfs = arm64 ? "" : "cp -r " ASOF_TEST_DATA "/demo/symfs out/";
    const Ran ran =
        m.run("-o out --seconds 1 --seed 7" + std::string(arm64 ? "" : " -- sh -c '" + symfs + "'"));
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err << m.log();
    EXPECT_TRUE(fs::exists(m.dir.path() / "out.asof.tar.zst")) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("verdict: pass"), std::string::npos) << ran.out;
    for (const char* name : {"data", "kcore_dir/kcore", "kcore.end", "kallsyms.end"})
      EXPECT_TRUE(fs::exists(m.dir.path() / "out/perf.data" / name)) << name;
    EXPECT_FALSE(fs::exists(m.dir.path() / "out/end.data"));
    const std::string log = m.log();
    EXPECT_NE(log.find("watching -o out/ksym_text.bin"), std::string::npos) << log;
    EXPECT_LT(log.find("rings are open"), log.find("perf record")) << log;
    if (arm64) {
      EXPECT_NE(log.find("-e cs_etm/@tmc_etr0,timestamp=1/k -e kprobes:jl -e kprobes:jlr"), std::string::npos)
          << log;
      EXPECT_NE(log.find("toggled --seconds 1 --seed 7"), std::string::npos) << log;
      const std::string probes = read_file(m.root() / "sys/kernel/tracing/kprobe_events");
      EXPECT_NE(probes.find("p:kprobes/jl arch_jump_label_transform_queue code=+0(%x0):s32"),
                std::string::npos)
          << probes;
      EXPECT_TRUE(probes.ends_with("-:kprobes/jlr\n-:kprobes/jl\n")) << "probes must be removed: " << probes;
    } else {
      EXPECT_NE(log.find("-e intel_pt/tsc=1,mtc=1,mtc_period=3/k"), std::string::npos) << log;
    }
  }
}

TEST(RecordScripts, FailuresOfRecordingAreReported) {
  FakeMachine m(false);
  m.program(
      "perf",
      "case \"$1 $2\" in 'version '*) echo perf version 6.5;; 'record -h') echo --kcore;; *) exit 23;; esac");
  const Ran failed = m.run("-o out --seconds 1");
  EXPECT_EQ(failed.status, 4);
  EXPECT_NE(failed.err.find("perf record ended with status 23"), std::string::npos) << failed.err;
  // A capture that validation refuses: its kcore has other code.
  FakeMachine damaged(false);
  const fs::path data = damaged.dir.path() / "demo";
  fs::copy(ASOF_TEST_DATA "/demo/perf.data", data, fs::copy_options::recursive);
  const auto size = fs::file_size(data / "kcore_dir/kcore");
  std::vector<uint8_t> kcore = read_bytes(data / "kcore_dir/kcore");
  std::fill(kcore.begin() + static_cast<long>(size / 2), kcore.end(), uint8_t{0x90});
  write_bytes(data / "kcore_dir/kcore", kcore);
  damaged.data = data.string();
  damaged.perf("6.5.1");
  EXPECT_EQ(damaged.run("-o out --seconds 1").status, 3);
}

// asof record runs the script of the machine that it is on.
TEST(RecordVerb, DoesWhatTheScriptDoes) {
  utsname here{};
  ASSERT_EQ(::uname(&here), 0);
  const std::string arch = here.machine;
  if (arch != "x86_64" && arch != "aarch64") GTEST_SKIP() << "nothing is recorded on " << arch;
  const FakeMachine m(arch == "aarch64");
  const std::string verb = ASOF_BINARY " record";
  const Ran check = m.run_program(verb, "--check"), script = m.run("--check");
  EXPECT_EQ(check.status, script.status) << check.err;
  EXPECT_EQ(check.out, script.out);
  EXPECT_EQ(check.status, 0) << check.out;
  const Ran recorded = m.run_program(verb, "-o out --seconds 2 --seed 7 --no-validate");
  EXPECT_EQ(recorded.status, 0) << recorded.out << recorded.err;
  EXPECT_NE(m.log().find("--seconds 2"), std::string::npos) << m.log();
  EXPECT_NE(m.log().find("--seed 7"), std::string::npos) << m.log();
  EXPECT_TRUE(fs::exists(m.dir / "out.asof.tar.zst"));
  const Ran command = m.run_program(verb, "-o other --no-validate -- sh -c 'echo own command >>$LOG'");
  EXPECT_EQ(command.status, 0) << command.out << command.err;
  EXPECT_NE(m.log().find("own command"), std::string::npos) << m.log();
  const Ran nowhere = m.run_program(verb, "");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_NE(nowhere.err.find("E-FILE-091"), std::string::npos) << nowhere.err;
}

}  // namespace
}  // namespace asof::test
