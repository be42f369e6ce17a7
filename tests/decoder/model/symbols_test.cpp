// SymbolTable: the name of an address at an instant.
#include "decoder/model/symbols.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/sim_random.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffffffff81000000;
const std::string kKernel = "[kernel.kallsyms]";

std::string name_at(const SymbolTable& table, Addr a, Time t = 0, Space space = kKernelSpace) {
  const auto found = table.find(space, a, t);
  if (!found) return "-";
  return found->symbol->name + (found->offset != 0 ? "+" + std::to_string(found->offset) : "");
}

Symbol symbol(Addr a, uint64_t size, const std::string& name, const std::string& dso = kKernel) {
  Symbol s;
  s.range = range_of(a, size);
  s.name = name;
  s.dso = dso;
  return s;
}

TEST(Symbols, SizesEndThem) {
  SymbolTable table;
  table.add(symbol(kText, 16, "first"));
  table.add(symbol(kText + 32, 16, "second"));
  table.finish();
  EXPECT_EQ(name_at(table, kText - 1), "-");
  EXPECT_EQ(name_at(table, kText), "first");
  EXPECT_EQ(name_at(table, kText + 15), "first+15");
  EXPECT_EQ(name_at(table, kText + 16), "-");
  EXPECT_EQ(name_at(table, kText + 33), "second+1");
}

TEST(Symbols, WithoutASizeTheyRunToTheNext) {
  SymbolTable table;
  table.add(symbol(kText + 0x8000, 0, "second"));
  table.add(symbol(kText, 0, "first"));
  table.finish();
  EXPECT_EQ(name_at(table, kText + 0x7fff), "first+32767");
  EXPECT_EQ(name_at(table, kText + 0x8000), "second");
}

TEST(Symbols, WithoutASizeTheyDoNotReachFarOrIntoAnotherFile) {
  SymbolTable table;
  table.add(symbol(kText, 0, "last_of_kernel"));
  table.add(symbol(kText + 0x100000000, 0, "first_of_module", "[ext4]"));
  table.add(symbol(kText + 0x100000800, 0, "far_before_next", "[ext4]"));
  table.add(symbol(kText + 0x200000000, 0, "end", "[ext4]"));
  table.finish();
  EXPECT_EQ(name_at(table, kText + 8191), "last_of_kernel+8191");
  EXPECT_EQ(name_at(table, kText + 8192), "-");
  EXPECT_EQ(name_at(table, kText + 0x100000800 + (1 << 20) - 1), "far_before_next+1048575");
  EXPECT_EQ(name_at(table, kText + 0x100000800 + (1 << 20)), "-");
}

TEST(Symbols, PlainerNameOfAliasesAndInnerOfNestedOnes) {
  SymbolTable table;
  table.add(symbol(kText, 64, "__x64_sys_read"));
  table.add(symbol(kText, 64, "ksys_read"));
  table.add(symbol(kText + 16, 8, "inner"));
  table.finish();
  EXPECT_EQ(name_at(table, kText + 4), "ksys_read+4");
  EXPECT_EQ(name_at(table, kText + 17), "inner+1");
  EXPECT_EQ(name_at(table, kText + 24), "ksys_read+24");
}

TEST(Symbols, HigherRankAndLifetimesInTime) {
  SymbolTable table;
  table.add(symbol(kText, 4096, "module_area"));
  for (Time t : {100, 200}) {
    Symbol s = symbol(kText + 64, 64, "bpf_prog_" + std::to_string(t), "bpf");
    s.from = t;
    s.until = t + 50;
    s.rank = 1;
    table.add(s);
  }
  table.finish();
  EXPECT_EQ(name_at(table, kText + 64, 99), "module_area+64");
  EXPECT_EQ(name_at(table, kText + 64, 100), "bpf_prog_100");
  EXPECT_EQ(name_at(table, kText + 64, 150), "bpf_prog_100");
  EXPECT_EQ(name_at(table, kText + 64, 151), "module_area+64");
  EXPECT_EQ(name_at(table, kText + 64, 225), "bpf_prog_200");
  EXPECT_EQ(name_at(table, kText + 128, 225), "module_area+128");
}

TEST(Symbols, LaterLifetimeWinsWhenTheEndOfTheFirstWasLost) {
  SymbolTable table;
  for (Time t : {100, 200}) {
    Symbol s = symbol(kText, 64, "prog_" + std::to_string(t));
    s.from = t;
    table.add(s);
  }
  table.finish();
  EXPECT_EQ(name_at(table, kText, 150), "prog_100");
  EXPECT_EQ(name_at(table, kText, 250), "prog_200");
}

