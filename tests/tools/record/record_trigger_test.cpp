// --trigger: on machines made of files, whose tracefs says that the probe was hit when the test does.
#include <fmt/format.h>

#include "tests/tools/record/fake_machine.h"

namespace asof::test {
namespace {

struct TriggerMachine : FakeMachine {
  // `hit`: what the probe's list of events says once perf has begun; nothing: it is never hit.
  TriggerMachine(bool arm, const std::string& hit) : FakeMachine(arm) {
    text("sys/kernel/tracing/kprobe_events", "");
    text("sys/kernel/tracing/uprobe_events", "");
    text("proc/kallsyms",
         "ffffffff81000000 T _text\nffff800008000000 t arch_jump_label_transform_queue\n"
         "ffffffff81001000 T tcp_reset\nffffffff81002000 d no_code\n");
    program("mkdir",
            fmt::format("for last; do :; done\n/bin/mkdir \"$@\" || exit\ncase $last in */instances/*) "
                        "/bin/mkdir -p \"$last/events/asof/trigger\"; mkfifo \"$last/trace_pipe\";; esac"));
    fs::create_directories(root() / "sys/kernel/tracing/instances");
    program("perf", fmt::format(R"(
case "$1 $2" in
  "version "*) echo perf version 6.5.1; exit 0;;
  "record -h") echo ' usage: --kcore'; exit 129;;
  "probe -x") [ "$5" = asof:trigger=handler ] && echo "p:asof/trigger $3:0x1129"; exit;;
esac
echo perf "$@" >>$LOG
while [ $# -gt 0 ]; do
  case $1 in -o) data=$2;; --) shift; break;; esac
  shift
done
cp -rL {} "$data"
chmod -R u+w "$data"
[ "$1" = true ] && exit
instance=$RECORD_ROOT/sys/kernel/tracing/instances/asof-trigger
pipe=$instance/trace_pipe
# tracefs removes a list with all that is in it.
leave() {{ echo enabled $(cat $instance/events/asof/trigger/enable) >>$LOG; rm -r $instance/events $pipe; exit $1; }}
trap 'echo ended >>$LOG; kill $waiting; leave 143' TERM
hit='{}'
is_heard() {{ [ $(cat $instance/events/asof/trigger/enable) = 1 ]; }}
# What is hit before perf is ready: its signal ends perf.
[ -z "$hit" ] || ! is_heard || {{ echo "$hit" >$pipe & }}
sleep 0.3
trap 'echo snapshot >>$LOG' USR2
"$@" & waiting=$!
[ -z "$hit" ] || {{ until is_heard; do sleep 0.02; done; echo "$hit" >$pipe & }}
while kill -0 $waiting 2>/dev/null; do sleep 0.05; done
leave 0)",
                                data, hit));
  }
  std::string probes(const std::string& list) const {
    return read_file(root() / "sys/kernel/tracing" / list);
  }
  fs::path instance() const { return root() / "sys/kernel/tracing/instances/asof-trigger"; }
};

constexpr const char* kHit = " sh-7 [000] ..... 12.3: trigger: (tcp_reset+0x0/0x10)";

TEST(RecordTrigger, KeepsWhatRanBeforeIt) {
  for (const bool arm64 : {false, true}) {
    TriggerMachine m(arm64, kHit);
    const Ran ran = m.run("-o out --no-validate --trigger tcp_reset");
    ASSERT_EQ(ran.status, 0) << ran.out << ran.err << m.log();
    EXPECT_NE(ran.out.find("ok       trigger      p:asof/trigger tcp_reset"), std::string::npos) << ran.out;
    const std::string log = m.log();
    EXPECT_NE(log.find(" -S -e asof:trigger -- sh -c "), std::string::npos) << log;
    EXPECT_NE(log.find("out sleep 60\n"), std::string::npos) << log;
    EXPECT_LT(log.find("snapshot"), log.find("ended")) << "it is read before perf is ended: " << log;
    EXPECT_TRUE(fs::exists(m.dir.path() / "out.asof.tar.zst")) << ran.out << ran.err;
    const std::string probes = m.probes("kprobe_events");
    EXPECT_NE(probes.find("p:asof/trigger tcp_reset\n"), std::string::npos) << probes;
    EXPECT_NE(probes.find("-:asof/trigger\n"), std::string::npos) << "it must be removed: " << probes;
    EXPECT_NE(log.find("enabled 1\n"), std::string::npos) << log;
    EXPECT_FALSE(fs::exists(m.instance()));
  }
}

