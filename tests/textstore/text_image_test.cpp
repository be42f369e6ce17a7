// Versions of text for display: which version an instruction belonged to, and the text of a range at an
// instant.
#include "textstore/text_image.h"

#include <gtest/gtest.h>

#include "textstore/builder.h"
#include "textstore/text_source.h"

namespace asof {
namespace {

constexpr Addr kText = 0xffffffff81000000;
const std::vector<uint8_t> kOld = {0x0f, 0x1f, 0x44, 0x00, 0x00}, kNew = {0xe9, 1, 2, 3, 4};

// 64 NOPs, five bytes of them poked at 100 and back at 200; a range without bytes after them.
class History : public ::testing::Test {
 protected:
  History() : page_(64, 0x90) {
    std::copy(kOld.begin(), kOld.end(), page_.begin() + 8);
    Builder b;
    const OriginRef origin = b.add_origin({.kind = OriginKind::kKcore, .name = "kcore", .build_id = {}});
    b.add_layer({.range = {kText, kText + 64}, .bytes = page_, .observed = 0, .origin = origin});
    b.add_layer({.range = {kText + 64, kText + 96}, .bytes = {}, .rank = kRankEpoch});
    b.add_poke({.addr = kText + 8, .time = 100, .old_bytes = kOld, .new_bytes = kNew});
    b.add_poke({.addr = kText + 8, .time = 200, .old_bytes = kNew, .new_bytes = kOld});
    store_.emplace(std::move(b).build());
  }
  TextSource source(Time lo, Time hi, std::span<const uint8_t> bytes) const {
    return text_source(*store_, kKernelSpace, kText + 8, {lo, hi}, bytes);
  }
  std::vector<uint8_t> page_;
  std::optional<TextStore> store_;
};

TEST_F(History, VersionIsTheOneWithTheseBytesAtThatTime) {
  EXPECT_EQ(source(50, 60, kOld).version, 1U);
  EXPECT_EQ(source(150, 160, kNew).version, 2U);
  EXPECT_EQ(source(250, 260, kOld).version, 3U);
  EXPECT_EQ(source(250, 260, kOld).versions, 3U);
  EXPECT_TRUE(is_poke(source(250, 260, kOld).origin));
  EXPECT_EQ(source(50, 60, kNew).version, 2U) << "at another time, but the only one with these bytes";
  const std::vector<uint8_t> other = {1, 2, 3, 4, 5};
  EXPECT_EQ(source(50, 60, other).version, 0U);
}

TEST_F(History, ImageHasTheBytesOfTheInstantAndKnowsWhatItDoesNotKnow) {
  const AddrRange range = {kText, kText + 80};
  const auto cells = store_->cells(kKernelSpace, range);
  const TextImage before = image_at(cells, range, 99);
  const TextImage after = image_at(cells, range, 100);
  EXPECT_TRUE(std::equal(kOld.begin(), kOld.end(), before.bytes.begin() + 8));
  EXPECT_TRUE(std::equal(kNew.begin(), kNew.end(), after.bytes.begin() + 8));
  EXPECT_TRUE(after.known(0, 64));
  EXPECT_FALSE(after.known(63, 2));
  EXPECT_FALSE(after.known(64, 1));
  EXPECT_FALSE(after.known(79, 2)) << "past its end";
  EXPECT_FALSE(after.known(SIZE_MAX, 1));
  EXPECT_EQ(after.bytes[0], 0x90);
}

TEST_F(History, ChangesOnceEach) {
  const auto cells = store_->cells(kKernelSpace, {kText, kText + 64});
  EXPECT_EQ(change_times(cells), (std::vector<Time>{100, 200}));
  EXPECT_TRUE(change_times(store_->cells(kKernelSpace, {kText + 16, kText + 32})).empty());
}

TEST_F(History, VersionAtIsTheLatestThatBegan) {
  const Cell cell = store_->cell(kKernelSpace, kText + 8);
  EXPECT_EQ(version_at(cell, kTimeMin), &cell.versions[0]);
  EXPECT_EQ(version_at(cell, 199), &cell.versions[1]);
  EXPECT_EQ(version_at(cell, kTimeMax), &cell.versions[2]);
  const Cell hole = store_->cell(kKernelSpace, kText + 4096);
  EXPECT_EQ(version_at(hole, 100), nullptr);
}

}  // namespace
}  // namespace asof
