// The text store against the slow, obvious one: any bytes are a history of layers, pokes and losses, and both
// must give the same candidates at every relevant instant.
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "arch/x86/patch_rules.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/naive_store.h"
#include "textstore/builder.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffffffff81000000;
constexpr uint64_t kSize = 16;  // bytes of text
constexpr Time kTick = 10000;   // ns; equal pokes within 5 us would count as recorded twice

class Numbers {
 public:
  explicit Numbers(std::span<const uint8_t> data) : data_(data) {}
  uint64_t below(uint64_t n) { return n == 0 || data_.empty() ? 0 : next() % n; }
  uint64_t between(uint64_t lo, uint64_t hi) { return lo + below(hi - lo + 1); }

 private:
  uint8_t next() {
    const uint8_t b = data_.front();
    data_ = data_.subspan(1);
    return b;
  }
  std::span<const uint8_t> data_;
};

struct History {
  std::vector<Layer> layers;
  std::vector<Poke> pokes;
  std::vector<LostRecords> lost;
  bool all_rings = false;
  std::deque<std::vector<uint8_t>> owned;
};

// Few different bytes, so that chains often fit; some make keys.
std::vector<uint8_t> some_bytes(Numbers& n, uint64_t size) {
  static constexpr uint8_t kBytes[] = {'a', 'b', 0x66, 0x90, 0xeb, 0x10};
  std::vector<uint8_t> out(size);
  for (uint8_t& b : out) b = kBytes[n.below(sizeof kBytes)];
  return out;
}

History history(Numbers& n) {
  constexpr uint64_t kTicks = 40;
  History h;
  for (uint64_t i = n.below(5); i != 0; --i) {
    Layer l;
    const uint64_t begin = n.below(kSize);
    l.range = {kText + begin, kText + n.between(begin + 1, kSize)};
    if (n.below(5) != 0) l.bytes = h.owned.emplace_back(some_bytes(n, l.range.size()));
    const uint64_t from = n.below(kTicks);
    if (n.below(2) != 0) l.from = static_cast<Time>(from) * kTick;
    if (n.below(2) != 0) l.until = static_cast<Time>(n.between(from, kTicks)) * kTick;
    l.soft_until = n.below(2) != 0;
    if (n.below(2) != 0) l.observed = static_cast<Time>(n.below(kTicks)) * kTick + 3000;
    l.rank = n.below(2) == 0 ? kRankSnapshot : kRankEpoch;
    h.layers.push_back(l);
  }
  const uint64_t pokes = n.below(8);
  std::vector<uint8_t> memory = some_bytes(n, kSize);
  for (uint64_t i = 0; i < pokes; ++i) {
    const uint64_t at = n.below(kSize - 4), size = n.between(1, 4);
    const auto first = memory.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<uint8_t> old(first, first + static_cast<std::ptrdiff_t>(size)), now = some_bytes(n, size);
    if (n.below(8) == 0) old = some_bytes(n, size);
    if (n.below(8) == 0)
      old.clear();
    else if (n.below(8) == 0)
      now.clear();
    std::copy(now.begin(), now.end(), first);
    const Time time = static_cast<Time>(i * 5) * kTick + static_cast<Time>(i) * 7 + 100;
    const auto& kept_old = h.owned.emplace_back(old);
    const auto& kept_now = h.owned.emplace_back(now);
    h.pokes.push_back({kText + at, time, kept_old, kept_now, 0, i});
  }
  for (uint64_t i = n.below(3); i != 0; --i) {
    const uint64_t after = n.below(kTicks);
    h.lost.push_back({0, static_cast<Time>(after) * kTick,
                      static_cast<Time>(n.between(after, kTicks)) * kTick, n.below(4)});
  }
  h.all_rings = n.below(2) != 0;
  return h;
}

std::set<Time> instants(const History& h) {
  std::set<Time> times{kTimeMin, -1, kTimeMax};
  const auto around = [&](Time t) {
    for (const Time d : {-1, 0, 1}) times.insert(saturating_add(t, d));
  };
  for (const Layer& l : h.layers) around(l.from), around(l.until), around(l.observed);
  for (const Poke& p : h.pokes) around(p.time);
  for (const LostRecords& l : h.lost) around(l.after), around(l.until);
  return times;
}

void check(const History& h) {
  Builder builder;
  builder.set_patch_rules(x86::kPatchRules);
  NaiveStore naive;
  for (const Layer& l : h.layers) builder.add_layer(l), naive.add_layer(l);
  for (const Poke& p : h.pokes) builder.add_poke(p), naive.add_poke(p);
  for (const LostRecords& l : h.lost) builder.add_lost(l), naive.add_lost(l);
  if (h.all_rings) builder.all_rings_recorded(), naive.all_rings_recorded();
  const TextStore store = std::move(builder).build();
  for (const Cell& cell : store.cells(kKernelSpace, {kText, kText + kSize})) {
    const AddrRange inside = cell.range.intersect({kText, kText + kSize});
    bool site = false;  // a site is compared as a whole, other text byte by byte
    for (const Poke& p : h.pokes)
      site = site || inside.overlaps(range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size())));
    const uint64_t step = site ? inside.size() : 1;
    for (Addr a = inside.begin; a < inside.end; a += step) {
      for (const Time t : instants(h)) {
        FUZZ_CHECK(possible_texts(cell, range_of(a, step), t) == naive.possible(range_of(a, step), t));
      }
    }
  }
}

}  // namespace
}  // namespace asof::test

FUZZ_TARGET(text_store) {
  asof::test::Numbers numbers(bytes);
  asof::test::check(asof::test::history(numbers));
}