TEST(RecordTrigger, OfAProgramIsAUprobe) {
  TriggerMachine m(false, kHit);
  const Ran ran = m.run("-o out --no-validate --trigger /usr/bin/server:handler -- sleep 20");
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err << m.log();
  EXPECT_TRUE(m.probes("uprobe_events").starts_with("p:asof/trigger /usr/bin/server:0x1129\n"));
  EXPECT_EQ(m.probes("kprobe_events"), "");
  EXPECT_NE(m.log().find("-e intel_pt/tsc=1,mtc=1,mtc_period=3/uk -S -e asof:trigger -- sh -c "),
            std::string::npos)
      << "user code is traced, too: " << m.log();
}

TEST(RecordTrigger, ThatDidNotRunIsSaid) {
  TriggerMachine m(false, "");
  const Ran ran = m.run("-o out --trigger tcp_reset --seconds 0.3");
  EXPECT_EQ(ran.status, 4) << ran.out;
  EXPECT_NE(ran.err.find("tcp_reset did not run: nothing was kept"), std::string::npos) << ran.err;
  EXPECT_NE(m.log().find(" sleep 0.3\n"), std::string::npos) << m.log();
  EXPECT_FALSE(fs::exists(m.dir.path() / "out.asof.tar.zst"));
  EXPECT_TRUE(m.probes("kprobe_events").ends_with("-:asof/trigger\n"));
}

TEST(RecordTrigger, ThatIsNotThereIsMissing) {
  TriggerMachine m(false, "");
  for (const auto& [trigger, words] :
       {std::pair("nosuch", "the kernel has no function nosuch"),
        {"no_code", "the kernel has no function no_code"},
        {"tcp_reset+0x10", ""},
        {"tcp_reset+x", "is no name of a function"},
        {"'a b'", "is no name of a function"},
        {"/usr/bin/server:other", "perf finds no function other in /usr/bin/server"}}) {
    const Ran ran = m.run(fmt::format("--check --trigger {}", trigger));
    EXPECT_EQ(ran.status, *words == '\0' ? 0 : 2) << trigger << ran.out;
    EXPECT_NE(ran.out.find(words), std::string::npos) << trigger << ran.out;
  }
  m.remove("sys/kernel/tracing");
  EXPECT_NE(m.run("--check --trigger tcp_reset").out.find("MISSING  trigger"), std::string::npos);
  EXPECT_EQ(m.log(), "") << "nothing was recorded";
}

// The verb hands it on; the list of events is removed as it was made.
TEST(RecordTrigger, ByTheVerbAndPutBack) {
  TriggerMachine m(false, kHit);
  m.program("uname", "case $1 in -m) echo x86_64;; -r) echo 6.1.0-50;; esac");
  const Ran ran = m.run_program(ASOF_BINARY " record", "--check --trigger nosuch");
  EXPECT_NE(ran.out.find("MISSING  trigger"), std::string::npos) << ran.out << ran.err;
  fs::create_directories(m.root() / "run/asof-record");
  fs::permissions(m.root() / "run/asof-record", fs::perms::owner_all);
  fs::create_directories(m.instance());
  const fs::path outside = m.dir.path() / "outside";
  fs::create_directories(outside);
  write_file_of_machine(m.root() / "run/asof-record/recording.999999",
                        fmt::format("folder\t{}\nfolder\t{}\n", m.instance().string(), outside.string()));
  const Ran restored = m.run("--restore");
  EXPECT_FALSE(fs::exists(m.instance())) << restored.err;
  EXPECT_TRUE(fs::exists(outside)) << "no other folder is";
}

}  // namespace
}  // namespace asof::test
