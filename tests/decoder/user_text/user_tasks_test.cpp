// Spaces of processes over time, and which task runs when.
#include "decoder/user_text/user_text.h"

#include "tests/decoder/user_text/user_fixture.h"

namespace asof {
namespace {

using namespace test;

TEST_F(User, ForkInheritsAndExecStartsAnew) {
  file("/bin/a", 0x11, 0xaa);
  file("/bin/b", 0x22, 0xbb);
  r.writer.comm(7, 7, "parent", false);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  r.writer.fork(8, 7, 8, 7, Recording::at(100));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(110, 0, 7, 7));
  r.writer.comm(8, 8, "child", true, Recording::at(200, 0, 8, 8));
  map(8, "/bin/b", 0xbb, Recording::at(210, 0, 8, 8), kCode + 0x10000);
  r.writer.context_switch_cpu_wide(true, false, 7, 7, Recording::at(300, 0, 8, 8));
  open();
  const Space parent = space_at(50);
  EXPECT_EQ(at(kCode, 50), std::vector<Bytes>{{0x11}});
  EXPECT_NE(space_at(150), parent);
  EXPECT_EQ(at(kCode, 150), std::vector<Bytes>{{0x11}});  // inherited
  EXPECT_NE(space_at(250), space_at(150));                // exec without a switch
  EXPECT_EQ(at(kCode, 250), kUnknown);
  EXPECT_EQ(at(kCode + 0x10000, 250), std::vector<Bytes>{{0x22}});
  EXPECT_EQ(space_at(350), parent);
  EXPECT_EQ(capture->tasks.comm(8, 150), "parent");
  EXPECT_EQ(capture->tasks.comm(8, 250), "child");
}

// The number of a process that is gone, given to a child of one that the recording does not know.
TEST_F(User, AnotherProcessOfTheSameNumberInheritsNothing) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(7, 7, Recording::at(10));
  r.writer.fork(7, 99, 7, 99, Recording::at(100));
  open();
  EXPECT_EQ(at(kCode, 50), std::vector<Bytes>{{0x11}});
  EXPECT_NE(space_at(150), space_at(50));
  EXPECT_EQ(at(kCode, 150), kUnknown);
}

TEST_F(User, ChildReplacesWhatItInherited) {
  file("/bin/a", 0x11, 0xaa);
  file("/bin/b", 0x22, 0xbb);
  map(7, "/bin/a", 0xaa, {});
  r.writer.fork(8, 7, 8, 7, Recording::at(100));
  map(8, "/bin/b", 0xbb, Recording::at(200, 0, 8, 8));
  r.writer.itrace_start(8, 8, Recording::at(101));
  open();
  EXPECT_EQ(at(kCode, 150), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(at(kCode, 250), std::vector<Bytes>{{0x22}});
}

TEST_F(User, ThreadsShareTheirProcessSpace) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.fork(7, 7, 9, 7, Recording::at(50));
  r.writer.itrace_start(7, 9, Recording::at(60));
  open();
  EXPECT_EQ(at(kCode, 100), std::vector<Bytes>{{0x11}});
}

TEST_F(User, SwitchesOutrankTheTraceStart) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  r.writer.itrace_start(0, 0, Recording::at(60, 0, 0, 0));
  r.writer.context_switch_cpu_wide(true, false, 0, 0, Recording::at(100, 0, 7, 7));
  open();
  EXPECT_EQ(at(kCode, 80), std::vector<Bytes>{{0x11}});
  EXPECT_EQ(space_at(120), kNoSpace);
}

