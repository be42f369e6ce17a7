// Cost of the text store at the size of a day of tracing: ten million pokes of a hundred thousand sites.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "decoder/model/symbols.h"
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffffffff81000000;
constexpr uint64_t kSpacing = 160;  // bytes between sites

std::array<uint8_t, 5> instruction(uint64_t site, bool on) {
  if (!on) return {0x0f, 0x1f, 0x44, 0x00, 0x00};
  return {0xe9, static_cast<uint8_t>(site), static_cast<uint8_t>(site >> 8), static_cast<uint8_t>(site >> 16),
          0};
}

void fill(Builder& builder, const std::vector<uint8_t>& text, uint64_t sites, uint64_t pokes) {
  builder.add_layer({.range = range_of(kText, text.size()), .bytes = text});
  for (uint64_t i = 0; i < pokes; ++i) {
    const uint64_t site = (i * 7919) % sites;
    const bool on = (i / sites) % 2 == 0;
    const auto before = instruction(site, !on), after = instruction(site, on);
    builder.add_poke({kText + site * kSpacing, static_cast<Time>(i * 10000), before, after,
                      static_cast<uint32_t>(i % 8), 4096 + 56 * i});
  }
}

std::vector<uint8_t> make_text(uint64_t sites) {
  std::vector<uint8_t> text(sites * kSpacing, 0x90);
  for (uint64_t s = 0; s < sites; ++s) {
    const auto nop = instruction(s, false);
    std::ranges::copy(nop, text.begin() + static_cast<ptrdiff_t>(s * kSpacing));
  }
  return text;
}

void BuildStore(benchmark::State& state) {
  const auto sites = static_cast<uint64_t>(state.range(0)), pokes = static_cast<uint64_t>(state.range(1));
  const std::vector<uint8_t> text = make_text(sites);
  for (auto _ : state) {
    Builder builder;
    fill(builder, text, sites, pokes);
    const TextStore store = std::move(builder).build();
    if (store.pokes().size() != pokes || !store.notices().empty()) state.SkipWithError("wrong store");
    benchmark::DoNotOptimize(store.cell(kKernelSpace, kText).versions.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * pokes));
}
BENCHMARK(BuildStore)
    ->Args({10000, 100000})
    ->Args({100000, 1000000})
    ->Args({100000, 10000000})
    ->Unit(benchmark::kMillisecond);

void LookUp(benchmark::State& state) {
  const uint64_t sites = 100000;
  const std::vector<uint8_t> text = make_text(sites);
  Builder builder;
  fill(builder, text, sites, 1000000);
  const TextStore store = std::move(builder).build();
  SimRandom random(1);
  std::vector<Addr> addresses(1 << 16);
  for (Addr& a : addresses) a = kText + random.below(text.size());
  size_t i = 0;
  for (auto _ : state) {
    const Cell cell = store.cell(kKernelSpace, addresses[i++ & 0xffff]);
    benchmark::DoNotOptimize(cell.versions.data());
  }
}
BENCHMARK(LookUp);

void Forks(benchmark::State& state) {
  const std::vector<uint8_t> page(4096, 0x90);
  for (auto _ : state) {
    Builder builder;
    const Space parent = builder.add_space();
    for (uint64_t i = 1; i <= 200; ++i) {
      builder.add_layer(
          {.space = parent, .range = range_of(i * 8192, 4096), .bytes = page, .rank = kRankMapping});
    }
    for (int64_t i = 0; i < state.range(0); ++i) {
      const Space child = builder.fork_space(parent, i);
      // Every second child has a mapping of its own.
      if (i % 2 == 0) {
        builder.add_layer(
            {.space = child, .range = range_of(1, 100), .bytes = {}, .from = i, .rank = kRankMapping});
      }
    }
    const TextStore store = std::move(builder).build();
    benchmark::DoNotOptimize(store.space_count());
  }
}
BENCHMARK(Forks)->Arg(10000)->Unit(benchmark::kMillisecond);

void FindSymbol(benchmark::State& state) {
  SymbolTable table;
  SimRandom random(2);
  for (uint64_t i = 0; i < 150000; ++i) {
    Symbol s;
    s.range = range_of(kText + i * 128, 0);
    s.name = "symbol_" + std::to_string(i);
    table.add(std::move(s));
  }
  table.finish();
  std::vector<Addr> addresses(1 << 16);
  for (Addr& a : addresses) a = kText + random.below(150000 * 128);
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(table.find(kKernelSpace, addresses[i++ & 0xffff], 0));
}
BENCHMARK(FindSymbol);

}  // namespace
}  // namespace asof::test
