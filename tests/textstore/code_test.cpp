#include "textstore/code.h"

#include <gtest/gtest.h>

namespace asof {
namespace {

TEST(Code, TextAndValueAreOne) {
  EXPECT_EQ(code_text(Code::kTraceContradictsText), "E-FLOW-001");
  EXPECT_EQ(code_of("E-FLOW-001"), Code::kTraceContradictsText);
  EXPECT_EQ(code_text(Code::kNone), "");
  for (const char* no_code : {"", "E-FLOW-999", "E-FLOW-0011", "E-FLOW-00", "nonsense", "e-flow-001", "Z"})
    EXPECT_FALSE(code_of(no_code)) << no_code;
}

TEST(Code, FamilyAndSeverityAreInTheText) {
  EXPECT_EQ(family_of(Code::kBadPacket), CodeFamily::kData);
  EXPECT_EQ(family_of(Code::kCannotRead), CodeFamily::kFile);
  EXPECT_EQ(family_of(Code::kRunaway), CodeFamily::kFlow);
  EXPECT_EQ(family_of(Code::kTraceOverflow), CodeFamily::kLost);
  EXPECT_EQ(family_of(Code::kDerivedClock), CodeFamily::kSide);
  EXPECT_EQ(family_of(Code::kNoBytes), CodeFamily::kText);
  EXPECT_EQ(family_of(Code::kNone), CodeFamily::kNone);
  EXPECT_EQ(family_text(family_of(Code::kNoBytes)), "TEXT");
  EXPECT_TRUE(is_error_or_loss(Code::kTraceOverflow));
  EXPECT_FALSE(is_error_or_loss(Code::kDerivedClock));
  EXPECT_FALSE(is_error_or_loss(Code::kNone));
}

}  // namespace
}  // namespace asof
