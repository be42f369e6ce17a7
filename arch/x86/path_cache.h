// PathCache: paths that ran before. A path is what a few short TNT packets, and the TIP after them if there
// is one, decide. Two of three repeat one of the last thousands: then its runs are copied, instead of found
// one by one (fast_paths.cpp).
//
// Invariants:
//  * Where a path goes follows from its packets, the last IP, the run that it begins in and the entries that
//    it takes off the return stack. All of them are compared; nothing rests on a hash.
//  * The runs are of text that never changes (runs.h), so what is kept stays true.
//  * They are one decoder's own: to read what another processor has just written takes as long as the walk.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "arch/x86/packet.h"
#include "arch/x86/path_window.h"
#include "arch/x86/runs.h"
#include "arch/zeroed.h"

namespace asof::x86 {

inline constexpr uint64_t kLow48 = ~uint64_t{0} >> 16;
constexpr Addr canonical(uint64_t low48) {
  return static_cast<Addr>(static_cast<int64_t>(low48 << 16) >> 16);
}

// Of TIPs with two, four or six bytes that say a canonical address; others are not part of a path.
constexpr bool ends_path(uint8_t b) { return is_tip(b) && b >> 5 >= 1 && b >> 5 <= 3; }

// In one object, so that one register leads to all of it.
struct PathTables {
  // By the byte that may begin the TIP of a path: which bits of the last IP stay, and which are in it.
  struct Tip {
    uint64_t kept, taken;
  };
  std::array<Tip, 256> tips;
  // Of bytes that are loaded at once, those of so many TNT packets.
  std::array<uint64_t, PathSize::kFull + 2> tnts;
};
inline constexpr auto kPathTables = [] {
  PathTables all{};
  for (unsigned b = 0; b < all.tips.size(); ++b) {
    const uint64_t kept = ends_path(static_cast<uint8_t>(b)) ? kIpBytes[b >> 5].kept : ~uint64_t{0};
    all.tips[b] = {kept, ~kept & kLow48};
  }
  for (unsigned n = 0; n < all.tnts.size(); ++n) all.tnts[n] = (uint64_t{1} << 8 * n) - 1;
  return all;
}();

// The packets of a path: up to PathSize::kFull TNT packets of six bits, one that may have fewer, a TIP.
struct PathPackets {
  static constexpr unsigned kMaxBits = 6 * (PathSize::kFull + 1);
  static constexpr unsigned kReads = PathSize::kFull + 10;  // bytes
  static constexpr int64_t kTwo =
      PathSize::kMost + PathSize::kMtc + kReads;  // what reading one and the next needs

  uint64_t key = 0;  // the TNT packets, first in the lowest byte; size() in the highest. 0: there is no path
  uint64_t ip = 0;   // the last IP after them, its low 48 bits

  uint64_t tnt() const { return key & ~uint64_t{0} >> 8; }
  PathSize size() const { return PathSize{static_cast<uint8_t>(key >> 56)}; }

  // Those at p, in memory of kReads bytes; `last_ip` has its low 48 bits only. Without a branch, as no
  // processor foresees which packets come.
  static PathPackets read(const uint8_t* p, PathSize size, uint64_t last_ip) {
    const uint8_t* const at_tip = p + size.tnts();
    const PathTables::Tip& tip = kPathTables.tips[*at_tip];
    return {.key = (load_le(p, 8) & kPathTables.tnts[size.tnts()]) | size.packed() << 56,
            .ip = (last_ip & tip.kept) | (load_le(at_tip + 1, 8) & tip.taken)};
  }
};

inline constexpr size_t kCacheLine = 64;

// A path that ran. What is compared lies in the first line of the cache, with as many codes as there is room for; what
// is of the return stack lies in the last one, which few paths need where returns are not compressed.
struct alignas(kCacheLine) CachedPath {
  static constexpr uint32_t kMaxCalls = 5;  // that it takes off the return stack, and that it puts on
  static constexpr uint32_t kMaxPeak = 8;   // entries more than in the beginning, at a time
  using Returns = std::array<Edge, kMaxCalls>;

  PathPackets packets;
  Edge to{};
  uint16_t instructions = 0;
  uint8_t codes = 0;
  uint8_t pops = 0;              // entries of the beginning that are taken off
  int8_t grows = 0;              // entries more at its end
  uint8_t peak = 0;              // the same, at the most
  uint16_t branches = 0;         // in all of its runs; with PathHash only
  std::array<StepCode, 31> out;  // the first one says where it begins
  Returns returns{};             // the newest ones of the beginning, the newest last
  Returns pushed{};              // what lies at its end where the first of `pops` lay, and above

