// Blocks of text that never changes: the same, word by word, as from looking up each byte in the text.
#include "arch/arm64/stable_text.h"
#include "arch/arm64/patch_rules.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "arch/walk/block_cache.h"
#include "tests/support/etm_asm.h"
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::arm64 {
namespace {

using namespace asof::test;

constexpr Addr kText = 0xffff800010000000;

uint32_t some_word(SimRandom& random, unsigned branch_percent) {
  if (!random.chance(branch_percent))
    return a64::straight(static_cast<unsigned>(random.below(a64::kStraightKinds)));
  const std::array<uint32_t, 8> others = {a64::kRet, a64::blr(1), a64::kIsb,  a64::kWfi,
                                          a64::kNop, a64::brk(4), a64::kEret, 0x1234};
  if (random.chance(50)) return others[random.below(others.size())];
  return static_cast<uint32_t>(random.below(uint64_t{1} << 26)) | 0x14000000U |
         static_cast<uint32_t>(random.below(64)) << 26;  // the branch group, and words that resemble it
}

// Adjacent pieces of code, some with a hole after them, some that end inside a word, some poked.
struct Pieces {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<std::array<uint8_t, 8>> poked;
  std::optional<TextStore> text;
  Addr end = kText;

  explicit Pieces(SimRandom& random) {
    Builder builder;
    builder.set_patch_rules(arm64::kPatchRules);
    poked.reserve(100);
    bytes.reserve(100);
    const unsigned branches = random.chance(30) ? 0 : 15;
    while (bytes.size() < 12) {
      std::vector<uint8_t>& piece = bytes.emplace_back();
      const uint64_t words = 1 + random.below(random.chance(20) ? 600 : 40);
      for (uint64_t i = 0; i < words; ++i) {
        const auto b = a64::bytes_of(some_word(random, branches));
        piece.insert(piece.end(), b.begin(), b.end());
      }
      if (random.chance(20)) piece.resize(piece.size() - 1 - random.below(3));
      Layer layer;
      layer.range = range_of(end, piece.size());
      layer.bytes = piece;
      builder.add_layer(layer);
      if (random.chance(20) && piece.size() > 8) {
        Poke poke;
        poke.addr = end + random.below((piece.size() - 4) / 4) * 4;
        poke.time = 1000;
        auto& b = poked.emplace_back();
        std::copy_n(&piece[poke.addr - end], 4, b.begin());
        std::copy_n(a64::bytes_of(a64::kNop).begin(), 4, b.begin() + 4);
        poke.old_bytes = std::span(b).first(4);
        poke.new_bytes = std::span(b).last(4);
        builder.add_poke(poke);
      }
      end += piece.size();
      if (random.chance(20)) end += 1 + random.below(9);
    }
    text.emplace(std::move(builder).build());
  }
};

struct Slow {
  std::vector<uint8_t> bytes;
  Insn last;
  uint64_t hash = 0;

  Slow(const TextStore& text, TextAt text_at, bool wfx, Addr ip) {
    for (Addr at = ip; bytes.size() < size_t{4} * walk::kMaxBlockInsns && last.waypoint == Waypoint::kNone;
         at += 4) {
      std::vector<uint8_t> word;
      for (Addr a = at; a < at + 4; ++a) {
        const Cell cell = text.cell(kKernelSpace, a);
        const Version* only = nullptr;
        const Time then = text_at == TextAt::kFirst ? kTimeMin : kTimeMax;
        for (const Version& v : cell.versions) {
          const bool meant = text_at == TextAt::kAsof ? cell.stable() : v.from <= then && v.until >= then;
          if (meant) only = &v;
        }
        if (only == nullptr || only->bytes == nullptr) return;
        word.push_back(only->bytes[a - cell.range.begin]);
      }
      Insn insn;
      decode_insn(word, at, kA64, wfx, insn);
      if (insn.waypoint == Waypoint::kTrap) {
        last = Insn{};
        return;
      }
      last = insn;
      bytes.insert(bytes.end(), word.begin(), word.end());
      hash = hash * kHashFactor + at;
    }
  }
};

void expect_block(const Block& b, const Insn& last, const Slow& slow) {
  ASSERT_EQ(b.size, slow.bytes.size());
  EXPECT_EQ(b.count, b.size / 4);
  EXPECT_TRUE(std::equal(slow.bytes.begin(), slow.bytes.end(), b.bytes));
  EXPECT_EQ(b.hash, slow.hash);
  uint64_t power = 1;
  for (unsigned i = 0; i < b.count; ++i) power *= kHashFactor;
  EXPECT_EQ(b.power, power);
  for (unsigned i = 0; i < b.count; ++i) ASSERT_EQ(b.lengths[i], 4);
  EXPECT_EQ(last.waypoint, slow.last.waypoint);
  EXPECT_EQ(last.link, slow.last.link);
  EXPECT_EQ(last.conditional, slow.last.conditional);
  EXPECT_EQ(last.exception_return, slow.last.exception_return);
  EXPECT_EQ(b.kind, slow.last.kind);
  EXPECT_EQ(b.target, slow.last.target);
}

TEST(StableTextArm64, BlocksAreWhatWordByWordGives) {
  unsigned blocks = 0, none = 0, whole = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimRandom random(seed);
    const Pieces pieces(random);
    const bool wfx = random.chance(50);
    const TextAt text_at = std::array{TextAt::kAsof, TextAt::kFirst, TextAt::kLast}[seed % 3];
    StableText text(*pieces.text, text_at, wfx);
    Arena arena;
    for (Addr ip = kText; ip < pieces.end + 8; ip += 4) {
      const Slow slow(*pieces.text, text_at, wfx, ip);
      auto* const b = arena.take<Block>(1);
      Insn last;
      const bool found = text.read(kKernelSpace, ip, arena, *b, last);
      ASSERT_EQ(found, !slow.bytes.empty()) << seed << " " << std::hex << ip;
      ++(found ? blocks : none);
      if (!found) continue;
      EXPECT_EQ(b->ip, ip);
      expect_block(*b, last, slow);
      whole += b->count == walk::kMaxBlockInsns ? 1 : 0;
      if (testing::Test::HasFailure()) FAIL() << seed << " " << std::hex << ip;
    }
  }
  EXPECT_GT(blocks, 10'000U);
  EXPECT_GT(none, 100U);
  EXPECT_GT(whole, 100U) << "blocks that are cut because of their length";
}

}  // namespace
}  // namespace asof::arm64
