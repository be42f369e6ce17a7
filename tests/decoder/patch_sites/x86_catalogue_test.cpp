// Sites of an x86 kernel that its own code patches, found without a vmlinux, and how a loss of records
// affects them.
#include "decoder/patch_sites/x86_catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/assembler.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kText = Recording::kText;
// Before everything else, so that all bytes of a jump or call there differ from a no-op's.
constexpr Addr kCaller = kText + 0x40, kTarget = kText + 0x80;  // kCaller: ftrace_caller
constexpr Time kLost = 500, kAfter = 600;
const Bytes kNop2 = {0x66, 0x90};

Bytes call_bytes(Addr from, Addr to) {
  Bytes out = jmp32_bytes(from, to);
  out[0] = 0xe8;
  return out;
}

class X86Catalogue : public ::testing::Test {
 protected:
  void put(Addr at, const Bytes& bytes) {
    std::ranges::copy(bytes, r.kernel_bytes.begin() + static_cast<std::ptrdiff_t>(at - kText));
  }
  void function(Addr at, const std::string& name, const Bytes& begin) {
    put(at, begin);
    r.symbol(at, 'T', name);
  }
  void lose() { r.writer.lost(3, 100, Recording::at(kLost)); }
  void trace_one() {
    function(kText + 0x100, "traced", nop5_bytes());
    r.symbol(kCaller, 'T', "ftrace_caller");
    r.writer.text_poke(kText + 0x100, nop5_bytes(), call_bytes(kText + 0x100, kCaller), Recording::at(200));
  }
  // A jump table after the text, as in a copy of kcore that has data: one entry each.
  void jump_table(const std::vector<std::pair<Addr, Addr>>& labels) {
    const Addr begin = kText + Recording::kTextSize + 0x1000;
    ByteSink table;
    for (const auto& [code, target] : labels) {
      const Addr entry = begin + table.bytes().size();
      table.u32(static_cast<uint32_t>(code - entry));
      table.u32(static_cast<uint32_t>(target - entry - 4));
      table.u64(0);
    }
    r.symbol(begin, 'R', "__start___jump_table");
    r.symbol(begin + table.bytes().size(), 'R', "__stop___jump_table");
    Bytes bytes(table.bytes().begin(), table.bytes().end());
    bytes.resize(0x1000, 0);
    r.segment(begin, bytes);
  }
  void open() {
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
  }
  std::vector<Bytes> at(Addr a, size_t n, Time t) {
    auto all = contents(*capture->text, kKernelSpace, a, n, t);
    std::ranges::sort(all);
    return all;
  }
  static std::vector<Bytes> sorted(std::vector<Bytes> all) {
    std::ranges::sort(all);
    return all;
  }
  Recording r;
  CaptureOptions options = closed_options();
  std::optional<Capture> capture;
};

TEST_F(X86Catalogue, AfterALossFunctionEntriesMayCallWhatOthersCall) {
  trace_one();
  const Addr plain = kText + 0x200, branch = kText + 0x300, busy = kText + 0x400;
  function(plain, "plain", nop5_bytes());
  function(branch, "branch", {0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0});
  function(busy, "busy", {0x55, 0x48, 0x89, 0xe5, 0x5d});
  lose();
  open();
  EXPECT_EQ(at(plain, 5, 100), std::vector<Bytes>{nop5_bytes()});
  EXPECT_EQ(at(plain, 5, kAfter), sorted({nop5_bytes(), call_bytes(plain, kCaller)}));
  EXPECT_EQ(at(branch + 4, 5, kAfter), sorted({nop5_bytes(), call_bytes(branch + 4, kCaller)}));
  EXPECT_EQ(at(busy, 5, kAfter).size(), 1U);
}

TEST_F(X86Catalogue, WithoutALossFunctionEntriesAreAsCopied) {
  trace_one();
  function(kText + 0x200, "plain", nop5_bytes());
  open();
  EXPECT_EQ(at(kText + 0x200, 5, kAfter), std::vector<Bytes>{nop5_bytes()});
}

TEST_F(X86Catalogue, WithoutATracerFunctionEntriesAreAsCopied) {
  function(kText + 0x200, "plain", nop5_bytes());
  lose();
  open();
  EXPECT_EQ(at(kText + 0x200, 5, kAfter), std::vector<Bytes>{nop5_bytes()});
}

TEST_F(X86Catalogue, AfterALossJumpLabelsMayBeOnOrOff) {
  trace_one();  // the ring's last record before the loss
  const Addr off = kText + 0x500, on = kText + 0x540, near = kText + 0x580, none = kText + 0x5c0,
             caught = kText + 0x600, close = kText + 0x5a0;
  put(off, nop5_bytes());
  put(on, jmp32_bytes(on, kTarget));
  put(near, kNop2);
  put(caught, {0xcc, 0x1f, 0x44, 0, 0});
  jump_table({{off, kTarget}, {on, kTarget}, {near, close}, {none, kTarget}, {caught, kTarget}});
  lose();
  open();
  EXPECT_EQ(at(off, 5, 100), std::vector<Bytes>{nop5_bytes()});
  EXPECT_EQ(at(off, 5, kAfter), sorted({nop5_bytes(), jmp32_bytes(off, kTarget)}));
  EXPECT_EQ(at(on, 5, kAfter), sorted({nop5_bytes(), jmp32_bytes(on, kTarget)}));
  EXPECT_EQ(at(near, 2, kAfter), sorted({kNop2, {0xeb, 0x1e}}));
  EXPECT_EQ(at(none, 5, kAfter).size(), 1U);  // holds neither state: freed init code
  EXPECT_EQ(at(caught, 5, 100),
            sorted({{0xcc, 0x1f, 0x44, 0, 0}, nop5_bytes(), jmp32_bytes(caught, kTarget)}));
}

TEST_F(X86Catalogue, AskedForJumpLabelsAreDoubtfulWithoutALoss) {
  const Addr off = kText + 0x500;
  put(off, nop5_bytes());
  jump_table({{off, kTarget}});
  options.catalogue = true;
  open();
  EXPECT_EQ(at(off, 5, 100), sorted({nop5_bytes(), jmp32_bytes(off, kTarget)}));
}

TEST_F(X86Catalogue, AskedForWithoutATableIsReported) {
  options.catalogue = true;
  open();
  EXPECT_NE(find_notice(*capture, Code::kCatalogueWithoutJumpLabels), nullptr);
}

// The table may contain anything: addresses outside the text, duplicate addresses, targets out of reach.
TEST_F(X86Catalogue, ATableOfNonsenseDoesNoHarm) {
  const Addr off = kText + 0x500;
  put(off, nop5_bytes());
  jump_table({{0, 0}, {off, off - 0x20}, {off, off - 0x40}, {kText + Recording::kTextSize - 2, kText}});
  lose();
  open();
  EXPECT_EQ(at(off, 5, kAfter), sorted({nop5_bytes(), jmp32_bytes(off, off - 0x20)}));
}

}  // namespace
}  // namespace asof