TEST(Symbols, SpacesAreApart) {
  SymbolTable table;
  Symbol s = symbol(0x401000, 16, "main", "/bin/a");
  s.space = 3;
  table.add(s);
  table.finish();
  EXPECT_EQ(name_at(table, 0x401000, 0, 3), "main");
  EXPECT_EQ(name_at(table, 0x401000, 0, 4), "-");
  EXPECT_EQ(name_at(table, 0x401000), "-");
}

TEST(Symbols, ByNameAndAll) {
  SymbolTable table;
  table.add(symbol(kText + 64, 8, "twice"));
  table.add(symbol(kText, 8, "twice"));
  table.add(symbol(kText + 32, 8, "once"));
  table.finish();
  const auto twice = table.named("twice");
  ASSERT_EQ(twice.size(), 2U);
  EXPECT_EQ(twice[0]->range.begin, kText);
  EXPECT_EQ(twice[1]->range.begin, kText + 64);
  EXPECT_TRUE(table.named("never").empty());
  ASSERT_EQ(table.all().size(), 3U);
  EXPECT_EQ(table.all()[1]->name, "once");
}

TEST(Symbols, AtBothEndsOfTheAddressSpace) {
  SymbolTable table;
  table.add(symbol(0, 1, "bottom"));
  table.add(symbol(UINT64_MAX - 10, 0, "top"));
  table.finish();
  EXPECT_EQ(name_at(table, 0), "bottom");
  EXPECT_EQ(name_at(table, UINT64_MAX - 1), "top+9");
  EXPECT_EQ(name_at(table, UINT64_MAX / 2), "-");
}

// The table compared with a linear search of all symbols.
TEST(Symbols, SameAsALinearScan) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    SimRandom random(seed);
    SymbolTable table;
    std::vector<Symbol> symbols;
    for (uint64_t i = random.between(1, 25); i > 0; --i) {
      Symbol s = symbol(kText + random.below(64), random.between(1, 30), "s" + std::to_string(i));
      if (random.chance(60)) {
        s.from = static_cast<Time>(random.below(50));
        s.until = s.from + static_cast<Time>(random.below(30));
      }
      s.rank = static_cast<int>(random.below(3));
      symbols.push_back(s);
      table.add(s);
    }
    table.finish();
    for (Addr a = kText - 1; a < kText + 100; ++a) {
      for (Time t = -1; t < 82; t += 3) {
        int best = -1;
        Time from = kTimeMin;
        for (const Symbol& s : symbols) {
          if (!s.range.contains(a) || t < s.from || t > s.until) continue;
          if (s.rank > best || (s.rank == best && s.from > from)) {
            best = s.rank;
            from = s.from;
          }
        }
        const auto found = table.find(kKernelSpace, a, t);
        ASSERT_EQ(found.has_value(), best >= 0) << a - kText << " " << t;
        if (!found) continue;
        ASSERT_TRUE(found->symbol->range.contains(a));
        ASSERT_EQ(found->offset, a - found->symbol->range.begin);
        ASSERT_EQ(found->symbol->rank, best) << a - kText << " " << t;
        ASSERT_EQ(found->symbol->from, from) << a - kText << " " << t;
      }
    }
  }
}

TEST(Symbols, AreSortedOnceWhoeverAsksFirst) {
  for (int round = 0; round < 20; ++round) {
    SymbolTable table;
    for (uint64_t i = 0; i < 500; ++i) table.add(symbol(kText + 16 * i, 0, "n" + std::to_string(i)));
    EXPECT_FALSE(table.find(kKernelSpace, kText, 0).has_value());
    table.finish();
    std::vector<std::string> names(4);
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < names.size(); ++t)
      threads.emplace_back(
          [&, t] { names[t] = t == 3 ? table.named("n7").at(0)->name : name_at(table, kText + 16 * 7); });
    threads.clear();
    for (size_t t = 0; t < names.size(); ++t) EXPECT_EQ(names[t], names[0]);
    EXPECT_EQ(name_at(table, kText + 16 * 7 + 3).substr(0, 2), "n7");
  }
}

