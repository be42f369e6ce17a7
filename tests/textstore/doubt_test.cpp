// One origin of a finished store is found to be wrong.
#include "textstore/doubt.h"

#include <gtest/gtest.h>

#include "tests/textstore/text_facts.h"

namespace asof::test {
namespace {

TEST(Doubt, IsOfOneOriginInAllSpaces) {
  TextFacts facts;
  const Space parent = facts.builder.add_space();
  const OriginRef wrong = facts.layer(0x401000, "55 c3", {.from = 1, .rank = kRankMapping, .space = parent});
  facts.layer(0x402000, "53 c3", {.from = 1, .rank = kRankMapping, .space = parent});
  const Space child = facts.builder.fork_space(parent, 50);
  facts.layer(kText, "90 90");
  TextStore store = facts.build();
  doubt(store, wrong);
  for (const Space space : {parent, child}) {
    const Cell in_doubt = store.cell(space, 0x401000);
    ASSERT_FALSE(in_doubt.versions.empty()) << space;
    for (const Version& v : in_doubt.versions) EXPECT_TRUE(v.unsure || v.bytes == nullptr) << space;
    EXPECT_EQ(at(store, 0x401000, 2, 60, space), Texts{"55 c3"}) << "is followed all the same";
    for (const Version& v : store.cell(space, 0x402000).versions) EXPECT_FALSE(v.unsure) << space;
  }
  for (const Version& v : store.cell(kKernelSpace, kText).versions) EXPECT_FALSE(v.unsure);
}

TEST(Doubt, WhatARecordWroteStaysSure) {
  TextFacts facts;
  const OriginRef copy = facts.layer(kText, kNop5);
  facts.poke(100, kText, kNop5, kJmp);
  TextStore store = facts.build();
  doubt(store, copy);
  for (const Version& v : store.cell(kKernelSpace, kText).versions) EXPECT_EQ(v.unsure, v.origin == copy);
}

}  // namespace
}  // namespace asof::test