  static constexpr size_t kFirstCodes = 9;  // those in the first line
  static constexpr size_t kMostCodes = 24;  // those that are copied without a look at how many there are
  Edge from() const { return edge_to_run_of(out[0]); }
  // It takes the same path from `at` when the return stack ends at `newest`. Without kReturns no path uses the stack.
  template <bool kReturns = true>
  bool is(PathPackets p, Edge at, const Edge* newest) const {
    return packets.key == p.key && packets.ip == p.ip && from() == at && (!kReturns || returns_alike(newest));
  }
  static Returns newest_at(const Edge* newest) {
    Returns out;
    std::memcpy(out.data(), newest - (kMaxCalls - 1), sizeof out);
    return out;
  }

 private:
  // kMaxCalls entries.
  struct Words {
    uint64_t newest, middle;
    uint32_t oldest;
    static Words ending(const Edge* last) {
      Words w;
      std::memcpy(&w.newest, last - 1, sizeof w.newest);
      std::memcpy(&w.middle, last - 3, sizeof w.middle);
      w.oldest = std::to_underlying(last[-4]);
      return w;
    }
  };
  static_assert(kMaxCalls == 5);

  bool returns_alike(const Edge* others) const {
    static constexpr uint64_t kLast = ~0ULL << 32, kBoth = ~0ULL;
    static constexpr std::array<Words, kMaxCalls + 1> kCompared = {{{0, 0, 0},  // by `pops`
                                                                    {kLast, 0, 0},
                                                                    {kBoth, 0, 0},
                                                                    {kBoth, kLast, 0},
                                                                    {kBoth, kBoth, 0},
                                                                    {kBoth, kBoth, ~0U}}};
    const Words a = Words::ending(&returns.back()), b = Words::ending(others);
    const Words& compared = kCompared[pops];
    return (((a.newest ^ b.newest) & compared.newest) | ((a.middle ^ b.middle) & compared.middle) |
            ((a.oldest ^ b.oldest) & compared.oldest)) == 0;
  }
};
static_assert(std::tuple_size_v<decltype(CachedPath::out)> > PathPackets::kMaxBits);
static_assert(sizeof(CachedPath) == 3 * kCacheLine);
static_assert(offsetof(CachedPath, out) + CachedPath::kFirstCodes * sizeof(StepCode) == kCacheLine);
static_assert(offsetof(CachedPath, returns) >= 2 * kCacheLine);

// Asks for it ahead of its use. What nothing waits for is not asked for without kReturns.
template <bool kReturns>
void prefetch(const CachedPath& path) {
  for (size_t at = 0; at < (kReturns ? sizeof(CachedPath) : kCacheLine); at += kCacheLine)
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&path) + at);
}

// The paths met lately; a new one takes the place of another. There are few places at first: a page of memory that is used
// for the first time takes a fault, which is as long as some tens of new paths. They become more, all empty, when enough new
// paths were met to be worth it.
class PathCache {
 public:
  PathCache() : table_(kFewest) {}
  CachedPath* paths() { return table_.paths; }
  // One for each path; a path that was put down without has none.
  PathHash* hashes() {
    if (!hashes_) hashes_ = zeroed_array<PathHash>(size_t{1} << table_.bits);
    return hashes_.get();
  }
  // How place() chooses; changes with paths().
  unsigned shift() const { return 64 - table_.bits; }
  // Which of them: that of these packets after this last IP. Where the path begins is not asked: the last IP
  // says nearly as much, and it is known before the path before it is done.
  static size_t place(PathPackets p, uint64_t last_ip, unsigned shift) {
    const uint64_t h = (p.key ^ std::rotl(last_ip, 24) ^ std::rotl(p.ip, 44)) * 0x9E3779B97F4A7C15U;
    return h >> shift;
  }
  // A new path was met. True: paths(), shift() and hashes() are others.
  bool count_new() {
    if (--until_larger_ != 0) [[likely]]
      return false;
    return grow();
  }

 private:
  static constexpr unsigned kFewest = 7;  // two to the power of that: 24 KiB
  static constexpr unsigned kStep = 3;
  static constexpr unsigned kMost = 13;  // 1.5 MiB: what a second-level cache has room for
  static constexpr size_t kWorth = 4;    // new paths for each place there is

  struct Table {
    explicit Table(unsigned of);

    unsigned bits;
    ZeroedArray<std::byte> memory;
    CachedPath* paths;
  };
  bool grow();

  Table table_;
  ZeroedArray<PathHash> hashes_;
  size_t until_larger_ = kWorth << kFewest;
};

}  // namespace asof::x86
