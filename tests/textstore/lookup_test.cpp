// What TextStore returns: cells, read(), origins.
#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

TEST(Lookup, ReadCrossesCellsOfOneInstant) {
  TextFacts facts;
  facts.layer(kText, "90 90 0f 1f 44 00 00 c3");
  facts.poke(100, kText + 2, kNop5, kJmp);
  const TextStore store = facts.build();
  std::vector<uint8_t> bytes(8);
  EXPECT_EQ(store.read(kKernelSpace, kText, 99, bytes), 8U);
  EXPECT_EQ(to_hex(bytes), "90 90 0f 1f 44 00 00 c3");
  EXPECT_EQ(store.read(kKernelSpace, kText, 100, bytes), 8U);
  EXPECT_EQ(to_hex(bytes), "90 90 " + kJmp + " c3");
  EXPECT_EQ(store.read(kKernelSpace, kText + 3, 100, std::span(bytes).first(2)), 2U);
  EXPECT_EQ(bytes[0], 0x01);
}

TEST(Lookup, ReadStopsAtTheEndOfWhatIsKnown) {
  TextFacts facts;
  facts.layer(kText, "90 90 90");
  const TextStore store = facts.build();
  std::vector<uint8_t> bytes(8);
  EXPECT_EQ(store.read(kKernelSpace, kText, 0, bytes), 3U);
  EXPECT_EQ(store.read(kKernelSpace, kText + 3, 0, bytes), 0U);
  EXPECT_EQ(store.read(kNoSpace, kText, 0, bytes), 0U);
  EXPECT_EQ(store.read(kKernelSpace, UINT64_MAX, 0, bytes), 0U);
}

TEST(Lookup, ReadStopsAtTheFirstByteInDoubt) {
  TextFacts facts;
  facts.layer(kText, "90 90 01 02 03 90");
  facts.poke(10000, kText + 2, "01 02 03", "01 04 05");
  facts.poke(900000, kText + 2, "01 04 06", "01 02 03");
  const TextStore store = facts.build();
  std::vector<uint8_t> bytes(6);
  EXPECT_EQ(store.read(kKernelSpace, kText, 5000, bytes), 6U);
  EXPECT_EQ(store.read(kKernelSpace, kText, 50000, bytes), 4U);
}

TEST(Lookup, CellsOfARangeAreAllThatOverlapIt) {
  TextFacts facts;
  facts.layer(kText, "90 90 0f 1f 44 00 00 c3");
  facts.poke(100, kText + 2, kNop5, kJmp);
  const TextStore store = facts.build();
  const std::vector<Cell> cells = store.cells(kKernelSpace, {kText + 1, kText + 8});
  ASSERT_EQ(cells.size(), 3U);
  EXPECT_EQ(cells[0].range, (AddrRange{kText, kText + 2}));
  EXPECT_EQ(cells[2].range, (AddrRange{kText + 7, kText + 8}));
  EXPECT_EQ(store.cells(kKernelSpace, {0, UINT64_MAX}).size(), 5U);
  EXPECT_TRUE(store.cells(kKernelSpace, {kText, kText}).empty());
  EXPECT_EQ(store.cells(kNoSpace, {kText, kText + 8}).size(), 1U);
}

TEST(Lookup, VersionsPossibleInAnIntervalAreNeighbours) {
  TextFacts facts;  // a long candidate around short ones
  facts.layer(kText, "00");
  for (uint8_t i = 1; i < 20; ++i) {
    facts.layer(kText, to_hex(std::vector{i}), {.from = 100 * i, .until = 100 * i + 50});
  }
  const TextStore store = facts.build();
  const Cell cell = store.cell(kKernelSpace, kText);
  for (size_t i = 1; i < cell.versions.size(); ++i) {
    EXPECT_LE(cell.versions[i - 1].from, cell.versions[i].from);
    EXPECT_LE(cell.versions[i - 1].until, cell.versions[i].until);
  }
  EXPECT_EQ(at(store, kText, 1, 99), Texts{"00"});
  EXPECT_EQ(at(store, kText, 1, 325), (Texts{"00", "03"}));
  EXPECT_EQ(at(store, kText, 1, 375), Texts{"00"});
}

TEST(Lookup, OriginsOfWhatHasNone) {
  TextFacts facts;
  const TextStore store = facts.build();
  EXPECT_EQ(store.origin(kNoOrigin).kind, OriginKind::kUnknown);
  EXPECT_EQ(store.origin(12345).kind, OriginKind::kUnknown);
  EXPECT_EQ(store.origin(kPokeBit | 7).kind, OriginKind::kPoke);
}

TEST(Lookup, StoreKeepsWhatTheBytesLieIn) {
  auto owner = std::make_shared<std::vector<uint8_t>>(from_hex("90 c3"));
  std::weak_ptr<std::vector<uint8_t>> watch = owner;
  Builder builder;
  builder.add_layer({.range = {kText, kText + 2}, .bytes = *owner});
  builder.keep(std::move(owner));
  {
    const TextStore store = std::move(builder).build();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(at(store, kText, 2, 0), Texts{"90 c3"});
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Lookup, PokesAreInTimeOrderWithTheirBytes) {
  TextFacts facts;
  facts.poke(300, kText, "03", "04");
  facts.poke(100, kText, "01", "02");
  facts.poke(200, kText, "02", "03");
  const TextStore store = facts.build();
  ASSERT_EQ(store.pokes().size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(store.pokes()[i].time, 100 * static_cast<Time>(i + 1));
    EXPECT_EQ(store.pokes()[i].old_bytes()[0], i + 1);
    EXPECT_EQ(store.pokes()[i].new_bytes()[0], i + 2);
  }
}

}  // namespace
}  // namespace asof::test
