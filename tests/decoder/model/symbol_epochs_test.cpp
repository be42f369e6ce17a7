// How long a name is valid: compared with a search of the table itself at every instant.
#include "decoder/model/symbol_epochs.h"

#include <gtest/gtest.h>

#include <random>

namespace asof {
namespace {

TEST(SymbolEpochs, NoNameChangesInsideAnInterval) {
  std::mt19937 rng(3);
  const auto below = [&](unsigned n) { return static_cast<Time>(rng() % n); };
  for (int round = 0; round < 30; ++round) {
    SymbolTable table;
    for (int i = 0; i < 12; ++i) {
      Symbol s;
      s.space = static_cast<Space>(below(2));
      s.range.begin = 0x1000 + 0x10 * static_cast<Addr>(below(8));
      s.range.end = s.range.begin + 0x10 * static_cast<Addr>(1 + below(3));
      if (below(3) != 0) {
        s.from = below(50);
        s.until = s.from + below(50);
      }
      s.name = "f" + std::to_string(i);
      s.rank = static_cast<int>(below(3));
      table.add(std::move(s));
    }
    table.finish();
    const SymbolEpochs epochs(table);
    for (Time t = 0; t < 100; t += 3) {
      for (Space space = 0; space < 2; ++space) {
        const Addr a = 0x1000 + static_cast<Addr>(below(0xa0));
        const TimeBounds b = epochs.around(space, {a, a + 1}, t);
        ASSERT_LE(b.lo, t);
        ASSERT_GE(b.hi, t);
        const auto here = table.find(space, a, t);
        for (Time other = std::max<Time>(b.lo, 0); other <= std::min<Time>(b.hi, 110); ++other) {
          const auto there = table.find(space, a, other);
          ASSERT_EQ(here ? here->symbol : nullptr, there ? there->symbol : nullptr)
              << "at " << t << " and " << other;
        }
      }
    }
  }
}

}  // namespace
}  // namespace asof
