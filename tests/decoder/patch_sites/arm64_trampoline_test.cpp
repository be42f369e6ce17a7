// The KPTI code that runs at a fixmap address: found by how the kernel computes that address, with its bytes
// from memory or from vmlinux, and its names.
#include "decoder/patch_sites/arm64_trampoline.h"

#include <gtest/gtest.h>

#include "decoder/patch_sites/arm64_anchors.h"
#include "tests/decoder/patch_sites/arm64_test_util.h"

namespace asof::test {
namespace {

constexpr Addr kAlias = 0xfffffbfffdbf6000, kExit = kText + 0x200;

constexpr uint32_t adrp(unsigned reg, Addr from, Addr to) {
  const auto pages = static_cast<uint32_t>(static_cast<int64_t>((to >> 12U) - (from >> 12U)));
  return 0x90000000U | (pages & 3U) << 29U | ((pages >> 2U) & 0x7ffffU) << 5U | reg;
}
constexpr uint32_t add(unsigned reg, Addr to) {
  return 0x91000000U | static_cast<uint32_t>(to & 0xfffU) << 10U | reg << 5U | reg;
}

class Arm64Kernel : public testing::Test {
 protected:
  // mov x30, alias; adrp, add x29, exit; add x30, x30, x29; adrp, add x29, begin; sub x30, x30, x29
  void exit_code(Addr image, Addr at = kExit) {
    kernel.put(at, 0x92800000U | 2U << 21U | 0x400U << 5U | 30);
    kernel.put(at + 4, 0xf2800000U | 1U << 21U | 0xfdbfU << 5U | 30);
    kernel.put(at + 8, 0xf2800000U | 0x6000U << 5U | 30);
    kernel.put(at + 12, adrp(29, at + 12, image + 0x40));
    kernel.put(at + 16, add(29, image + 0x40));
    kernel.put(at + 20, 0x8b1d03de);
    kernel.put(at + 24, adrp(29, at + 24, image));
    kernel.put(at + 28, add(29, image));
    kernel.put(at + 32, 0xcb1d03de);
  }
  Capture open(const Bytes& vmlinux = {}) {
    CaptureOptions options = closed_options();
    if (!vmlinux.empty()) {
      write_bytes(kernel.path("vmlinux"), vmlinux);
      options.vmlinux = kernel.path("vmlinux").string();
    }
    return kernel.open(options);
  }
  static std::string name_at(const Capture& capture, Addr at) {
    const auto symbol = capture.symbols.find(kKernelSpace, at, 1000);
    return symbol ? symbol->symbol->name : "";
  }
  JumpLabels kernel;
};

TEST_F(Arm64Kernel, BytesFromMemory) {
  const Addr image = kText + 0x3000;
  kernel.put(image + 0x40, 0xd69f03e0);
  exit_code(image);
  const Capture capture = open();
  EXPECT_EQ(words(capture, kAlias + 0x40, 1000), Words{bytes_of(0xd69f03e0)});
  EXPECT_EQ(name_at(capture, kAlias + 0x40), ".entry.tramp.text");
  EXPECT_TRUE(capture.text->cell(kKernelSpace, kAlias + 0x1000).versions.empty());
}

// perf's copy ends at _etext, and the section is after it. The file was linked for another address.
TEST_F(Arm64Kernel, BytesAndNamesFromVmlinux) {
  constexpr Addr kSlide = 0x110000, kImageAt = 0x6000;
  exit_code(kText + kImageAt);
  const Addr linked = kText - kSlide;
  ExecutableSpec spec{.address = linked, .text = Bytes(0x8000, 0), .machine = 183};
  const auto word = arm64::word_bytes(0xd503201f);
  std::copy(word.begin(), word.end(), spec.text.begin() + kImageAt + 0x1040);
  spec.symbols = {{"_stext", linked, 0},
                  {"__entry_tramp_text_start", linked + kImageAt, 0},
                  {"tramp_vectors", linked + kImageAt, 0},
                  {"tramp_exit", linked + kImageAt + 0x1040, 0},
                  {"__entry_tramp_text_end", linked + kImageAt + 0x2000, 0}};
  const Capture capture = open(make_executable(spec));
  EXPECT_EQ(words(capture, kAlias + 0x1040, 1000), Words{bytes_of(0xd503201f)});
  EXPECT_TRUE(capture.text->cell(kKernelSpace, kAlias + 0x2000).versions.empty());
  EXPECT_EQ(name_at(capture, kAlias + 0x10), "tramp_vectors");
  EXPECT_EQ(name_at(capture, kAlias + 0x1044), "tramp_exit");
  EXPECT_NE(find_notice(capture, Code::kKernelTextFromFile), nullptr);
}

// Its address is known, its bytes are not: a name, and nothing else.
TEST_F(Arm64Kernel, BytesNowhere) {
  exit_code(kText + 0x6000);
  const Capture capture = open();
  EXPECT_EQ(name_at(capture, kAlias + 0x40), ".entry.tramp.text");
  EXPECT_TRUE(capture.text->cell(kKernelSpace, kAlias).versions.empty());
}

// Constants with another meaning.
TEST_F(Arm64Kernel, OtherCode) {
  exit_code(kText + 0x3000);
  kernel.put(kExit + 32, 0xcb1d03df);
  exit_code(kText + 0x3000, kText + 0x300);
  kernel.put(kText + 0x300 + 8, 0xf2800000U | 0x6001U << 5U | 30);  // not page-aligned
  exit_code(kText + 0x3000, kText + 0x3fe4);                        // cut by the end of the text
  const Capture capture = open();
  EXPECT_EQ(name_at(capture, kAlias + 0x40), "");
}

// The callback serves as an anchor only if kprobes alone use it.
TEST_F(Arm64Kernel, CallersOfTheTextPatcher) {
  kernel.writer().text_poke(kText + 0x1000, bytes_of(arm64::kNop), bytes_of(0xd4200080), {.time = 10});
  const Addr callback = kText + 0x500, patch = kText + 0x540, arm = kText + 0x580, other = kText + 0x5c0;
  kernel.symbol(callback, "aarch64_insn_patch_text_cb");
  kernel.symbol(patch, "aarch64_insn_patch_text");
  kernel.symbol(arm, "arch_arm_kprobe");
  kernel.symbol(other, "arch_prepare_kprobe");
  EXPECT_EQ(open().arm64.patch_text_cb, 0U);  // it has no caller
  kernel.put(arm + 8, *arm64::branch_word(arm + 8, patch, true));
  EXPECT_EQ(open().arm64.patch_text_cb, callback);
  kernel.put(other + 8, *arm64::branch_word(other + 8, patch, true));  // slots of kprobes as well
  EXPECT_EQ(open().arm64.patch_text_cb, 0U);
}

}  // namespace
}  // namespace asof::test
