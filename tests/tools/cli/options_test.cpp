// Values of options: lists, times, ranges, fields, letters. Whatever is not understood is an error.
#include "tools/cli/options.h"

#include <gtest/gtest.h>

#include "tools/decode/decode_options.h"

namespace asof {
namespace {

TEST(Options, NumberLists) {
  EXPECT_EQ(parse_number_list("0,2-5,7", "-C").value(), (std::vector<int>{0, 2, 3, 4, 5, 7}));
  for (const char* bad : {"", ",", "x", "1-", "-1", "5-2", "1,2x", "0-99999999", "4294967296"}) {
    EXPECT_FALSE(parse_number_list(bad, "-C").has_value()) << bad;
  }
}

TEST(Options, Seconds) {
  EXPECT_EQ(parse_seconds("12.345678901"), 12'345'678'901);
  EXPECT_EQ(parse_seconds("12.5"), 12'500'000'000);
  EXPECT_EQ(parse_seconds("7"), 7'000'000'000);
  for (const char* bad : {"", "x", "1.2.3", "1.0000000001", "-1", "99999999999", "1,5"}) {
    EXPECT_FALSE(parse_seconds(bad).has_value()) << bad;
  }
}

TEST(Options, TimeRanges) {
  EXPECT_EQ(parse_time_range("1,2.5", {}).value(), (TimeBounds{1'000'000'000, 2'500'000'000}));
  EXPECT_EQ(parse_time_range("1,", {}).value(), (TimeBounds{1'000'000'000, kTimeMax}));
  EXPECT_EQ(parse_time_range(",2", {}).value(), (TimeBounds{kTimeMin, 2'000'000'000}));
  EXPECT_EQ(parse_time_range("10%-20%", {1000, 2000}).value(), (TimeBounds{1100, 1200}));
  for (const char* bad : {"2,1", "a,b", "20%-10%", "10%", "10%-200%", "-5%-10%", "10%-nan%"}) {
    EXPECT_FALSE(parse_time_range(bad, {1000, 2000}).has_value()) << bad;
  }
  EXPECT_FALSE(parse_time_range("10%-20%", {}).has_value()) << "a capture without times";
}

TEST(Options, Fields) {
  EXPECT_EQ(parse_fields("ip,sym").value(), uint32_t{kFieldIp | kFieldSym});
  EXPECT_EQ(parse_fields("+disasm,-comm").value(), (kDefaultFields | kFieldDisasm) & ~uint32_t{kFieldComm});
  EXPECT_EQ(parse_fields("symoff").value(), uint32_t{kFieldSym | kFieldSymoff});
  for (const char* bad : {"", "ipp", "ip,,x", "-ip,-sym,-comm,-tid,-cpu,-time,-symoff,-dso"}) {
    EXPECT_FALSE(parse_fields(bad).has_value()) << bad;
  }
}

TEST(Options, ItraceLetters) {
  EXPECT_EQ(parse_itrace("i").value(), uint32_t{kKindInstructions});
  EXPECT_EQ(parse_itrace("i0nse").value(), uint32_t{kKindInstructions | kKindErrors});
  EXPECT_EQ(parse_itrace("i1ie").value(), uint32_t{kKindInstructions | kKindErrors});
  EXPECT_EQ(parse_itrace("bcrxwp").value(), uint32_t{kKindBranches | kKindCalls | kKindReturns |
                                                     kKindTransactions | kKindPtwrite | kKindPower});
  for (const char* bad : {"", "q", "i100us", "i10i", "i5", "b0"})
    EXPECT_FALSE(parse_itrace(bad).has_value()) << bad;
}

TEST(Options, AddressRanges) {
  EXPECT_EQ(parse_address_range("0x1000-1fff").value(), (AddrRange{0x1000, 0x2000}));
  EXPECT_EQ(parse_address_range("ffffffff81000000-ffffffffffffffff").value(),
            (AddrRange{0xffffffff81000000, UINT64_MAX}));
  for (const char* bad : {"", "1000", "-", "2000-1000", "x-y"})
    EXPECT_FALSE(parse_address_range(bad).has_value()) << bad;
}

}  // namespace
}  // namespace asof
