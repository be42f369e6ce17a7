// Memoised paths (arch/x86/path_cache.h): what is read of their packets, when two are the same, and flows
// that repeat them on deep return stacks.
#include "arch/x86/path_cache.h"

#include <algorithm>
#include <array>
#include <deque>

#include "arch/x86/state.h"
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

// A byte stream of the packets that form memoised paths, and of those that end them.
Bytes any_packets(asof::test::SimRandom& random, size_t size) {
  constexpr std::array<uint8_t, 5> kFull = {0xfe, 0x80, 0xaa, 0xc6, 0x82};
  Bytes out;
  while (out.size() < size) {
    const uint64_t what = random.below(11);
    if (what < 5)
      out.push_back(kFull[random.below(kFull.size())]);
    else if (what < 7)
      out.push_back(static_cast<uint8_t>(random.below(128) & ~1U));  // fewer bits, or PAD, or 0x02
    else if (what == 7)
      out.push_back(kMtcByte);  // its payload is the next byte
    else if (what < 10)
      out.push_back(static_cast<uint8_t>(0x0d | random.below(8) << 5));
    else
      out.push_back(static_cast<uint8_t>(random.next()));
    if ((out.back() & 0x1f) == 0x0d)
      for (int i = 0; i < 8; ++i) out.push_back(static_cast<uint8_t>(random.next()));
  }
  return out;
}

// What the packets at `p` are; all but the TIP by byte.
struct Expected {
  uint64_t tnt = 0;
  size_t tnts = 0, size = 0;
  Addr ip = 0;

  Expected(const uint8_t* p, const uint8_t* end, Addr last_ip) : ip(last_ip) {
    while (tnts < PathSize::kFull && p + tnts < end && p[tnts] >= 0x80 && p[tnts] % 2 == 0) ++tnts;
    if (p + tnts < end && is_short_tnt(p[tnts])) ++tnts;
    for (size_t i = 0; i < tnts; ++i) tnt |= uint64_t{p[i]} << 8 * i;
    Tip tip;
    const bool ends = tip.read(p + tnts, end, last_ip) && p[tnts] >> 5 <= 3;
    size = tnts + (ends ? tip.size : 0);
    if (ends) ip = tip.ip;
  }
};

// In each width that the processor has.
class PathPacketsOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(PathPackets, PathPacketsOf,
                         testing::ValuesIn(PathWindow::has_wide() ? std::vector{false, true}
                                                                  : std::vector{false}),
                         [](const auto& wide) { return wide.param ? "Wide" : "Narrow"; });

