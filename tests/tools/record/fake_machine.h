// A machine made of files, for the scripts that record: perf, uname, id, toggle and watch are programs of the test.
#pragma once
#include <fmt/format.h>
#include <sys/stat.h>

#include "tests/support/perf_data_writer.h"
#include "tests/tools/run_asof.h"

namespace asof::test {

namespace fs = std::filesystem;

inline const std::string kRestore = fs::path(ASOF_TOGGLE).parent_path() / "restore";

inline void write_file_of_machine(const fs::path& path, const std::string& text, bool program = false) {
  fs::create_directories(path.parent_path());
  write_bytes(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (program) chmod(path.c_str(), 0755);
}

struct FakeMachine {
  explicit FakeMachine(bool arm) : arm64(arm) {
    text("proc/sys/kernel/perf_event_paranoid", "2\n");
    text("proc/kcore",
         "\x7f"
         "ELF and more");
    text("proc/kallsyms", "ffffffff81000000 T _text\nffff800008000000 t arch_jump_label_transform_queue\n");
    text("proc/cpuinfo", "flags : fpu tsc intel_pt\n");
    text("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    if (arm64)
      coresight();
    else
      intel_pt();
    program("uname", fmt::format("case $1 in -m) echo {};; -r) echo {};; esac", arm64 ? "aarch64" : "x86_64",
                                 "6.1.0-50"));
    program("id", "echo 0");
    perf("6.5.1");
    program(
        "toggle",
        "case $1 in --list) printf 'bpf a\\nbpf b\\nstatic_key c\\n';; *) echo toggled \"$@\" >>$LOG;; esac");
    program("watch",
            "case $1 in --self-test) echo 152 TEXT_POKE records; exit 0;; esac\n"
            "echo watching \"$@\" >>$LOG\ntrap 'exit 0' TERM\nsleep 0.3\n"
            "echo rings are open >>$LOG\n: >\"$2\"\nwhile :; do sleep 0.05; done");
    fs::create_symlink(kRestore, dir.path() / "bin/restore");
  }
  void intel_pt() {
    pmu("intel_pt/type", "8\n");
    pmu("intel_pt/caps/topa_output", "1\n");
    pmu("intel_pt/caps/topa_multiple_entries", "1\n");
    pmu("intel_pt/caps/mtc", "1\n");
    pmu("intel_pt/caps/mtc_periods", "249\n");
    pmu("intel_pt/caps/psb_cyc", "1\n");
    text("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  }
  void coresight() {
    pmu("cs_etm/type", "8\n");
    pmu("cs_etm/format/timestamp", "config:28\n");
    pmu("cs_etm/sinks/tmc_etr0", "0x1\n");
    for (const char* cpu : {"cpu0", "cpu1"}) {
      pmu(fmt::format("cs_etm/{}/trcidr/trcidr0", cpu), "0x28000ea1\n");
      pmu(fmt::format("cs_etm/{}/ts_source", cpu), "1\n");
      fs::create_directories(root() / "sys/devices/system/cpu" / cpu);
    }
    text("sys/bus/coresight/devices/etm0/mgmt/trctraceid", "0x10\n");
    text("sys/bus/coresight/devices/etm1/mgmt/trctraceid", "0x12\n");
    text("sys/kernel/tracing/kprobe_events", "");
  }
  // As much of perf as the scripts use; a recording is a copy of the demo.
  void perf(const std::string& version, bool kcore = true) {
    program("perf", fmt::format(R"(
case "$1 $2" in
  "version "*) echo perf version {}; exit 0;;
  "record -h") echo ' usage: {}'; exit 129;;
esac
echo perf "$@" >>$LOG
while [ $# -gt 0 ]; do
  case $1 in -o) data=$2;; --) shift; break;; esac
  shift
done
cp -rL {} "$data"
chmod -R u+w "$data"
"$@")",
                                version, kcore ? "--kcore" : "", data));
  }

  fs::path root() const { return dir.path() / "root"; }
  void text(const std::string& path, const std::string& content) {
    write_file_of_machine(root() / path, content);
  }
  void pmu(const std::string& path, const std::string& content) {
    text("sys/bus/event_source/devices/" + path, content);
  }
  void program(const std::string& name, const std::string& script) {
    write_file_of_machine(dir.path() / "bin" / name, "#!/bin/sh\n" + script + "\n", true);
  }
  void remove(const std::string& path) { fs::remove_all(root() / path); }
  void remove_pmu(const std::string& path) { remove("sys/bus/event_source/devices/" + path); }

  Ran run(const std::string& arguments) const {
    return run_program(std::string(ASOF_RECORD) + (arm64 ? "/record-cs" : "/record-pt"), arguments);
  }
  // The script, or what runs it.
  Ran run_program(const std::string& program, const std::string& arguments) const {
    const std::string command = fmt::format(
        "cd {0} && PATH={0}/bin:$PATH LOG={0}/log RECORD_ROOT={0}/root RECORD_TOOLS={0}/bin ASOF=" ASOF_BINARY
        " {1} {2} >{0}/stdout 2>{0}/stderr </dev/null",
        dir.path().string(), program, arguments);
    Ran ran;
    ran.status = WEXITSTATUS(std::system(command.c_str()));
    ran.out = read_file(dir.path() / "stdout");
    ran.err = read_file(dir.path() / "stderr");
    return ran;
  }
  // perf and the watcher that go on until they are told to end, and say that they did.
  void endless_programs() {
    program("perf", R"(
case "$1 $2" in
  "version "*) echo perf version 6.5.1; exit 0;;
  "record -h") echo " usage: --kcore"; exit 129;;
esac
trap "echo perf ended >>$LOG; exit 0" TERM
echo begun >>$LOG
while :; do sleep 0.05; done)");
    program("watch",
            "case $1 in --self-test) exit 0;; esac\n"
            "trap 'echo watcher ended >>$LOG; exit 0' TERM\n: >\"$2\"\nwhile :; do sleep 0.05; done");
  }
  // Sends the script a signal once perf has begun.
  int run_and_stop(const char* signal) const {
    const std::string command = fmt::format(
        "cd {0} && export PATH={0}/bin:$PATH LOG={0}/log RECORD_ROOT={0}/root RECORD_TOOLS={0}/bin "
        "ASOF=" ASOF_BINARY "; " ASOF_RECORD
        "/{1} -o out >{0}/stdout 2>{0}/stderr </dev/null & script=$!; "
        "until grep -qs begun {0}/log; do sleep 0.05; done; kill -{2} $script; wait $script",
        dir.path().string(), arm64 ? "record-cs" : "record-pt", signal);
    return WEXITSTATUS(std::system(("bash -c '" + command + "'").c_str()));
  }
  std::string log() const { return read_file(dir.path() / "log"); }

  bool arm64;
  TempDir dir;
  std::string data = arm64 ? ASOF_TEST_DATA "/demo-arm64/perf.data" : ASOF_TEST_DATA "/demo/perf.data";
};

}  // namespace asof::test
