// Names like one that does not exist.
#include "tools/cli/near_names.h"

#include <gtest/gtest.h>

#include <array>

namespace asof {
namespace {

TEST(EditDistance, CountsChangesOfLetters) {
  EXPECT_EQ(edit_distance("report", "report", 3), 0U);
  EXPECT_EQ(edit_distance("repot", "report", 3), 1U) << "one is missing";
  EXPECT_EQ(edit_distance("reoprt", "report", 3), 1U) << "neighbours were exchanged";
  EXPECT_EQ(edit_distance("rapart", "report", 3), 2U);
  EXPECT_EQ(edit_distance("", "abc", 3), 3U);
  EXPECT_EQ(edit_distance("abc", "", 2), 3U) << "more than the bound";
  EXPECT_EQ(edit_distance("decode", "timeline", 3), 4U);
}

TEST(NearNames, NearestFirstAndNotTooMany) {
  constexpr std::array<std::string_view, 7> kNames = {"schedule", "__schedule", "schedule_idle", "sched",
                                                      "vfs_read", "SCHEDULE",   "schedulf"};
  EXPECT_EQ(near_names("shedule", kNames).front(), "SCHEDULE");
  EXPECT_EQ(near_names("shedule", kNames).size(), 3U);
  EXPECT_EQ(near_names("vfs_raed", kNames), std::vector<std::string>{"vfs_read"});
  EXPECT_EQ(near_names("schedule_i", kNames).front(), "SCHEDULE") << "two letters less, in any case";
  EXPECT_TRUE(near_names("xyz", kNames).empty());
  EXPECT_TRUE(near_names("", kNames).empty());
}

TEST(NearNames, Sentence) {
  constexpr std::array<std::string_view, 2> kNames = {"report", "events"};
  EXPECT_EQ(did_you_mean("repot", kNames), "did you mean 'report'?");
  EXPECT_EQ(did_you_mean("zzzz", kNames), "");
}

}  // namespace
}  // namespace asof