// Records of the ring that is full are lost from its last one on: the task that ran then need not run on.
TEST_F(User, NobodyIsKnownToRunWhereSwitchesMayBeLost) {
  file("/bin/a", 0x11, 0xaa);
  map(7, "/bin/a", 0xaa, {});
  map(8, "/bin/a", 0xaa, {});
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(100, 0, 7, 7));
  r.writer.lost(1, 30, Recording::at(300));
  r.writer.context_switch_cpu_wide(true, false, 0, 0, Recording::at(301, 0, 8, 8));
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(400, 0, 7, 7));
  open();
  const auto task_at = [this](Time t) {
    const ContextChange* const c = capture->streams[0].context_at(t);
    return c == nullptr ? -2 : c->tid;
  };
  EXPECT_EQ(task_at(100), 7);
  EXPECT_EQ(task_at(200), -1);
  EXPECT_EQ(space_at(200), kNoSpace);
  EXPECT_EQ(task_at(350), 0);
  EXPECT_EQ(task_at(500), 7);
}

// The kernel says of a task that leaves whether it could have run on; the record of the one that comes does not.
// 8 leaves, but 7 had come.
TEST_F(User, NobodyIsKnownToRunWhereSwitchesContradictEachOther) {
  r.writer.itrace_start(7, 7, Recording::at(10));
  r.writer.context_switch_cpu_wide(true, false, 8, 8, Recording::at(100, 0, 7, 7));
  r.writer.context_switch_cpu_wide(false, false, 7, 7, Recording::at(101, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, false, 7, 7, Recording::at(200, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, false, 9, 9, Recording::at(300, 0, 8, 8));
  open();
  const auto tid_at = [&](Time t) { return capture->streams[0].context_at(t)->tid; };
  EXPECT_EQ(tid_at(150), 8);
  EXPECT_EQ(tid_at(200), 7);
  EXPECT_EQ(tid_at(250), -1);
  EXPECT_EQ(tid_at(350), 9);
}

TEST_F(User, WhoPreemptsIsKept) {
  r.writer.context_switch_cpu_wide(true, true, 8, 8, Recording::at(100, 0, 7, 7));
  r.writer.context_switch_cpu_wide(false, false, 7, 7, Recording::at(101, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, false, 9, 9, Recording::at(200, 0, 8, 8));
  r.writer.context_switch_cpu_wide(true, true, 7, 7, Recording::at(300, 0, 9, 9));
  r.writer.context_switch_cpu_wide(false, false, 9, 9, Recording::at(300, 0, 7, 7));
  r.writer.comm(7, 7, "new", true, Recording::at(350, 0, 7, 7));
  open();
  const auto preempts = [this](Time t) {
    const ContextChange* const c = capture->streams[0].context_at(t);
    return c != nullptr && c->preempts;
  };
  EXPECT_FALSE(preempts(50));
  EXPECT_TRUE(preempts(150));
  EXPECT_FALSE(preempts(250));
  EXPECT_TRUE(preempts(320)) << "both records of the switch have one time";
  EXPECT_FALSE(preempts(400)) << "an exec takes no one off the CPU";
  EXPECT_EQ(capture->streams[0].contexts.back().time, 350);
}

TEST_F(User, TheTaskFromBeforeALossIsKnownAgain) {
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(100, 0, 7, 7));
  r.writer.lost(1, 30, Recording::at(300));
  r.writer.context_switch_cpu_wide(false, false, 0, 0, Recording::at(310, 0, 7, 7));
  open();
  const std::vector<ContextChange>& all = capture->streams[0].contexts;
  ASSERT_EQ(all.size(), 4U);  // the first: who ran before
  EXPECT_EQ(all[2].tid, -1);
  EXPECT_EQ(all[3].tid, 7);
  EXPECT_EQ(all[3].time, 310);
}

// The first record of a ring: what ran before it is unknown, and not the task that it takes away.
TEST_F(User, NobodyIsKnownToRunBeforeALossAtTheStart) {
  r.writer.lost(1, 30, Recording::at(300));
  r.writer.context_switch_cpu_wide(true, false, 0, 0, Recording::at(350, 0, 8, 8));
  open();
  ASSERT_NE(capture->streams[0].context_at(200), nullptr);
  EXPECT_EQ(capture->streams[0].context_at(200)->tid, -1);
  ASSERT_NE(capture->streams[0].context_at(320), nullptr);
  EXPECT_EQ(capture->streams[0].context_at(320)->tid, 8);
}

}  // namespace
}  // namespace asof
