// What a recording has switched on is put back, whichever part of it is killed: by itself, by its guardian, by the next one
// or by `restore`. And names of files are names, whatever a shell would make of them.
#include <map>

#include "tests/tools/record/fake_machine.h"

namespace asof::test {
namespace {

// Shell commands on the machine; the variables are those of FakeMachine::run. What they end with.
int in_shell(const FakeMachine& m, const std::string& commands) {
  write_file_of_machine(
      m.dir.path() / "commands",
      fmt::format("set -u\ncd {0}\nexport PATH={0}/bin:$PATH LOG={0}/log RECORD_ROOT={0}/root "
                  "RECORD_TOOLS={0}/bin ASOF=" ASOF_BINARY "\nscript=" ASOF_RECORD
                  "/{1}\nprobes={0}/root/sys/kernel/tracing/kprobe_events\n{2}\n",
                  m.dir.path().string(), m.arm64 ? "record-cs" : "record-pt", commands));
  return WEXITSTATUS(std::system(
      fmt::format("bash {0}/commands >{0}/stdout 2>{0}/stderr </dev/null", m.dir.path().string()).c_str()));
}
std::string said(const FakeMachine& m) {
  return read_file(m.dir.path() / "stdout") + read_file(m.dir.path() / "stderr") + m.log();
}
std::string probes(const FakeMachine& m) { return read_file(m.root() / "sys/kernel/tracing/kprobe_events"); }
// Whether nothing is written down any more.
bool all_done(const FakeMachine& m) {
  for (const auto& e : fs::directory_iterator(m.root() / "run/asof-record")) {
    if (e.path().filename() != "lock") return false;
  }
  return true;
}
constexpr const char* kRecord =
    "\"$script\" -o out & record=$!; until grep -qs begun \"$LOG\"; do sleep 0.05; done\n";
constexpr const char* kRemoved = "-:kprobes/jlr\n-:kprobes/jl\n";

TEST(RecordRestore, AKilledScriptLeavesNothing) {
  FakeMachine m(true);
  m.endless_programs();
  // perf and the watcher are not ended by the script: only the guardian is left.
  EXPECT_EQ(in_shell(m, std::string(kRecord) +
                            "kill -KILL $record; wait $record\n"
                            "until grep -q -- '-:kprobes/jl$' \"$probes\"; do sleep 0.05; done\n"
                            "until ! ls root/run/asof-record | grep -q recording; do sleep 0.05; done\n"
                            "grep -q 'perf ended' \"$LOG\" && grep -q 'watcher ended' \"$LOG\""),
            0)
      << said(m);
  EXPECT_TRUE(probes(m).ends_with(kRemoved)) << probes(m);
  EXPECT_TRUE(all_done(m));
}

TEST(RecordRestore, SoDoesOneThatIsInterrupted) {
  for (const char* signal : {"INT", "TERM", "HUP"}) {
    FakeMachine m(true);
    m.endless_programs();
    // A shell without job control lets its background jobs ignore SIGINT.
    EXPECT_EQ(in_shell(m, std::string("set -m\n") + kRecord + "kill -" + signal + " $record; wait $record"),
              4)
        << said(m);
    EXPECT_TRUE(probes(m).ends_with(kRemoved)) << probes(m);
    EXPECT_TRUE(all_done(m));
  }
}

// Script and guardian killed together: the next recording begins by putting back, and so does --restore.
TEST(RecordRestore, WhatAKilledGuardianLeavesTheNextPutsBack) {
  for (const char* next :
       {"\"$script\" --restore", "PERF=false \"$script\" -o again || true; \"$script\" --restore"}) {
    FakeMachine m(true);
    m.endless_programs();
    EXPECT_EQ(in_shell(m, std::string(kRecord) +
                              "guard=$(basename root/run/asof-record/recording.* | tr -dc 0-9)\n"
                              "kill -STOP $guard; kill -KILL $record; wait $record; kill -KILL $guard\n"
                              "while kill -0 $guard 2>/dev/null; do sleep 0.05; done\n"
                              "grep -q -- '-:kprobes' \"$probes\" && exit 9\n" +
                              next),
              0)
        << said(m);
    EXPECT_TRUE(probes(m).ends_with(kRemoved)) << probes(m);
    EXPECT_TRUE(all_done(m));
    EXPECT_NE(m.log().find("perf ended"), std::string::npos) << m.log();
  }
}

// The guardian alone is killed: the script itself puts back, at its end.
TEST(RecordRestore, AKilledGuardianIsNoLoss) {
  FakeMachine m(true);
  m.endless_programs();
  EXPECT_EQ(in_shell(m, std::string(kRecord) +
                            "kill -KILL $(basename root/run/asof-record/recording.* | tr -dc 0-9)\n"
                            "kill -TERM $record; wait $record"),
            4)
      << said(m);
  EXPECT_TRUE(probes(m).ends_with(kRemoved)) << probes(m);
  EXPECT_TRUE(all_done(m));
}

// The workload: switches of every kind that is a file, each put back only if it is as the workload left it.
TEST(RecordRestore, AKilledWorkloadIsPutBack) {
  FakeMachine m(false);
  const std::map<std::string, std::string> files = {
      {"proc/sys/kernel/sched_schedstats", "0\n"},
      {"proc/sys/kernel/task_delayacct", "1\n"},
      {"sys/kernel/tracing/trace", ""},
      {"sys/kernel/tracing/available_tracers", "function nop\n"},
      {"sys/kernel/tracing/current_tracer", "nop\n"},
      {"sys/kernel/tracing/set_ftrace_filter", ""},
      {"sys/kernel/tracing/kprobe_events", ""},
      {"sys/kernel/tracing/events/sched/sched_switch/enable", "0\n"},
      {"sys/kernel/tracing/events/asof/asof_entry/enable", "0\n"}};
  for (const auto& [path, text] : files) m.text(path, text);
  // Killed with all it can have on at a time: what is on is in nobody's memory any more.
  EXPECT_EQ(
      in_shell(m, ASOF_TOGGLE " --root root --workers 0 --seconds 600 --hold 5000 >switched & toggle=$!\n"
                              "until [ $(grep -c ' on ' switched) = 2 ]; do sleep 0.05; done\n"
                              "kill -KILL $toggle; wait $toggle\n"
                              // The workload is no more, and what it left is there.
                              "[ -n \"$(ls root/run/asof-record/toggle.*)\" ] || exit 9\n"
                              "echo 1 >root/proc/sys/kernel/sched_schedstats\n"
                              "echo 0 >root/proc/sys/kernel/task_delayacct\n"
                              "echo function >root/sys/kernel/tracing/current_tracer\n"
                              "echo vfs_read >root/sys/kernel/tracing/set_ftrace_filter\n"
                              "echo 1 >root/sys/kernel/tracing/events/sched/sched_switch/enable\n" +
                      kRestore + " --root root"),
      0)
      << said(m);
  for (const auto& [path, text] : files) {
    if (path.ends_with("kprobe_events")) continue;
    std::string now = read_file(m.root() / path);
    if (now.ends_with('\n')) now.pop_back();
    EXPECT_EQ(now, text.empty() ? "" : text.substr(0, text.size() - 1)) << path;
  }
  for (const char* probe : {"asof_entry", "asof_return", "asof_inside", "asof_inside2"})
    EXPECT_NE(probes(m).find(fmt::format("-:asof/{}\n", probe)), std::string::npos) << probes(m);
  EXPECT_TRUE(all_done(m));
}

TEST(RecordRestore, SomebodyElsesChangeStays) {
  FakeMachine m(false);
  m.text("proc/sys/kernel/sched_schedstats", "0\n");
  m.text("sys/kernel/tracing/current_tracer", "function_graph\n");
  const std::string notes = fmt::format(
      "write\t{0}/proc/sys/kernel/sched_schedstats\t1\t5\n"
      "write\t{0}/sys/kernel/tracing/current_tracer\tnop\tfunction\n",
      m.root().string());
  EXPECT_EQ(in_shell(m, "mkdir -p root/run/asof-record; chmod 700 root/run/asof-record\nprintf %s '" + notes +
                            "' >root/run/asof-record/toggle.1\n" + kRestore + " --root $PWD/root"),
            0)
      << said(m);
  EXPECT_EQ(read_file(m.root() / "proc/sys/kernel/sched_schedstats"), "0\n");
  EXPECT_EQ(read_file(m.root() / "sys/kernel/tracing/current_tracer"), "function_graph\n");
}

// Whoever can write into the folder says what root writes: it must be root's, and only switches are ever written.
TEST(RecordRestore, NobodyElseSaysWhatIsWritten) {
  for (const char* folder :
       {"mkdir -p root/run/asof-record; chmod 777 root/run/asof-record",
        "mkdir -p root/run elsewhere; chmod 700 elsewhere; ln -s ../../elsewhere root/run/asof-record"}) {
    FakeMachine m(true);
    EXPECT_EQ(in_shell(m, std::string(folder) +
                              "\nprintf 'append\\t%s\\tx\\n' \"$probes\" >root/run/asof-record/a.1\n"
                              "\"$script\" -o out --no-validate"),
              4)
        << said(m);
    EXPECT_EQ(probes(m), "");
    EXPECT_FALSE(fs::exists(m.dir.path() / "out"));
  }
  FakeMachine m(true);
  const std::string other = (m.root() / "etc/passwd").string();
  m.text("etc/passwd", "root\n");
  EXPECT_EQ(in_shell(m,
                     "mkdir -p root/run/asof-record; chmod 700 root/run/asof-record\n"
                     "printf 'append\\t%s\\tx\\nwrite\\t%s/root/sys/kernel/../../etc/passwd\\tx\\t\\n' " +
                         other + " $PWD >root/run/asof-record/a.1\n" + kRestore + " --root $PWD/root"),
            3);
  EXPECT_EQ(read_file(other), "root\n");
}

TEST(RecordRestore, NamesAreNoCommands) {
  for (const char* name :
       {"$(touch owned)", "`touch owned`", "-x; touch owned", "a b\n touch owned", "--restore x"}) {
    FakeMachine m(true);
    m.program("toggle", "case $1 in --list) echo 'bpf a; touch owned';; esac");
    m.pmu("cs_etm/cpu0/trcidr/trcidr0", "a[$(touch owned)]\n");
    m.text("sys/bus/coresight/devices/etm0/mgmt/trctraceid", "a[$(touch owned)]\n");
    m.pmu("cs_etm/sinks/$(touch owned)", "0x1\n");
    write_file_of_machine(m.dir.path() / "name", name);
    in_shell(m, "\"$script\" --check");
    m.pmu("cs_etm/cpu0/trcidr/trcidr0", "0x28000ea1\n");
    m.text("sys/bus/coresight/devices/etm0/mgmt/trctraceid", "0x10\n");
    EXPECT_EQ(in_shell(m, "\"$script\" -o \"$(cat name)\" --no-validate --seconds 1"), 0) << said(m);
    EXPECT_TRUE(fs::exists(m.dir.path() / name / "perf.data")) << said(m);
    EXPECT_FALSE(fs::exists(m.dir.path() / "owned")) << name;
  }
}

TEST(RecordRestore, TheFolderIsTheOwnersAlone) {
  for (const char* folder : {"mkdir out; chmod 777 out", "mkdir elsewhere; ln -s elsewhere out"}) {
    FakeMachine m(false);
    EXPECT_EQ(in_shell(m, std::string(folder) + "\n\"$script\" -o out --seconds 1"), 4) << said(m);
    EXPECT_EQ(m.log().find("perf record"), std::string::npos) << m.log();
  }
  FakeMachine m(false);
  EXPECT_EQ(in_shell(m,
                     "umask 022\n\"$script\" -o out --seconds 1 --no-validate\n"
                     "[ -z \"$(find out -maxdepth 0 -perm /077)\" ]"),
            0)
      << said(m);
}

// The validation machines build these by hand, some for another architecture.
TEST(RecordRestore, ProgramsForValidationMachinesAreBuilt) {
  const TempDir dir;
  const std::string board = ASOF_RECORD "/../board/machine", out = dir.path();
  // -e: as the scripts that source it have it.
  const std::string command = fmt::format(
      "bash -ec '. {0}/lib.sh; . {0}/run.sh; build_recorder cc c++ {1}; test -x {1}/watch; test -x "
      "{1}/restore' >{1}/log 2>&1",
      board, out);
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(dir / "log");
}

}  // namespace
}  // namespace asof::test
