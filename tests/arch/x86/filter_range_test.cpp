// A TIP.PGD without an address in a trace with address filters: a conditional branch or a compressed return that left the
// range (SDM vol. 3, cases 7e and 7f), if nothing else can be. tests/tools/board/pt_plugin has the cases where that is so.
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// jmp rax at 0, to 10: nop, WRMSR or two nops, jne 30, nop; jmp rax at 30
struct Filtered : FlowFixture {
  explicit Filtered(bool wrmsr = false) {
    config.filter = {{}};
    config.cpu = {true, 6, 0x8f, 8};
    code(A, {0xff, 0xe0});
    code(A + 0x10,
         wrmsr ? Bytes{0x90, 0x0f, 0x30, 0x75, 0x1b, 0x90} : Bytes{0x90, 0x90, 0x90, 0x75, 0x1b, 0x90});
    code(A + 0x30, {0xff, 0xe0});
  }
  // What is decoded up to the branch, and how sure that is: all of it certain, or all since the last packet ambiguous.
  void expect_end(size_t packets_from, bool certain, const char* what) {
    const Decoded d = decode_all_ways();
    EXPECT_TRUE(d.gaps.empty()) << what;
    ASSERT_GT(d.ran.size(), packets_from + 2) << what;
    for (size_t i = 0; i < d.ran.size() && d.ran[i].ip != A + 0x13; ++i) {
      const bool unconfirmed = i >= packets_from;
      EXPECT_EQ(d.ran[i].confidence, unconfirmed && !certain ? Confidence::kAmbiguous : Confidence::kCertain)
          << what << " " << i;
    }
    EXPECT_TRUE(std::ranges::any_of(d.ran, [](const Ran& r) { return r.ip == A + 0x13; })) << what;
  }
};

TEST(FilterRange, BranchOutOfItWhereNothingElseCanBe) {
  Filtered s;
  s.start(A);
  s.pt.tip(A + 0x10);
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 0x30);
  stop_at(s, A + 0x30);
  s.expect_end(1, true, "all known");
}

TEST(FilterRange, AnythingElseThatCanBeMakesThePathAmbiguous) {
  Filtered again;  // at an address on the path
  again.start(A);
  again.pt.tip(A + 0x10);
  again.pt.tip_pgd();
  again.pt.tip_pge(A + 0x11);
  stop_at(again, A + 0x11);
  again.expect_end(1, false, "goes on on the path");

  Filtered at_branch;
  at_branch.start(A);
  at_branch.pt.tip(A + 0x10);
  at_branch.pt.tip_pgd();
  at_branch.pt.tip_pge(A + 0x13);
  stop_at(at_branch, A + 0x13);
  at_branch.expect_end(1, false, "goes on at the branch");

  Filtered end;
  end.start(A);
  end.pt.tip(A + 0x10);
  end.pt.tip_pgd();
  end.expect_end(1, false, "does not go on");

  Filtered fault;  // the first instruction may have faulted, and its handler did not return
  fault.start(A);
  fault.pt.tip_pgd(A + 0x100);
  fault.pt.tip_pge(A + 0x10);
  fault.pt.tip_pgd();
  fault.pt.tip_pge(A + 0x30);
  stop_at(fault, A + 0x30);
  fault.expect_end(1, false, "no packet since the TIP.PGE");

  Filtered wrmsr(true);
  wrmsr.start(A);
  wrmsr.pt.tip(A + 0x10);
  wrmsr.pt.tip_pgd();
  wrmsr.pt.tip_pge(A + 0x30);
  stop_at(wrmsr, A + 0x30);
  wrmsr.expect_end(1, false, "WRMSR");
}

// A branch within the range has a TNT bit: tracing stopped before it.
TEST(FilterRange, BranchWithinItIsNotIt) {
  Filtered s(true);
  s.config.filter = {{A, A + 0x100}};
  s.start(A);
  s.pt.tip(A + 0x10);
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 0x30);
  stop_at(s, A + 0x30);
  s.expect_flow(at({0, 0x10, 0x11}));  // up to the WRMSR
}

// SKL014: a direct branch has no address either, and which of them left the range is not known.
TEST(FilterRange, DirectBranchOnThePath) {
  for (const bool has : {true, false}) {
    FlowFixture s;
    s.config.filter = {{}};
    s.config.cpu = {true, 6, static_cast<uint8_t>(has ? 0x4e : 0x8f), 3};
    s.code(A, {0xff, 0xe0, 0xeb, 0x0c}).code(A + 0x10, {0x90, 0x75, 0x1d}).code(A + 0x30, {0xff, 0xe0});
    s.start(A);
    s.pt.tip(A + 2);
    s.pt.tip_pgd();
    s.pt.tip_pge(A + 0x30);
    stop_at(s, A + 0x30);
    const Decoded d = s.expect_flow(at({0, 2, 0x10, 0x11}));
    EXPECT_EQ(d.ran[0].confidence, Confidence::kCertain);
    for (size_t i = 1; i < d.ran.size(); ++i)
      EXPECT_EQ(d.ran[i].confidence, has ? Confidence::kAmbiguous : Confidence::kCertain) << i;
  }
}

// Without filters nothing is different.
TEST(FilterRange, WithoutAFilterTracingStoppedElsewhere) {
  Filtered s(true);
  s.config.filter.clear();
  s.start(A);
  s.pt.tip(A + 0x10);
  s.pt.tip_pgd();
  s.pt.tip_pge(A + 0x30);
  stop_at(s, A + 0x30);
  s.expect_flow(at({0, 0x10, 0x11}));
}

}  // namespace
}  // namespace asof::x86::test
