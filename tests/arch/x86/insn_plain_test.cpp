// The table of plain instructions agrees with the library, or gives no answer.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "arch/x86/insn.h"
#include "tests/support/sim_random.h"

namespace asof::x86 {
namespace {

constexpr Addr kIp = 0x401000;
using Window = std::span<const uint8_t, 15>;

// True: the table has an answer.
bool compare(Window bytes) {
  Insn plain, full;
  if (!decode_plain(bytes, kIp, plain)) return false;
  const InsnStatus status = decode_insn_fully(bytes, kIp, 64, full);
  const bool same = status == InsnStatus::kOk && plain.length == full.length && plain.kind == full.kind &&
                    plain.target == full.target && plain.writes_cr3 == full.writes_cr3 &&
                    plain.vm_entry == full.vm_entry && plain.wrmsr == full.wrmsr;
  EXPECT_TRUE(same) << fmt::format("{:02x}: length {} kind {}, not {} and {} (status {})",
                                   fmt::join(bytes, " "), plain.length, static_cast<int>(plain.kind),
                                   full.length, static_cast<int>(full.kind), static_cast<int>(status));
  return true;
}

TEST(PlainInstructions, RandomBytes) {
  test::SimRandom random(7);
  size_t answered = 0;
  constexpr uint8_t kStarts[] = {0x0f, 0x66, 0xf3, 0xf2, 0x48, 0x41, 0x64, 0x2e, 0xff, 0xc6, 0xf6};
  for (int n = 0; n < 400'000 && !testing::Test::HasFailure(); ++n) {
    std::array<uint8_t, 15> b;
    for (uint8_t& x : b) x = static_cast<uint8_t>(random.next());
    for (size_t i = 0; i < 3 && random.chance(50); ++i) b[i] = kStarts[random.below(std::size(kStarts))];
    answered += compare(b);
  }
  EXPECT_GT(answered, 100'000U);
}

// Every opcode with every ModRM, after the prefixes that may precede it.
TEST(PlainInstructions, EveryOpcode) {
  const std::vector<std::vector<uint8_t>> prefixes = {
      {},           {0x66},      {0xf3}, {0xf2},       {0x48},       {0x41},
      {0x4f},       {0x64},      {0x2e}, {0x66, 0x2e}, {0x66, 0x48}, {0x65, 0x66, 0x4c},
      {0xf3, 0x48}, {0xf2, 0x44}};
  for (const auto& prefix : prefixes) {
    for (unsigned two = 0; two < 2; ++two) {
      for (unsigned i = 0; i < 0x10000 && !testing::Test::HasFailure(); ++i) {
        std::array<uint8_t, 15> b{};
        auto to = std::ranges::copy(prefix, b.begin()).out;
        if (two != 0) *to++ = 0x0f;
        *to++ = static_cast<uint8_t>(i >> 8);
        *to++ = static_cast<uint8_t>(i);
        *to++ = 0x25;  // as SIB: no base
        compare(b);
      }
    }
  }
}

// At every third byte of real programs and kernels, also in the middle of instructions and in data.
TEST(PlainInstructions, RealText) {
  const std::filesystem::path captures = std::filesystem::path(ASOF_SHARED_DIR) / "captures";
  size_t files = 0;
  for (const char* name : {"pt-cc1/text.img", "pt-work-1round/text.img", "x86-board-storm/kcore.end"}) {
    std::ifstream in(captures / name, std::ios::binary);
    if (!in) continue;
    ++files;
    const std::vector<uint8_t> text{std::istreambuf_iterator<char>(in), {}};
    size_t answered = 0;
    for (size_t i = 0; i + 15 <= text.size() && !testing::Test::HasFailure(); i += 3)
      answered += compare(Window(text.data() + i, 15));
    EXPECT_GT(answered, text.size() / 10) << name;
  }
  if (files == 0) GTEST_SKIP() << "no captures in " << captures;
}

}  // namespace
}  // namespace asof::x86
