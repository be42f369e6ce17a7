// The workload of recordings on a machine made of files: what it switches, that one seed gives one order, and
// that everything is restored at the end, also when it is interrupted.
#include <sys/stat.h>

#include <map>

#include "tests/support/perf_data_writer.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

class Toggle : public ::testing::Test {
 protected:
  void SetUp() override {
    put("proc/sys/kernel/sched_schedstats", "0\n");
    put("proc/sys/kernel/task_delayacct", "1\n");
    put("proc/sys/kernel/timer_migration", "7\n");  // not a switch
    put("sys/kernel/tracing/trace", "");
    put("sys/kernel/tracing/available_tracers", "function nop\n");
    put("sys/kernel/tracing/current_tracer", "nop\n");
    put("sys/kernel/tracing/set_ftrace_filter", "");
    put("sys/kernel/tracing/kprobe_events", "");
    put("sys/kernel/tracing/events/sched/sched_switch/enable", "0\n");
    for (const char* probe : {"asof_entry", "asof_return", "asof_inside", "asof_inside2"})
      put(std::string("sys/kernel/tracing/events/asof/") + probe + "/enable", "0\n");
  }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root() / path).parent_path());
    write_bytes(root() / path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  std::string get(const std::string& path) const { return read_file(root() / path); }
  fs::path root() const { return dir_.path() / "root"; }

  // `after`: shell commands once the program runs in the background.
  Ran run(const std::string& arguments, const std::string& after = "") const {
    const std::string at = dir_.path().string();
    Ran ran;
    ran.status =
        WEXITSTATUS(std::system(("cd " + at + "; " ASOF_TOGGLE " --root " + root().string() +
                                 " --workers 0 --hold 0 " + arguments + " >out 2>err & " + after + "wait $!")
                                    .c_str()));
    ran.out = read_file(dir_.path() / "out");
    ran.err = read_file(dir_.path() / "err");
    return ran;
  }
  // "on static_key sched_schedstats", ...: lines without their time.
  static std::vector<std::string> changes(const Ran& ran) {
    std::vector<std::string> out;
    for (const std::string& line : lines_of(ran.out)) out.push_back(line.substr(line.find(' ') + 1));
    return out;
  }
  void expect_as_before() const {
    for (const char* path :
         {"proc/sys/kernel/sched_schedstats", "sys/kernel/tracing/events/sched/sched_switch/enable"})
      EXPECT_EQ(get(path).substr(0, 1), "0") << path;
    EXPECT_EQ(get("proc/sys/kernel/task_delayacct").substr(0, 1), "1");
    EXPECT_EQ(get("proc/sys/kernel/timer_migration"), "7\n");
    EXPECT_EQ(get("sys/kernel/tracing/current_tracer").substr(0, 3), "nop");
    EXPECT_EQ(get("sys/kernel/tracing/set_ftrace_filter"), "");
    const std::string probes = get("sys/kernel/tracing/kprobe_events");
    EXPECT_NE(probes.find("-:asof/asof_inside2"), std::string::npos) << "probes must be removed: " << probes;
  }

  TempDir dir_;
};

TEST_F(Toggle, SwitchesEverythingOnAndOffAgain) {
  const Ran ran = run("--rounds 2 --seed 3");
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  std::map<std::string, int> on;
  std::map<std::string, unsigned> count;
  for (const std::string& line : changes(ran)) {
    const bool is_on = line.starts_with("on ");
    const std::string what = line.substr(line.find(' ') + 1);
    on[what] += is_on ? 1 : -1;
    EXPECT_TRUE(on[what] == 0 || on[what] == 1) << what;
    count[what] += is_on ? 1 : 0;
  }
  for (const auto& [what, n] : on) {
    EXPECT_EQ(n, 0) << what;
    EXPECT_EQ(count[what], 2U) << what;
  }
  for (const char* what :
       {"static_key sched_schedstats", "static_key task_delayacct", "tracepoint sched_switch",
        "ftrace filter 1", "kprobe asof_entry", "kprobe asof_inside"})
    EXPECT_TRUE(count.contains(what)) << what << '\n' << ran.out;
  EXPECT_FALSE(count.contains("static_key timer_migration")) << "its file is not a switch";
  expect_as_before();
}

TEST_F(Toggle, OneSeedGivesOneOrder) {
  const auto first = changes(run("--rounds 3 --seed 42"));
  const auto again = changes(run("--rounds 3 --seed 42"));
  const auto other = changes(run("--rounds 3 --seed 43"));
  EXPECT_GT(first.size(), 20U);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST_F(Toggle, OnlyAndNeedChooseKinds) {
  for (const std::string& line : changes(run("--rounds 1 --only static_key")))
    EXPECT_NE(line.find(" static_key "), std::string::npos) << line;
  EXPECT_EQ(run("--list --need static_key,ftrace,kprobe").status, 0);
  const Ran missing = run("--list --need static_key,module");
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("no switch of kind module"), std::string::npos) << missing.err;
}

TEST_F(Toggle, SomebodyElsesTracerIsLeftAlone) {
  put("sys/kernel/tracing/current_tracer", "function_graph\n");
  EXPECT_EQ(run("--rounds 1").out.find("ftrace"), std::string::npos);
  EXPECT_EQ(get("sys/kernel/tracing/current_tracer"), "function_graph\n");
}

TEST_F(Toggle, NothingToSwitchIsReported) {
  fs::remove_all(root());
  fs::create_directories(root());
  const Ran ran = run("--rounds 1");
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("nothing here that can be switched"), std::string::npos) << ran.err;
}

TEST_F(Toggle, InterruptedItPutsEverythingBack) {
  // Once something is switched, however long that takes on a busy machine.
  const Ran ran =
      run("--seconds 60 --hold 50", "while [ ! -s out ] && kill -0 $!; do sleep 0.05; done; kill -TERM $!; ");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_FALSE(changes(ran).empty());
  expect_as_before();
}

// Reading the last probe's state waits: its file is a pipe.
TEST_F(Toggle, InterruptedWhileItLooksItRemovesItsProbes) {
  const std::string events = (root() / "sys/kernel/tracing").string();
  const std::string last = events + "/events/asof/asof_inside2/enable";
  fs::remove(last);
  ASSERT_EQ(mkfifo(last.c_str(), 0600), 0);
  const Ran ran = run("--seconds 60", "while ! grep -q asof_inside2 " + events +
                                          "/kprobe_events && kill -0 $!; do sleep 0.05; done; "
                                          "kill -TERM $!; exec 3<>" +
                                          last + "; echo 0 >&3; ");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.out, "");
  expect_as_before();
}

TEST_F(Toggle, UsageErrorsExitWith1) {
  for (const char* wrong : {"--seed", "--seed x", "--seconds -1", "--nonsense 1", "--rounds 1e99"})
    EXPECT_EQ(run(wrong).status, 1) << wrong;
}

}  // namespace
}  // namespace asof::test