TEST(Symbols, ThoseMadeLaterAreAsIfAddedThere) {
  const std::vector<Symbol> in_order = {symbol(kText, 16, "a"), symbol(kText, 16, "b"),
                                        symbol(kText, 16, "_ZN1c1dEv\033"), symbol(kText + 16, 0, "e"),
                                        symbol(kText + 32, 8, "f")};
  SymbolTable plain, later;
  int made = 0;
  const auto add_later = [&](size_t from, size_t to) {
    later.add_later([&, from, to](const SymbolTable::Add& add) {
      ++made;
      for (size_t i = from; i < to; ++i) add(in_order[i]);
    });
  };
  for (const Symbol& s : in_order) plain.add(s);
  add_later(0, 1);
  later.add(in_order[1]);
  add_later(2, 4);
  later.add(in_order[4]);
  for (SymbolTable* table : {&plain, &later}) {
    table->finish();
    table->show(NameStyle::kWithoutParameters);
  }
  EXPECT_EQ(made, 0) << "nobody has asked for a name";
  EXPECT_EQ(name_at(later, kText + 1), name_at(plain, kText + 1));
  const auto want = plain.all(), got = later.all();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i]->shown(), want[i]->shown());
    EXPECT_EQ(got[i]->name, want[i]->name);
    EXPECT_EQ(got[i]->range, want[i]->range);
    EXPECT_EQ(got[i]->number, want[i]->number);
  }
  EXPECT_EQ(made, 2) << "once each";
}

TEST(Symbols, ManyOverOneAnotherStayBounded) {
  SymbolTable table;
  for (uint64_t i = 0; i < 20000; ++i) table.add(symbol(kText + i, 100000, "n" + std::to_string(i)));
  table.finish();
  EXPECT_NE(name_at(table, kText + 30000), "-");
}

TEST(Symbols, AreShownAsInSource) {
  SymbolTable table;
  table.add(symbol(kText, 16, "_ZN2ns1fEi"));
  table.add(symbol(kText + 16, 16, "_ZN2ns1fEl"));
  table.add(symbol(kText + 32, 16, "plain"));
  table.add(symbol(kText + 48, 16, "_Zinvalid"));
  table.add(symbol(kText + 64, 16, "f"));
  table.finish();
  const auto shown = [&](Addr a) { return table.find(kKernelSpace, a, 0)->symbol->shown(); };
  EXPECT_EQ(shown(kText), "_ZN2ns1fEi");
  table.show(NameStyle::kWithParameters);
  EXPECT_EQ(shown(kText), "ns::f(int)");
  EXPECT_EQ(shown(kText + 32), "plain");
  EXPECT_EQ(shown(kText + 48), "_Zinvalid");
  EXPECT_EQ(name_at(table, kText), "_ZN2ns1fEi");
  Symbol copy = *table.find(kKernelSpace, kText, 0)->symbol;
  copy.name = "_ZN2ns1gEv";
  EXPECT_EQ(copy.shown(), "ns::g()");

  EXPECT_EQ(table.called("_ZN2ns1fEi").size(), 1U);
  EXPECT_EQ(table.called("ns::f(long)").size(), 1U);
  EXPECT_EQ(table.called("ns::f").size(), 2U);
  EXPECT_EQ(table.called("f").size(), 1U);
  EXPECT_EQ(table.called("ns::g").size(), 0U);
}

TEST(Symbols, OfOtherStyle) {
  SymbolTable table;
  table.add(symbol(kText, 16, "_ZN2ns1fEi"));
  table.finish();
  table.show(NameStyle::kWithoutParameters);
  EXPECT_EQ(table.find(kKernelSpace, kText, 0)->symbol->shown(), "ns::f");
}

TEST(Symbols, AnyThreadMayAskForANameFirst) {
  SymbolTable table;
  constexpr int kSymbols = 300;
  for (int i = 0; i < kSymbols; ++i)
    table.add(symbol(kText + static_cast<Addr>(i) * 16, 16, "_ZN2ns1fILi" + std::to_string(i) + "EEEvi"));
  table.finish();
  table.show(NameStyle::kWithParameters);
  std::vector<std::vector<std::string>> seen(4);
  std::vector<std::thread> threads;
  for (auto& names : seen) {
    threads.emplace_back([&] {
      for (int i = 0; i < kSymbols; ++i)
        names.push_back(table.find(kKernelSpace, kText + static_cast<Addr>(i) * 16, 0)->symbol->shown());
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(seen[0][7], "void ns::f<7>(int)");
  for (const auto& names : seen) EXPECT_EQ(names, seen[0]);
}

}  // namespace
}  // namespace asof::test
