// How long a name is valid: compared with a search of the table itself at every instant.
#include "decoder/model/symbol_epochs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

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

// Which files are mapped somewhere, and which modules are loaded at such a place.
TEST(SymbolEpochs, NoFileAndNoModuleChangesInsideAnInterval) {
  std::mt19937 rng(4);
  const auto below = [&](unsigned n) { return static_cast<Time>(rng() % n); };
  const auto range = [&] {
    const Addr begin = 0x1000 + 0x10 * static_cast<Addr>(below(8));
    return AddrRange{begin, begin + 0x10 * static_cast<Addr>(1 + below(3))};
  };
  for (int round = 0; round < 100; ++round) {
    Capture c;
    c.symbols.finish();
    for (int i = 0; i < 6; ++i) {
      CodeMapping m;
      m.space = below(2) != 0 ? Space{7} : kKernelSpace;
      m.range = range();
      if (below(3) != 0) m.from = below(50), m.until = m.from + below(50);
      c.code.mappings.push_back(m);
      ModuleLifetime module;
      module.range = range();
      module.from = below(50), module.until = module.from + below(50);
      module.seen = {module.from + below(10), module.until - below(10)};
      if (below(2) != 0) c.modules.push_back(module);
    }
    const SymbolEpochs epochs(c);
    const auto state = [&](Space space, Addr a, Time t) {
      std::vector<bool> all;
      for (const CodeMapping& m : c.code.mappings) {
        const bool here = m.space == space && m.range.contains(a);
        all.push_back(here && m.from <= t && t <= m.until);
        if (!here || space != kKernelSpace) continue;
        for (const ModuleLifetime& module : c.modules) {
          if (!module.range.overlaps(m.range)) continue;
          all.push_back(module.from <= t && t <= module.until);
          all.push_back(module.seen.lo <= t && t <= module.seen.hi);
        }
      }
      return all;
    };
    for (Time t = 0; t < 100; t += 3) {
      for (const Space space : {Space{7}, kKernelSpace}) {
        const Addr a = 0x1000 + static_cast<Addr>(below(0xa0));
        const TimeBounds b = epochs.around(space, {a, a + 1}, t);
        ASSERT_LE(b.lo, t);
        ASSERT_GE(b.hi, t);
        for (Time other = std::max<Time>(b.lo, 0); other <= std::min<Time>(b.hi, 110); ++other)
          ASSERT_EQ(state(space, a, t), state(space, a, other)) << "at " << t << " and " << other;
      }
    }
  }
}

}  // namespace
}  // namespace asof