TEST_P(PathPacketsOf, AreWhatAReaderOfPacketsFinds) {
  std::array<uint64_t, PathSize::kMost + 1> sizes{};
  uint64_t mtcs = 0;
  PathWindow window(GetParam());
  for (uint64_t seed = 1; seed <= 4'000 && !HasFailure(); ++seed) {
    asof::test::SimRandom random(seed);
    const Bytes bytes = any_packets(random, 700);
    const Addr last_ip = canonical(random.next());
    const uint8_t* const from = &bytes[random.below(100)];
    const bool over_mtc = random.below(2) == 0;
    window.forget();
    window.go_over_mtc(over_mtc);
    window.cover(from, bytes.data() + bytes.size());
    // A path may begin behind what is covered, after one that begins in it.
    const auto places = static_cast<size_t>(window.end() - from) + PathSize::kMost + PathSize::kMtc;
    for (size_t at = 0; at < places; ++at) {
      const Expected expected(from + at, bytes.data() + bytes.size(), last_ip);
      const uint8_t* const place = window.place(from + at);
      const PathSize size = PathWindow::size_at(place);
      const PathPackets packets = PathPackets::read(place, size, last_ip & kLow48);
      EXPECT_EQ(window.at(place), from + at);
      EXPECT_EQ(size.all(), expected.size) << "seed " << seed << " at " << at;
      EXPECT_EQ(size.tnts(), expected.tnts) << "seed " << seed << " at " << at;
      EXPECT_EQ(packets.tnt(), expected.tnt) << "seed " << seed << " at " << at;
      EXPECT_EQ(canonical(packets.ip), expected.ip) << "seed " << seed << " at " << at;
      EXPECT_EQ(packets.size().all(), size.all()) << "seed " << seed << " at " << at;
      EXPECT_EQ(packets.key == 0, expected.size == 0) << "seed " << seed << " at " << at;
      ++sizes.at(size.all());
      if (size.all() == 0) continue;
      const bool mtc = over_mtc && from[at + size.all()] == kMtcByte;
      EXPECT_EQ(static_cast<size_t>(PathWindow::behind_path(place) - place),
                size.all() + (mtc ? kMtcSize : 0))
          << "seed " << seed << " at " << at;
      mtcs += mtc;
    }
  }
  EXPECT_EQ(std::ranges::count(sizes, 0U), 0);
  EXPECT_GT(mtcs, 1'000U);
}

TEST(PathWindow, WhatIsNotOfTheTraceIsPad) {
  constexpr std::array<uint8_t, 6> kPackets = {0xfe, 0xfe, 0x2d, 0x34, 0x12, 0xfe};
  PathWindow window;
  EXPECT_FALSE(window.covers(kPackets.data()));
  std::vector<unsigned> sizes;
  for (size_t n = 1; n <= kPackets.size(); ++n) {
    // In memory of its own: one byte further is not to be read.
    const Bytes bytes(kPackets.begin(), kPackets.begin() + static_cast<std::ptrdiff_t>(n));
    window.cover(bytes.data(), bytes.data() + n);
    EXPECT_TRUE(window.covers(bytes.data()));
    EXPECT_TRUE(window.covers(window.end() - 1));
    EXPECT_FALSE(window.covers(window.end()));
    sizes.push_back(PathWindow::size_at(window.place(bytes.data())).all());
    if (n == kPackets.size())
      EXPECT_EQ(PathWindow::size_at(window.place(&bytes[5])).all(), 1U);
    else
      EXPECT_EQ(PathWindow::size_at(window.place(bytes.data()) + n).all(), 0U);
    window.forget();
    EXPECT_FALSE(window.covers(bytes.data()));
  }
  // The size of a TIP is that of all its bytes, whether they are there or not: nothing is read so near to the end.
  EXPECT_EQ(sizes, (std::vector<unsigned>{1, 2, 5, 5, 5, 5}));
}

TEST(PathCache, HasMorePlacesWhereManyPathsAreNew) {
  PathCache cache;
  size_t met = 0, grown = 0;
  for (size_t places = size_t{1} << (64 - cache.shift()); met < 100'000; ++met) {
    cache.paths()[met % places].packets.key = 1;
    cache.hashes()[places - 1] = {.hash = 1, .power = 2};
    if (!cache.count_new()) continue;
    ++grown;
    EXPECT_EQ(size_t{1} << (64 - cache.shift()), 8 * places);
    places = size_t{1} << (64 - cache.shift());
    EXPECT_TRUE(std::all_of(cache.paths(), cache.paths() + places,
                            [](const CachedPath& p) { return p.packets.key == 0; }));
    EXPECT_EQ(cache.hashes()[places - 1].hash, 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cache.paths()) % kCacheLine, 0U);
    EXPECT_LT(PathCache::place({.key = ~uint64_t{0}, .ip = 5}, 9, cache.shift()), places);
    if (grown == 2) break;
  }
  EXPECT_EQ(grown, 2U);
  for (met = 0; met < 100'000; ++met) EXPECT_FALSE(cache.count_new()) << "there are as many as may be";
}

TEST(CachedPath, IsTheSameOnlyWithAllThatDecidesIt) {
  const PathPackets packets{.key = 0x0300'0000'0000'0c86, .ip = 0x401000};
  constexpr Edge kAt{0x70};
  std::array<Edge, 6> stack = {Edge{0x10}, Edge{0x20}, Edge{0x30}, Edge{0x40}, Edge{0x50}, Edge{0x60}};
  const Edge* const newest = &stack[5];
  CachedPath path;
  EXPECT_FALSE(path.is(packets, kAt, newest));
  path.packets = packets;
  path.out[0] = step_code(kAt, 0);
  path.returns = CachedPath::newest_at(newest);
  EXPECT_EQ(path.returns, (CachedPath::Returns{Edge{0x20}, Edge{0x30}, Edge{0x40}, Edge{0x50}, Edge{0x60}}));
  EXPECT_TRUE(path.is(packets, kAt, newest));
  path.out[0] = step_code(kAt, kTakenBit);
  EXPECT_TRUE(path.is(packets, kAt, newest));
  EXPECT_FALSE(path.is({.key = packets.key ^ 0x20, .ip = packets.ip}, kAt, newest));
  EXPECT_FALSE(path.is({.key = packets.key, .ip = packets.ip + 1}, kAt, newest));
  EXPECT_FALSE(path.is(packets, Edge{0x80}, newest));
  // The entries that it pops, and no others.
  for (uint8_t pops = 0; pops <= CachedPath::kMaxCalls; ++pops) {
    path.pops = pops;
    for (size_t i = 0; i < stack.size(); ++i) {
      auto other = stack;
      other[i] = Edge{std::to_underlying(other[i]) ^ 0x100};
      EXPECT_EQ(path.is(packets, kAt, &other[5]), i + pops < stack.size()) << int{pops} << " of " << i;
    }
  }
}

// A chain of calls without a branch, at its end a function that calls itself between branches to the next
// instruction, and at the end of that another chain; run by hardware that compresses returns to its `entries`
// latest calls.
class Recursion {
 public:
  explicit Recursion(size_t entries) : entries_(entries) {
    s.code(A, {0xe8, 0xfb, 1, 0, 0, 0xff, 0xe0});  // CALL kFirst; JMP RAX
    chain_code(kFirst, kFirstCalls, kFunction);
    chain_code(kLast, kLastCalls, 0);
    Bytes f;
    const auto branches = [&](int n) {
      for (int i = 0; i < n; ++i) f.insert(f.end(), {0x74, 0});  // JE to the next
    };
    branches(kBefore);
    f.insert(f.end(), {0x74, 6 + 2 * kAfter, 0xe8});  // JE to the last CALL; CALL kFunction
    const auto back = static_cast<uint8_t>(-static_cast<int>(f.size() + 4));
    f.insert(f.end(), {back, 0xff, 0xff, 0xff});
    branches(kAfter);
    f.push_back(0xc3);
    f.insert(f.end(), {0x74, 5});  // JE to the RET
    call_code(f, kFunction, kLast);
    f.push_back(0xc3);
    s.code(A + kFunction, f);
    s.start(A);
  }

  void round(unsigned depth, unsigned pattern, bool ends_in_chain) {
    call(0, 5);
    chain(kFirst, kFirstCalls, [&] { function(depth, pattern, ends_in_chain); });
    ret(5);
    go(5);
    s.pt.tip(A);
  }

  FlowFixture s;
  std::vector<Addr> ran;

 private:
  static constexpr Addr kFunction = 0x100, kFirst = 0x200, kLast = 0x800;
  static constexpr int kBefore = 7, kAfter = 8, kFirstCalls = 25, kLastCalls = 20;

  static void call_code(Bytes& code, Addr base, Addr to) {
    const auto rel = static_cast<uint32_t>(to - (base + code.size() + 5));
    code.push_back(0xe8);
    for (int i = 0; i < 4; ++i) code.push_back(static_cast<uint8_t>(rel >> 8 * i));
  }
  // Functions that call the next one and return; the last one calls `end` or, if it is 0, has a branch: a run
  // that returns to its own call leaves nothing on the stack in between (runs.h), but hardware does.
  void chain_code(Addr first, int calls, Addr end) {
    for (Addr at = first; at <= first + 16 * static_cast<Addr>(calls); at += 16) {
      const bool last = at == first + 16 * static_cast<Addr>(calls);
      Bytes code;
      if (!last || end != 0)
        call_code(code, at, last ? end : at + 16);
      else
        code = {0x74, 0};  // JE to the next
      code.push_back(0xc3);
      s.code(A + at, code);
    }
  }

  void go(Addr at) { ran.push_back(A + at); }
  void branch(Addr at, bool taken) {
    go(at);
    s.pt.tnt(taken);
  }
  void call(Addr at, Addr after) {
    go(at);
    calls_.push_back(after);
    if (calls_.size() > entries_) calls_.pop_front();
  }
  void ret(Addr to) {  // the RET has run
    if (calls_.empty()) {
      s.pt.tip(A + to);
    } else {
      EXPECT_EQ(calls_.back(), to);
      calls_.pop_back();
      s.pt.tnt(true);
    }
  }
  template <class End>
  void chain(Addr at, int calls, const End& end) {
    const bool called = calls != 0 || at < kLast;
    if (called) call(at, at + 5);
    if (calls != 0) {
      chain(at + 16, calls - 1, end);
    } else if (called) {
      end();
    }
    if (called)
      ret(at + 5);
    else
      branch(at, true);
    go(called ? at + 5 : at + 2);
  }
  void function(unsigned depth, unsigned pattern, bool ends_in_chain) {
    constexpr Addr kRecurses = kFunction + 2 * kBefore + 2, kEnd = kRecurses + 6 + 2 * kAfter;
    for (int i = 0; i < kBefore; ++i) branch(kFunction + 2 * static_cast<Addr>(i), (pattern >> i & 1) != 0);
    branch(kRecurses - 2, depth == 0);
    if (depth == 0) {
      branch(kEnd, !ends_in_chain);
      if (ends_in_chain) {
        call(kEnd + 2, kEnd + 7);
        chain(kLast, kLastCalls, [] {});
        ret(kEnd + 7);
      }
      go(kEnd + 7);
      return;
    }
    call(kRecurses, kRecurses + 5);
    function(depth - 1, pattern, ends_in_chain);
    ret(kRecurses + 5);
    for (Addr i = 0; i < kAfter; ++i) branch(kRecurses + 5 + 2 * i, (pattern >> (i & 3) & 1) != 0);
    go(kEnd - 1);
  }

  const size_t entries_;
  std::deque<Addr> calls_;
};

void run_deep(Recursion& r, uint64_t seed) {
  asof::test::SimRandom random(seed);
  for (int i = 0; i < 30; ++i) {
    const uint64_t depth = random.chance(60) ? random.between(14, 64) : random.between(64, 110);
    r.round(static_cast<unsigned>(depth), random.chance(90) ? 0x15 : 0x4a, random.chance(50));
  }
  stop_at(r.s, A);
}

TEST(FastX86, ReturnsFromDeepCalls) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Recursion r(RetStack::kSize);
    run_deep(r, seed);
    r.s.expect(r.ran);
  }
}

// The same where every return has a TIP.
TEST(FastX86, ReturnsFromDeepCallsWithoutCompression) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const bool said : {true, false}) {
      SCOPED_TRACE(fmt::format("seed {}, {}", seed, said ? "said" : "not said"));
      Recursion r(0);
      r.s.config.no_ret_compression = said;
      run_deep(r, seed);
      const Decoded d = r.s.expect(r.ran);
      if (said) {
        EXPECT_GT(d.in_runs, r.ran.size() * 9 / 10);
      }
    }
  }
}

// No hardware has more than 64 entries. If such a trace existed, returns to entries dropped from the stack
// would be detected, at the same position by every walk.
TEST(FastX86, ReturnsToWhatHasFallenOut) {
  for (const size_t entries : {65U, 66U, 70U, 100U}) {
    for (uint64_t seed = 1; seed <= 15; ++seed) {
      SCOPED_TRACE(fmt::format("{} entries, seed {}", entries, seed));
      Recursion r(entries);
      run_deep(r, seed);
      const Decoded d = r.s.decode_all_ways();
      EXPECT_NE(std::ranges::count(d.gap_codes(), Code::kReturnWithoutItsCall), 0);
    }
  }
}

}  // namespace
}  // namespace asof::x86::test
