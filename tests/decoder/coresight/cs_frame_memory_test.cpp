// Frames of a recording that grows: indexed once, and gone from the file when they were given up.
#include "decoder/coresight/cs_frame_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/etm_frames.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;

// A ring's frames as they come: in buffers of some sections each, behind other bytes of the file.
class Growing {
 public:
  explicit Growing(uint32_t seed) : random_(seed) {}
  // One more round.
  void grow() {
    const bool first = sections_.empty();
    file_.resize(file_.size() + 100);
    for (size_t n = 1 + random_() % 3; n > 0; --n) {
      EtmFrames frames(false);
      for (size_t turns = 800; turns > 0; --turns) {
        const uint8_t id = kIds[random_() % (first ? 1 : 3)];
        Bytes part(random_() % 60);
        for (uint8_t& byte : part) byte = static_cast<uint8_t>(random_());
        frames.write(id, part);
      }
      frames.flush();
      sections_.push_back({file_.size(), frames.bytes().size()});
      file_.insert(file_.end(), frames.bytes().begin(), frames.bytes().end());
    }
  }
  static std::vector<FrameSection> of(const Growing& layout, const Bytes& file) {
    std::vector<FrameSection> out;
    for (const auto& [at, size] : layout.sections_)
      out.push_back({.bytes = std::span(file).subspan(at, size), .file_offset = at});
    return out;
  }
  const Bytes& file() const { return file_; }
  size_t sections() const { return sections_.size(); }
  static constexpr uint8_t kIds[] = {0x10, 0x11, 0x12};

 private:
  std::mt19937 random_;
  Bytes file_;
  std::vector<std::pair<size_t, size_t>> sections_;
};

Bytes read(const CsFrames& frames, uint8_t id, uint64_t at, size_t size) {
  Bytes out(size, 0xee);
  frames.bytes_of(id)->read(at, out);
  return out;
}

// What was given up is zeros in the file; all behind it, and all that was kept in front, is what a pass over everything
// finds.
TEST(CsFrameMemory, GrowsAndForgets) {
  for (const uint32_t seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    Growing ring(seed);
    CsFrameMemory memory;
    Bytes file;  // with holes
    uint64_t freed = 0;
    std::map<uint8_t, uint64_t> needed, kept;  // bytes of each source
    for (int round = 0; round < 24; ++round) {
      ring.grow();
      file.insert(file.end(), ring.file().begin() + static_cast<ptrdiff_t>(file.size()), ring.file().end());
      const auto frames = memory.index(3, Growing::of(ring, file), FrameAlignment::kMemory);
      const auto whole = CsFrames::index(Growing::of(ring, ring.file()), FrameAlignment::kMemory);
      ASSERT_EQ(frames->sources().size(), whole->sources().size());
      EXPECT_EQ(frames->losses().unassigned, whole->losses().unassigned);
      size_t from = 0, to = SIZE_MAX;
      for (const CsFrames::Source& want : whole->sources()) {
        const auto got = std::ranges::find(frames->sources(), want.id, &CsFrames::Source::id);
        ASSERT_EQ(got->size, want.size);
        ASSERT_EQ(got->breaks.size(), want.breaks.size());
        for (size_t i = 0; i < want.breaks.size(); ++i) {
          EXPECT_EQ(got->breaks[i].at, want.breaks[i].at);
          EXPECT_EQ(got->breaks[i].file_offset, want.breaks[i].file_offset);
        }
        for (const auto& [begin, end] :
             {std::pair(uint64_t{0}, kept[want.id]), std::pair(needed[want.id], want.size)})
          for (int i = 0; i < 10 && begin < end; ++i) {
            const uint64_t at = begin + random() % (end - begin);
            const size_t size = 1 + random() % std::min<uint64_t>(end - at, 9000);
            ASSERT_EQ(read(*frames, want.id, at, size), read(*whole, want.id, at, size))
                << round << " " << at;
            EXPECT_EQ(frames->bytes_of(want.id)->file_offset(at), whole->bytes_of(want.id)->file_offset(at));
          }
        // Over what is gone: zeros there, and never other bytes.
        const Bytes all = read(*frames, want.id, 0, want.size), right = read(*whole, want.id, 0, want.size);
        for (size_t i = 0; i < all.size(); ++i)
          ASSERT_TRUE(all[i] == right[i] || all[i] == 0) << round << " " << i;
        if (round == 3) kept[want.id] = want.size / 2;
        if (round >= 4) needed[want.id] = std::max(needed[want.id], want.size * 3 / 4);
        from = std::max(from, frames->checkpoint_behind(want.id, kept[want.id]));
        to = std::min(to, frames->checkpoint_before(want.id, needed[want.id]));
      }
      if (round < 4 || from >= to) continue;
      for (const CsFrames::FileBytes& bytes : frames->give_up(from, to)) {
        EXPECT_LT(bytes.begin, bytes.end);
        std::fill(file.begin() + static_cast<ptrdiff_t>(bytes.begin),
                  file.begin() + static_cast<ptrdiff_t>(bytes.end), uint8_t{0});
        freed += bytes.end - bytes.begin;
      }
    }
    EXPECT_GT(freed, ring.file().size() / 3) << seed;
  }
}

// A record says later that a section is two: all frames are looked at again.
TEST(CsFrameMemory, OtherSectionsAreIndexedAnew) {
  Growing ring(5);
  for (int i = 0; i < 5; ++i) ring.grow();
  CsFrameMemory memory;
  std::vector<FrameSection> sections = Growing::of(ring, ring.file());
  memory.index(0, sections, FrameAlignment::kMemory);
  const FrameSection first = sections.front();
  sections.front().bytes = first.bytes.first(1600);
  FrameSection rest = first;
  rest.bytes = first.bytes.subspan(1600);
  rest.file_offset += 1600;
  sections.insert(sections.begin() + 1, rest);
  const auto frames = memory.index(0, sections, FrameAlignment::kMemory);
  const auto whole = CsFrames::index(sections, FrameAlignment::kMemory);
  for (const CsFrames::Source& want : whole->sources())
    EXPECT_EQ(read(*frames, want.id, 0, want.size), read(*whole, want.id, 0, want.size));
}

}  // namespace
}  // namespace asof::test
