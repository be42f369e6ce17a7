// The digest of the return stack, by which hypotheses that have joined are recognised.
#include <gtest/gtest.h>

#include "arch/x86/state.h"

namespace asof::x86 {
namespace {

// A return with a target of its own ran, then all entries were popped: both stacks that are kept have the
// same entries from then on.
Returns after_a_split(std::initializer_list<Addr> calls) {
  Returns r;
  r.push(0x1000);
  r.uncompressed();
  Addr a = 0;
  r.pop(a);
  for (const Addr call : calls) r.push(call);
  return r;
}

TEST(ReturnStack, EqualStacksThatAreBothKeptDoNotCancelEachOtherOut) {
  ASSERT_TRUE(after_a_split({}).split());
  EXPECT_NE(after_a_split({0x2000}).digest(), after_a_split({0x3000}).digest());
  EXPECT_NE(after_a_split({0x2000}).digest(), after_a_split({0x2000, 0x3000}).digest());
  EXPECT_EQ(after_a_split({0x2000, 0x3000}).digest(), after_a_split({0x2000, 0x3000}).digest());
}

TEST(ReturnStack, OrderAndEntriesCount) {
  const auto with = [](std::initializer_list<Addr> calls) {
    Returns r;
    for (const Addr call : calls) r.push(call);
    return r.digest();
  };
  EXPECT_NE(with({0x1000, 0x2000}), with({0x2000, 0x1000}));
  EXPECT_NE(with({0x1000}), with({0x1000, 0x1000}));
  EXPECT_EQ(with({0x1000, 0x2000}), with({0x1000, 0x2000}));
}

}  // namespace
}  // namespace asof::x86
